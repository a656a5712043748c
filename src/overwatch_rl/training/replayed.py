"""Training from remembered steps: rollouts go into a table, gradient steps sample it.

Owns what happens between a rollout and the gradient steps after it, so that a trainer drives an algorithm of
sampled transitions as any other. Rules: a step is written once; errors become the priorities of the steps
that they are of, unless another step has the place by then. What is remembered is no part of a checkpoint: a
run that goes on fills its table first. Must not know where the table is.
"""

import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from overwatch.catalog import Scope
from overwatch.catalog.policy import GRAD_NORM
from overwatch.events import Event, NonFiniteSeen
from overwatch_rl.algorithms import diagnostics
from overwatch_rl.algorithms.base import Plan
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


class Memory(Protocol):
    """A table of steps, here or elsewhere."""

    def append(self, chunks: Sequence[Chunk]) -> None:
        """Remember them."""
        ...

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """Steps, with importance weights of that exponent; `None` until there are enough."""
        ...

    def update_priorities(
        self,
        slots: npt.NDArray[np.int64],
        generations: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
    ) -> int:
        """Set priorities; how many came too late."""
        ...


class Local:
    """A table of steps in this process."""

    def __init__(self, spec: WorldSpec, config: DQNConfig, seed: int) -> None:
        table = TableConfig(
            name=TABLE,
            kind="steps",
            selector="prioritised",
            remover="oldest",
            capacity=Capacity(items=config.capacity, bytes=1 << 62),
            rate=Rate(min_steps=config.first_at),
            priorities=Priorities(alpha=config.alpha),
            seed=seed,
        )
        self.replay = Replay([table])
        self._hash = self.replay.declare(TABLE, encoding_of(spec, has_mask=False))

    def append(self, chunks: Sequence[Chunk]) -> None:
        """Remember them; raises `ValueError` where the table cannot."""
        answer = self.replay.append(TABLE, self._hash, chunks)
        if not isinstance(answer, Taken):
            raise ValueError(f"steps were not remembered: {answer}")  # noqa: TRY004 an answer

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """Steps, with importance weights of that exponent; `None` until there are enough."""
        return self.replay.sample(TABLE, count, exponent)

    def update_priorities(
        self,
        slots: npt.NDArray[np.int64],
        generations: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
    ) -> int:
        """Set priorities; how many came too late."""
        return self.replay.update_priorities(TABLE, slots, generations, priorities)


class Replayed:
    """DQN behind a memory, as an algorithm whose batch is the number of steps that were remembered."""

    def __init__(self, spec: WorldSpec, dqn: DQN, memory: Memory) -> None:
        self.dqn, self.memory = dqn, memory
        self.plan = dqn.plan
        self._encoding = encoding_of(spec, has_mask=False)
        self._chunker: Chunker | None = None
        self._updates = 0

    @property
    def policy(self) -> torch.nn.Module:
        """The network that acts."""
        return self.dqn.policy

    def follow(self, plan: Plan) -> None:
        """Raises `ValueError` for any but the plain plan."""
        self.dqn.follow(plan)

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
        """The gradient steps that follow a rollout; no numbers while too little is remembered."""
        learned: list[Learned] = []
        for _ in range(self.dqn.config.gradient_steps):
            sampled = self.memory.sample(self.dqn.config.batch, self.dqn.beta)
            if sampled is None:
                break
            learned.append(self.dqn.update(self._transitions(sampled)))
            with sync_point("dqn.priorities"):
                errors = learned[-1].errors.abs().double().cpu().numpy()
            self.memory.update_priorities(sampled.slots, sampled.generations, _priorities(errors))
        self._updates += 1
        return _summary(learned, self.dqn.config.learning_rate) if learned else {}

    def events(self, index: int, values: dict[str, float], at_ns: int) -> list[Event]:  # noqa: ARG002 the contract's
        """Gradients that were not finite; takes their number out of `values`."""
        count = round(values.pop("minibatches_not_finite", 0.0))
        if not count:
            return []
        kind = "nan" if math.isnan(values["grad_norm"]) else "inf"
        return [NonFiniteSeen(at=at_ns, scope=Scope.POLICY, metric=GRAD_NORM.name, kind=kind, count=count)]

    def state_dict(self) -> dict[str, Tensor]:
        """As `DQN.state_dict`."""
        return self.dqn.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """As `DQN.load_state_dict`; what was remembered is gone."""
        self.dqn.load_state_dict(state)

    def acting_keys(self) -> frozenset[str]:
        """As `DQN.acting_keys`."""
        return self.dqn.acting_keys()

    def _transitions(self, sampled: Sampled) -> Transitions:
        def tensor(name: str) -> Tensor:
            return torch.from_numpy(sampled.columns[name]).to(self.dqn.device)

        return Transitions(
            observation=tensor("observation"),
            actions=tensor("action").squeeze(1),
            reward=tensor("reward"),
            next_observation=tensor("next_observation"),
            terminated=tensor("terminated"),
            weights=torch.from_numpy(sampled.weights).to(self.dqn.device),
        )


def _priorities(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Errors that are not finite say nothing of their step: it counts as one without an error."""
    return np.where(np.isfinite(errors), errors, 0.0)


def _summary(learned: Sequence[Learned], rate: float) -> Stats:
    """The numbers of some gradient steps together; losses and norms are means."""
    norms = torch.stack([one.norm for one in learned])
    values, errors = (torch.cat([getattr(one, name) for one in learned]) for name in ("values", "errors"))
    layers = torch.stack([one.layers for one in learned])
    not_finite = (~torch.isfinite(norms)).sum()
    loss = torch.stack([one.loss for one in learned]).mean()
    own = {
        "value_loss": loss,
        "total_loss": loss,
        "learning_rate": torch.full_like(loss, rate),
        "minibatches_skipped": not_finite,
        "minibatches_not_finite": not_finite,
    }
    return diagnostics.merged(
        [
            diagnostics.of_values(values, values + errors, errors),
            diagnostics.of_gradients(norms, layers, torch.ones_like(norms)),
            own,
        ]
    )
