"""The training loop, as its phases: collect, estimate, update, report.

Rules: every number of an update is made here, in the world or in the algorithm and handed to one reporter;
nothing is measured twice. Between the first and the last update nothing is read from the device but at named
sync points. Ends between two steps when it is asked to stop. Must not know where numbers go, how worlds or
algorithms work inside, or who started it.

Shapes: T steps, N envs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from overwatch.events import PhaseEnded
from overwatch_rl.algorithms import diagnostics
from overwatch_rl.algorithms.base import Algorithm
from overwatch_rl.training.buffer import RolloutBuffer
from overwatch_rl.training.delivery import Delivered, Delivery
from overwatch_rl.types import Factored, Reporter, Rolled, Stats, Step
from overwatch_rl.worlds.base import World

B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """How long and how to train."""

    updates: int | None = 30
    """Updates to do; `None` until it is asked to stop."""
    steps: int = 60
    """Steps of every env in one rollout."""
    seed: int = 0
    """Same seed, same numbers."""

    def __post_init__(self) -> None:
        if self.updates is not None and self.updates < 1:
            raise ValueError(f"updates is {self.updates}; use 1 or more")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; use 1 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; use 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a training is; tensors are not copied."""

    updates: int
    steps: int
    score: float | None
    """Mean return of the newest update whose numbers have come; `None` where no episode ended in it."""
    own: dict[str, Tensor]
    """Running sums of episodes and the generator of draws."""
    algorithm: dict[str, Tensor]
    world: dict[str, Tensor]
    """Empty where the world is not resumable."""


