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
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from overwatch.events import PhaseEnded
from overwatch_rl.algorithms.common import Algorithm
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.training import diagnostics
from overwatch_rl.training.collector import Collector, CollectorConfig
from overwatch_rl.training.delivery import Delivered, Delivery
from overwatch_rl.training.events import events_of
from overwatch_rl.types import Factored, Reporter, Stats
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
    version: Version | None = None
    """Of the weights, where it is not its lineage and the updates."""
    cursor: dict[str, Any] | None = None
    """How far experience that others made was consumed; `None` of a training that makes its own."""


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
        collected = CollectorConfig(steps=config.steps, seed=config.seed)
        self.collector = Collector(world, algorithm, collected, reporter, stop)
        self._delivery = Delivery()
        self.updates_done = 0
        self._score: float | None = None
        self._warm: dict[str, float] = {}
        self.warm_up: Callable[[B], dict[str, float]] = lambda _: {}
        """Called with the batch of the first update before it; the numbers that it gives go out with each."""
        self.host_numbers: Callable[[], dict[str, float]] = dict
        """Asked after each update for numbers that are known on the host; they go out with it."""
        self.waited_s: Callable[[], float] | None = None
        """Asked after each update for the seconds that it waited for other ranks; `None` without others."""
        self.after_update: Callable[[], None] = lambda: None
        """Called between an update and the next rollout."""

    def run(self) -> str:
        """Train until the updates are done or it is asked to stop; the outcome in one word."""
        outcome = "completed"
        while self._config.updates is None or self.updates_done < self._config.updates:
            began = time.perf_counter()
            stopped = self.collector.collect()
            if stopped is not None:
                outcome = stopped
                break
            with self._reporter.phase("prepare"):
                rollout = self.collector.rollout()
            with self._reporter.phase("estimate"):
                batch = self.algorithm.prepare(rollout)
            if self.updates_done == 0:
                with self._reporter.phase("warm-up"):
                    self._warm = self.warm_up(batch)
            with self._reporter.phase("update"):
                stats = self.algorithm.update(batch)
            if self.waited_s is not None:
                # Within collecting and updating: that of a phase is not known before both have ended.
                self._reporter.fact(PhaseEnded(at=time.time_ns(), phase="sync", duration_s=self.waited_s()))
            with self._reporter.phase("log"):
                self._send(stats, time.perf_counter() - began)
            # After the phase: a turn of the loop ends with the report of its update.
            for delivered in self._delivery.arrived():
                self._deliver(delivered)
            self.after_update()
        for delivered in self._delivery.rest():
            self._deliver(delivered)
        return outcome

    def position(self) -> Position:
        """All that the next rollout depends on."""
        return Position(
            updates=self.updates_done,
            steps=self.collector.steps_done,
            score=self._score,
            own=self.collector.state_dict(),
            algorithm=self.algorithm.state_dict(),
            world=self._world.state_dict() if self._world.spec.resumable else {},
        )

    def memory(self) -> dict[str, int]:
        """Bytes of each part; that of a world that cannot be kept is not known, and left out."""
        position = self.position()
        parts = {"policy": 0, "optimizer": 0, "buffers": self.collector.num_bytes()}
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
        self.updates_done, self._score = position.updates, position.score
        self.algorithm.load_state_dict(position.algorithm)
        self.collector.go_on(position.own, position.world, steps=position.steps, updates=position.updates)

    @torch.no_grad()
    def _send(self, stats: Stats, update_time_s: float) -> None:
        self.updates_done += 1
        rows = self.collector.rows()
        ended = rows["terminated"] | rows["truncated"]
        stats = stats | diagnostics.of_episodes(rows["episode_return"], ended, rows["truncated"])
        stats["rewards_not_finite"] = (~rows["rewards"].isfinite()).sum()
        if self._world.spec.summary is not None:
            stats |= self._world.spec.summary(rows, ended)
        action = self._world.spec.action
        if isinstance(action, Factored):
            stats |= diagnostics.of_actions(rows["actions"][..., 0], action.heads[0].labels)
        host = {"update_time": update_time_s} | self.collector.shares | self._warm | self.host_numbers()
        self._delivery.send(self.updates_done, stats, host)

    def _deliver(self, delivered: Delivered) -> None:
        """Report the numbers of an update that have come, and what they show to have happened."""
        values = dict(delivered.values)
        for event in events_of(self.algorithm.config, delivered.index, values, time.time_ns()):
            self._reporter.fact(event)
        score = values.get("return", math.nan)
        self._score = score if math.isfinite(score) else None
        self._reporter.update(delivered.index, values)
