"""A scripted run, moment by moment: the same settings give the same events, to the bit.

Owns the run's timeline: env steps at their rate, readings and updates once a second, its start and its end.
The producer is one trainer (rank 0) that drives all lanes. Must not know how events travel, nor the time.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import Stage
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    Column,
    CurriculumChanged,
    Event,
    MetricInfo,
    RunFinished,
    RunStarted,
)
from overwatch.simulate.faults import Conditions, conditions_at
from overwatch.simulate.fleet import Fleet
from overwatch.simulate.machines import Machines
from overwatch.simulate.policy import Policy
from overwatch.simulate.seeds import BLUEPRINTS, WAYS, Seeds, words
from overwatch.simulate.settings import SECOND, Dice, Settings

TASK: Final = "morphogenesis"
ALGO: Final = "ppo"
KILLED: Final = "trainer killed by signal 9 (SIGKILL)"
KEYFRAME_S: Final = 30
"""Seconds between two full accounts of all slots."""
OPS: Final = ("WAIT", "SET_ALPHA", "GERMINATE", "ADVANCE", "FOSSILIZE", "PRUNE")


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent at one moment."""

    at: int
    """Unix nanoseconds."""
    events: tuple[Event, ...]


class Script:
    """One run. `moments` may be walked once."""

    def __init__(self, settings: Settings, start_ns: int) -> None:
        self.settings = settings
        self._start_ns = start_ns
        self._fleet = Fleet(settings)
        self._seeds = Seeds(settings)
        self._policy = Policy(settings)
        self._machines = Machines(settings)
        self._dice = Dice(settings.seed, 5)
        self._due = 0.0
        """Steps that should have been taken and were not, whole and broken ones."""
        self._taken = 0

    def moments(self) -> Iterator[Moment]:
        """Everything that is sent, in order; ends early where the producer goes silent."""
        seconds = ((second * SECOND, 0, second) for second in range(self.settings.seconds + 1))
        steps = ((self.settings.step_ns(step), 1, step) for step in range(self.settings.steps + 1))
        level = Conditions().level
        for offset, ticks in groupby(merge(seconds, steps), key=lambda tick: tick[0]):
            now = conditions_at(offset / SECOND, self.settings.faults)
            if now.silent:
                return
            at = self._start_ns + offset
            events = [self._started(at)] if offset == 0 else []
            if now.level != level:
                events.append(_level_changed(at, level, now.level))
                level = now.level
            if now.failed or now.killed:
                end = ("failed", "CUDA out of memory") if now.failed else ("lost", KILLED)
                yield Moment(at=at, events=(self.finished(at, *end),))
                return
            for _, kind, number in ticks:
                events += self._step(at, now) if kind else self._second(number, at, now)
            if offset == self.settings.seconds * SECOND:
                events.append(self.finished(at, "completed"))
            yield Moment(at=at, events=tuple(events))

    @staticmethod
    def finished(at: int, outcome: str, reason: str | None = None) -> Event:
        """The last event of a run."""
        return RunFinished(at=at, outcome=outcome, reason=reason)

    def _started(self, at: int) -> Event:
        settings = self.settings
        return RunStarted(
            at=at, task=TASK, algo=ALGO, reward_mode="shaped", n_envs=settings.n_envs, devices=settings.lanes,
            slots=settings.slot_names, embargo=_embargo(settings),
            blueprints=BLUEPRINTS if settings.slots else {},
            metric=MetricInfo(name="acc"), updates=settings.seconds, node="simulated", amp="bf16",
            compile=True, ddp=settings.gpus if settings.gpus > 1 else None,
            config={"seed": str(settings.seed), "rate_hz": f"{settings.rate_hz:g}"},
        )  # fmt: skip

    def _second(self, second: int, at: int, now: Conditions) -> list[Event]:
        events = self._machines.advance(at, now)
        if now.stuck:
            return events
        step = second * self.settings.steps // self.settings.seconds
        events += self._seeds.measured(step, at, whole=second % KEYFRAME_S == 0)
        if second:
            events += self._policy.advance(second, at, now, self._fleet.take_return())
        if _saves(second, now):
            path = f"checkpoints/update-{second:06d}"
            events.append(CheckpointSaved(at=at, path=path, update=second))
        return events

    def _step(self, at: int, now: Conditions) -> list[Event]:
        """One step, unless the run does not get to it."""
        self._due += 0.0 if now.stuck else now.pace
        if self._due < 1:
            return []
        self._due -= 1
        step, self._taken = self._taken, self._taken + 1
        events = self._fleet.advance(step, at, now, self._seeds.paying())
        events += self._seeds.advance(step, at, self._fleet.alive, now)
        events += self._seeds.start_afresh(self._fleet.ended, step, at)
        if self.settings.slots and self._fleet.alive.any():
            events.append(self._acted(step, at, now))
        return events

    def _acted(self, step: int, at: int, now: Conditions) -> Event:
        """What the policy did: mostly waiting, and whatever moved a seed."""
        n, slots = self._fleet.alive.size, self.settings.slots
        op = np.where(self._dice.uniform(n) < 0.06, OPS.index("SET_ALPHA"), OPS.index("WAIT"))
        slot = np.where(op == OPS.index("WAIT"), -1, (self._dice.uniform(n) * slots).astype(np.int64))
        blueprint = np.full(n, -1, dtype=np.int64)
        for env, (word, of_slot, code) in self._seeds.ops.items():
            op[env], slot[env], blueprint[env] = OPS.index(word), of_slot, code
        if now.ailment == "actions":
            op[-1], slot[-1], blueprint[-1] = OPS.index("SET_ALPHA"), 0, -1
        ids = np.flatnonzero(self._fleet.alive)
        return ActionTaken(
            at=at,
            env_id=Column.of(ids.astype(np.int32)),
            op=words(op[ids], OPS),
            slot=words(slot[ids], self.settings.slot_names),
            blueprint=words(blueprint[ids], tuple(BLUEPRINTS)),
            step=step,
        )


def _saves(second: int, now: Conditions) -> bool:
    """Whether a checkpoint is saved: by a schedule, or at powers of two where only the best are."""
    match now.saving:
        case "all":
            return second > 0 and second % KEYFRAME_S == 0
        case "best":
            return second > 0 and second & (second - 1) == 0
    return False


def _level_changed(at: int, before: int, after: int) -> Event:
    return CurriculumChanged(at=at, name="level", before=str(before), after=str(after))


def _embargo(settings: Settings) -> int | None:
    """Steps for which a slot stays embargoed; none without slots."""
    return settings.steps_in(WAYS[Stage.EMBARGOED].seconds[0]) if settings.slots else None