class Episodes:
    """Returns and lengths of the running episodes of N envs."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(num_envs, dtype=torch.int32, device=device)

    def add(self, step: Step) -> dict[str, Tensor]:
        """Count one step; N each: the sums since the episode began, this step included."""
        returns = self.returns + step.reward
        lengths = self.lengths + 1
        ended = step.terminated | step.truncated
        self.returns = torch.where(ended, 0.0, returns)
        self.lengths = torch.where(ended, 0, lengths)
        return {"episode_return": returns, "episode_length": lengths}


class Trainer(Generic[B]):
    """One algorithm, one world, one reporter."""

    def __init__(
        self,
        world: World,
        algorithm: Algorithm[B],
        config: TrainerConfig,
        reporter: Reporter,
        stop: Callable[[], str | None],
    ) -> None:
        """`stop` is asked after each step: the outcome to end with, or `None` to go on."""
        self._world = world
        self.algorithm = algorithm
        self._config = config
        self._reporter = reporter
        self._stop = stop
        self._observation = world.reset(config.seed)
        features = self._observation.features
        self._device = features.device
        self._draws = None if features.is_meta else torch.Generator(self._device).manual_seed(config.seed + 1)
        self._buffer = RolloutBuffer(world.spec, config.steps, len(features), self._device)
        self._episodes = Episodes(len(features), self._device)
        self._delivery = Delivery()
        self._shares: dict[str, float] = {}
        self._within: tuple[tuple[str, float], ...] = ()
        """Seconds of what is measured within collecting, of the newest whole rollout."""
        self.steps_done = 0
        self.updates_done = 0
        self._score: float | None = None
        self._warm: dict[str, float] = {}
        self.warm_up: Callable[[B], dict[str, float]] = lambda _: {}
        """Called with the batch of the first update before it; the numbers that it gives go out with each."""
        self.host_numbers: Callable[[], dict[str, float]] = dict
        """Asked after each update for numbers that are known on the host; they go out with it."""
        self.after_update: Callable[[], None] = lambda: None
        """Called between an update and the next rollout."""

    def run(self) -> str:
        """Train until the updates are done or it is asked to stop; the outcome in one word."""
        outcome = "completed"
        while self._config.updates is None or self.updates_done < self._config.updates:
            began = time.perf_counter()
            with self._reporter.phase("collect"):
                stopped = self._collect()
            for name, took in self._within:
                # After the phase that they are parts of: a trainer that stops in it stops in none of them.
                self._reporter.fact(PhaseEnded(at=time.time_ns(), phase=name, duration_s=took))
            if stopped is not None:
                outcome = stopped
                break
            with self._reporter.phase("estimate"):
                rollout = self._buffer.rollout(self._observation)
                batch = self.algorithm.prepare(rollout)
            if self.updates_done == 0:
                with self._reporter.phase("warm-up"):
                    self._warm = self.warm_up(batch)
            with self._reporter.phase("update"):
                stats = self.algorithm.update(batch)
            with self._reporter.phase("log"):
                self._report(stats, time.perf_counter() - began)
            self.after_update()
        for delivered in self._delivery.rest():
            self._deliver(delivered)
        return outcome

    def position(self) -> Position:
        """All that the next rollout depends on."""
        own = {"returns": self._episodes.returns, "lengths": self._episodes.lengths}
        if self._draws is not None:
            own["draws"] = self._draws.get_state()
        return Position(
            updates=self.updates_done,
            steps=self.steps_done,
            score=self._score,
            own=own,
            algorithm=self.algorithm.state_dict(),
            world=self._world.state_dict() if self._world.spec.resumable else {},
        )

    def memory(self) -> dict[str, int]:
        """Bytes of each part; that of a world that cannot be kept is not known, and left out."""
        position = self.position()
        parts = {"policy": 0, "optimizer": 0, "buffers": self._buffer.num_bytes()}
        for name, value in position.algorithm.items():
            part = name.partition(".")[0]
            parts[part] = parts.get(part, 0) + value.nbytes
        if position.world:
            parts["world"] = sum(value.nbytes for value in position.world.values())
        return parts

    def go_on(self, position: Position) -> None:
        """Become as it was at `position`.

        Without the world's state it goes on in new episodes; without the generator's, with draws of its own.

        Raises `ValueError` when it is of another algorithm or world.
        """
        self.updates_done, self.steps_done, self._score = position.updates, position.steps, position.score
        self.algorithm.load_state_dict(position.algorithm)
        if self._draws is not None:
            if "draws" in position.own:
                self._draws.set_state(position.own["draws"].cpu())
            else:
                self._draws.manual_seed(self._config.seed + position.updates + 1)
        if not position.world:
            self._observation = self._world.reset(self._config.seed + position.updates)
            return
        self._observation = self._world.load_state_dict(position.world)
        self._episodes.returns.copy_(position.own["returns"])
        self._episodes.lengths.copy_(position.own["lengths"])

    @torch.no_grad()
    def _collect(self) -> str | None:
        """Fill the buffer; the outcome when it was asked to stop on the way."""
        self._buffer.clear()
        self._within = ()
        at_first = 0.0
        acting_s = stepping_s = all_s = 0.0
        for _ in range(self._config.steps):
            began = time.perf_counter()
            seen = self._observation
            decision = self.algorithm.act(seen, self._draws)
            acted = time.perf_counter()
            step = self._world.step(decision.actions)
            stepped = time.perf_counter()
            self._buffer.store(seen, decision, step, self._episodes.add(step))
            self._observation = step.observation
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
                return stopped
        self._roll(at_first)
        if self._device.type == "cpu":
            # Elsewhere the host only sends the work off, and its clock measures that.
            self._shares = {"inference_share": acting_s / all_s, "env_step_share": stepping_s / all_s}
            self._within = (("inference", acting_s), ("env_wait", stepping_s))
        return None

    def _roll(self, at_first: float) -> None:
        rows = self._buffer.rows()
        names = ("actions", "rewards", "terminated", "truncated", "episode_return", "episode_length")
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
                columns={name: column for name, column in rows.items() if name not in names},
                seen=self._observation.features[0],
            )
        )

    @torch.no_grad()
    def _report(self, stats: Stats, update_time_s: float) -> None:
        self.updates_done += 1
        rows = self._buffer.rows()
        ended = rows["terminated"] | rows["truncated"]
        parts = [stats, diagnostics.of_episodes(rows["episode_return"], ended, rows["truncated"])]
        if self._world.spec.summary is not None:
            parts.append(self._world.spec.summary(rows, ended))
        action = self._world.spec.action
        if isinstance(action, Factored):
            parts.append(diagnostics.of_actions(rows["actions"][..., 0], action.heads[0].labels))
        host = {"update_time": update_time_s} | self._shares | self._warm | self.host_numbers()
        self._delivery.send(self.updates_done, diagnostics.merged(parts), host)
        for delivered in self._delivery.arrived():
            self._deliver(delivered)

    def _deliver(self, delivered: Delivered) -> None:
        """Report the numbers of an update that have come, and what they show to have happened."""
        values = dict(delivered.values)
        for event in self.algorithm.events(delivered.index, values, time.time_ns()):
            self._reporter.fact(event)
        score = values.get("return", math.nan)
        self._score = score if math.isfinite(score) else None
        self._reporter.update(delivered.index, values)
