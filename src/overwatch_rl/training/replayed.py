"""Training from remembered steps: rollouts go into a table, gradient steps sample it.

Owns what happens between a rollout and the gradient steps after it, so that a trainer drives an algorithm of
sampled transitions as any other. Rules: a step is written once; errors become the priorities of the steps
that they are of, unless another step has the place by then. What is remembered is no part of a checkpoint: a
run that goes on fills its table first. Must not know where the table is.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from overwatch_rl.algorithms.common import Plan, of_gradients, of_values
from overwatch_rl.algorithms.dqn import DQN, DQNConfig, Learned, Transitions
from overwatch_rl.replay.base import Capacity, Sampled, TableConfig, Taken
from overwatch_rl.replay.chunk import Chunk
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.selectors import Priorities
from overwatch_rl.replay.service import Replay
from overwatch_rl.sync_points import sync_point
from overwatch_rl.training.experience import Chunker, Source, encoding_of
from overwatch_rl.types import Decision, Observation, Rollout, Stats, WorldSpec

TABLE: Final = "steps"
_COLUMNS: Final = ("observation", "reward", "next_observation", "terminated")


class Memory(Protocol):
    """Remembered steps, here or elsewhere."""

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """Steps, with importance weights of that exponent; `None` until there are enough."""
        ...

    def update_priorities(self, sampled: Sampled, priorities: npt.NDArray[np.float64]) -> None:
        """Set those of sampled steps, before the next sample; a step that is gone has none."""
        ...


class Table(Memory, Protocol):
    """A memory that is filled from here."""

    def append(self, chunks: Sequence[Chunk]) -> None:
        """Remember them."""
        ...


def table_of(name: str, config: DQNConfig, seed: int, rows: int | None = None) -> TableConfig:
    """The table that DQN samples.

    With `rows`, the env steps to an update, it paces actors and learner: an update's gradient steps go on
    once as many env steps came as would have in one process, and actors are one batch ahead at most.

    Raises `ValueError` where so many do not fit.
    """
    rate = Rate(min_steps=config.first_at)
    if rows is not None:
        first = -(-config.first_at // rows) * rows
        if config.capacity < (least := first + rows):
            raise ValueError(f"capacity is {config.capacity}; with batches of {rows} env steps use {least}")
        # Half a sample between "all of an update" and "one more": the ratio need not be exact.
        rate = Rate(
            samples_per_insert=config.gradient_steps * config.batch / rows,
            min_steps=first,
            buffer=(config.gradient_steps - 0.5) * config.batch,
        )
    return TableConfig(
        name=name,
        kind="steps",
        selector="prioritised",
        remover="oldest",
        capacity=Capacity(items=config.capacity, bytes=1 << 50),
        rate=rate,
        priorities=Priorities(alpha=config.alpha),
        seed=seed,
    )


class Local:
    """A table of steps in this process."""

    def __init__(self, spec: WorldSpec, config: DQNConfig, seed: int) -> None:
        self.replay = Replay([table_of(TABLE, config, seed)])
        self._hash = self.replay.declare(TABLE, encoding_of(spec, has_mask=False))

    def append(self, chunks: Sequence[Chunk]) -> None:
        """Remember them; raises `ValueError` where the table cannot."""
        answer = self.replay.append(TABLE, self._hash, chunks)
        if not isinstance(answer, Taken):
            raise ValueError(f"steps were not remembered: {answer}")  # noqa: TRY004 an answer

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """Steps, with importance weights of that exponent; `None` until there are enough."""
        return self.replay.sample(TABLE, count, exponent)

    def update_priorities(self, sampled: Sampled, priorities: npt.NDArray[np.float64]) -> None:
        """Set those of sampled steps; of those that are gone they are counted as late."""
        self.replay.update_priorities(TABLE, sampled.slots, sampled.generations, priorities)


class Remembering:
    """DQN that learns from what a memory gives, in updates of several gradient steps."""

    def __init__(self, dqn: DQN) -> None:
        self.dqn = dqn
        self.plan = dqn.plan
        self.ages: Callable[[Sampled], npt.NDArray[np.int64]] = lambda sampled: -sampled.versions
        """Of sampled steps, in updates since their policy."""
        self._learned: list[Learned] = []
        """Of the update that is not whole yet."""
        self._newest: Sampled | None = None

    @property
    def config(self) -> DQNConfig:
        """How it acts and learns."""
        return self.dqn.config

    @config.setter
    def config(self, config: DQNConfig) -> None:
        self.dqn.config = config

    @property
    def policy(self) -> torch.nn.Module:
        """The network that acts."""
        return self.dqn.policy

    @property
    def steps_learned(self) -> int:
        """Gradient steps of the update that is not whole yet."""
        return len(self._learned)

    @property
    def is_whole(self) -> bool:
        """Whether the update has had all of its gradient steps."""
        return len(self._learned) >= self.config.gradient_steps

    def apply_plan(self, plan: Plan) -> None:
        """Raises `ValueError` for any but the plain plan."""
        self.dqn.apply_plan(plan)

    def set_learning_rate(self, rate: float) -> None:
        """The step size from now on."""
        self.dqn.set_learning_rate(rate)

    def sample(self, memory: Memory) -> Sampled | None:
        """Steps for one gradient step; `None` where the memory has none now."""
        return memory.sample(self.config.batch, self.dqn.beta)

    def learn(self, sampled: Sampled, memory: Memory) -> None:
        """One gradient step, and the priorities that follow."""
        self._learned.append(self.dqn.update(self._transitions(sampled)))
        self._newest = sampled
        with sync_point("dqn.priorities"):
            errors = self._learned[-1].errors.abs().double().cpu().numpy()
        memory.update_priorities(sampled, _priorities(errors))

    def finish(self) -> Stats:
        """The numbers of the update, of which there are few where it had no gradient step."""
        learned, self._learned = self._learned, []
        return self._now() | (_summary(learned, self.dqn.learning_rate) if learned else {})

    def _now(self) -> Stats:
        """How much is explored, and what the newest sample was drawn from."""
        found = {"epsilon": self.dqn.epsilon}
        if self._newest is not None:
            found["memory_fill"] = self._newest.available / self.config.capacity
            found["memory_age"] = float(self.ages(self._newest).mean())
        return {name: torch.tensor(value, device=self.dqn.device) for name, value in found.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """As `DQN.state_dict`."""
        return self.dqn.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """As `DQN.load_state_dict`; what was remembered is no part of it."""
        self.dqn.load_state_dict(state)
        self._learned = []

    def acting_keys(self) -> frozenset[str]:
        """As `DQN.acting_keys`."""
        return self.dqn.acting_keys()

    def _transitions(self, sampled: Sampled) -> Transitions:
        def tensor(array: npt.NDArray[Any]) -> Tensor:
            # What came over a wire is read-only, which torch has no word for.
            return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self.dqn.device)

        columns = {name: tensor(sampled.columns[name]) for name in _COLUMNS}
        return Transitions(
            actions=tensor(sampled.columns["action"]).squeeze(1), weights=tensor(sampled.weights), **columns
        )


class Replayed(Remembering):
    """The same as an algorithm of a trainer, whose batch is the number of steps that were remembered."""

    def __init__(self, spec: WorldSpec, dqn: DQN, memory: Table) -> None:
        super().__init__(dqn)
        self.memory = memory
        self.ages = lambda sampled: self._updates - sampled.versions
        self._encoding = encoding_of(spec, has_mask=False)
        self._chunker: Chunker | None = None
        self._updates = 0

    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """As `DQN.act`."""
        return self.dqn.act(observation, generator, greedy=greedy)

    def prepare(self, rollout: Rollout) -> int:
        """Remember a rollout; its steps."""
        steps, envs = rollout.rewards.shape
        if self._chunker is None:
            self._chunker = Chunker(Source(run=TABLE, actor=0), self._encoding, envs)
        self.memory.append(self._chunker.chunks(rollout, 0, self._updates))
        return steps * envs

    def update(self, batch: int) -> Stats:  # noqa: ARG002 the steps are in the memory
        """The gradient steps that follow a rollout; none while too little is remembered."""
        while not self.is_whole and (sampled := self.sample(self.memory)) is not None:
            self.learn(sampled, self.memory)
        stats = self.finish()
        self._updates += 1
        return stats


def _priorities(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Errors that are not finite show nothing of their step: it counts as one without an error."""
    return np.where(np.isfinite(errors), errors, 0.0)


def _summary(learned: Sequence[Learned], rate: float) -> Stats:
    """The numbers of some gradient steps together; losses and norms are means."""
    norms = torch.stack([one.norm for one in learned])
    values, errors = (torch.cat([getattr(one, name) for one in learned]) for name in ("values", "errors"))
    layers = torch.stack([one.layers for one in learned])
    not_finite = (~torch.isfinite(norms)).sum()
    loss = torch.stack([one.loss for one in learned]).mean()
    return {
        **of_values(values, values + errors, errors),
        **of_gradients(norms, layers, torch.ones_like(norms)),
        "value_loss": loss,
        "total_loss": loss,
        "learning_rate": torch.full_like(loss, rate),
        "minibatches_skipped": not_finite,
        "minibatches_not_finite": not_finite,
    }
