"""Steps a world with a policy and keeps a rollout of it, and reports what happened meanwhile.

Rules: between two rollouts nothing is left behind but the running episodes, the draws and the observation;
nothing is read from the device. Must not know what learns from a rollout.

Shapes: T steps, N envs, P operations.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from torch import Tensor

from overwatch.events import PhaseEnded
from overwatch_rl.training.buffer import RolloutBuffer
from overwatch_rl.types import Decision, Observation, Reporter, Rolled, Rollout, Step
from overwatch_rl.worlds.base import World

_OWN: Final = ("actions", "rewards", "terminated", "truncated", "episode_return", "episode_length")
"""Columns of `Rolled` that have a field."""
OP_PROBS: Final = "op_probs"
"""The column of the probabilities of the operations, N P."""


class Actor(Protocol):
    """What chooses actions."""

    def act(self, observation: Observation, generator: torch.Generator | None) -> Decision:
        """Actions with their log-probabilities and values."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorConfig:
    """How much is collected at once, and by which draws."""

    steps: int
    """Steps of every env in one rollout."""
    seed: int
    """Same seed, same numbers."""


class Episodes:
    """Returns and lengths of the running episodes of N envs."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(num_envs, dtype=torch.int32, device=device)

    def add(self, rewards: Tensor, ended: Tensor) -> dict[str, Tensor]:
        """Count T steps; T N each: the sums since an episode began, the step included; ended: T N bool.

        A reward that is not a finite number makes the return of its own episode NaN, from that step on.
        """
        steps = torch.arange(1, len(rewards) + 1, device=rewards.device)[:, None]
        ends = torch.where(ended, steps, 0).cummax(dim=0).values
        # The number of the last step of the episode before, 0 where it had begun before the first.
        before = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        finite = rewards.isfinite()
        sums = rewards.double().where(finite, 0.0).cumsum(dim=0)
        returns = sums - torch.cat([-self.returns[None].nan_to_num(), sums]).gather(0, before)
        unknown = torch.cat([self.returns.isnan()[None], ~finite]).cumsum(dim=0)
        earlier = torch.where(before == 0, 0, unknown.gather(0, before))
        returns = returns.where(unknown[1:] == earlier, torch.nan)
        lengths = (steps - before + torch.where(before == 0, self.lengths, 0)).to(self.lengths.dtype)
        self.returns = torch.where(ended[-1], 0.0, returns[-1])
        self.lengths = torch.where(ended[-1], 0, lengths[-1])
        return {"episode_return": returns, "episode_length": lengths}


def _following(step: Step, decision: Decision) -> Observation:
    """What the policy sees next, with its memory; an episode begins without one."""
    if decision.memory is None:
        return step.observation
    ended = step.terminated | step.truncated
    return replace(step.observation, memory=torch.where(ended[:, None], 0.0, decision.memory))


class Collector:
    """T steps of the N envs of one world, again and again."""

    def __init__(
        self, world: World, actor: Actor, config: CollectorConfig, reporter: Reporter,
        stop: Callable[[], str | None],
    ) -> None:  # fmt: skip
        """`stop` is asked after each step: the outcome to end with, or `None` to go on."""
        self._world = world
        self._actor = actor
        self._config = config
        self._reporter = reporter
        self._stop = stop
        self.observation = world.reset(config.seed)
        """What the policy sees next."""
        features = self.observation.features
        self._device = features.device
        self._draws = None if features.is_meta else torch.Generator(self._device).manual_seed(config.seed + 1)
        self._buffer = RolloutBuffer(world.spec, config.steps, self._device)
        self.episodes = Episodes(len(features), self._device)
        self._sums: dict[str, Tensor] = {}
        """Of the newest rollout, `Episodes.add`."""
        self.shares: dict[str, float] = {}
        """Of the time of collecting, on a CPU: acting and stepping, of the newest whole rollout."""
        self.steps_done = 0

    def collect(self) -> str | None:
        """Fill a rollout, as the phase `collect`; the outcome when it was asked to stop on the way."""
        with self._reporter.phase("collect"):
            stopped, within = self._collect()
        for name, took in within:
            # After the phase that they are parts of: a trainer that stops in it stops in none of them.
            self._reporter.fact(PhaseEnded(at=time.time_ns(), phase=name, duration_s=took))
        return stopped

    def rollout(self) -> Rollout:
        """The newest, a view that holds until the next is collected; `ValueError` where it was cut off."""
        found = self._buffer.rollout(self.observation)
        return replace(found, columns={**found.columns, **self._sums})

    def rows(self) -> dict[str, Tensor]:
        """The columns of the newest rollout, which may be short, by name."""
        return self._buffer.rows() | self._sums

    def num_bytes(self) -> int:
        """What a rollout takes on the device."""
        return self._buffer.num_bytes()

    def state_dict(self) -> dict[str, Tensor]:
        """Running sums of episodes, what a recurrent policy remembers, the generator of draws; not copied."""
        own = {"returns": self.episodes.returns, "lengths": self.episodes.lengths}
        if self.observation.memory is not None:
            own["memory"] = self.observation.memory
        return own if self._draws is None else own | {"draws": self._draws.get_state()}

    def go_on(self, own: Mapping[str, Tensor], world: dict[str, Tensor], *, steps: int, updates: int) -> None:
        """Become as it was when `own` and `world` were taken, after that many steps and updates.

        Without the world's state it goes on in new episodes; without the generator's, with draws of its own.
        """
        self.steps_done = steps
        if self._draws is not None:
            if "draws" in own:
                self._draws.set_state(own["draws"].cpu())
            else:
                self._draws.manual_seed(self._config.seed + updates + 1)
        if not world:
            self.observation = self._world.reset(self._config.seed + updates)
            return
        memory = own.get("memory")
        seen = self._world.load_state_dict(world)
        self.observation = replace(seen, memory=None if memory is None else memory.to(self._device))
        self.episodes.returns.copy_(own["returns"])
        self.episodes.lengths.copy_(own["lengths"])

    @torch.no_grad()
    def _collect(self) -> tuple[str | None, tuple[tuple[str, float], ...]]:
        """The outcome, and the seconds of what is measured within collecting."""
        self._buffer.clear()
        at_first = 0.0
        acting_s = stepping_s = all_s = 0.0
        for _ in range(self._config.steps):
            began = time.perf_counter()
            seen = self.observation
            decision = self._actor.act(seen, self._draws)
            acted = time.perf_counter()
            step = self._world.step(decision.actions)
            stepped = time.perf_counter()
            beside = {} if decision.choices is None else {OP_PROBS: decision.choices}
            self._buffer.store(seen, decision, step, beside)
            self.observation = _following(step, decision)
            self.steps_done += 1
            took = time.perf_counter() - began
            self._reporter.beat(self.steps_done, took)
            for fact in step.facts:
                self._reporter.fact(fact)
            acting_s, stepping_s, all_s = acting_s + acted - began, stepping_s + stepped - acted, all_s + took
            at_first = at_first or time.time()
            stopped = self._stop()
            if stopped is not None:
                self._roll(at_first)
                return stopped, ()
        self._roll(at_first)
        if self._device.type != "cpu":
            # The host only sends the work off, and its clock measures that.
            return None, ()
        self.shares = {"inference_share": acting_s / all_s, "env_step_share": stepping_s / all_s}
        return None, (("inference", acting_s), ("env_wait", stepping_s))

    def _roll(self, at_first: float) -> None:
        rows = self._buffer.rows()
        self._sums = self.episodes.add(rows["rewards"], rows["terminated"] | rows["truncated"])
        rows |= self._sums
        self._reporter.rollout(
            Rolled(
                first_step=self.steps_done - len(rows["rewards"]) + 1,
                at_first=at_first,
                at_last=time.time(),
                actions=rows["actions"],
                rewards=rows["rewards"],
                terminated=rows["terminated"],
                truncated=rows["truncated"],
                episode_return=rows["episode_return"],
                episode_length=rows["episode_length"],
                columns={name: column for name, column in rows.items() if name not in _OWN},
                seen=self.observation.features[0],
            )
        )
