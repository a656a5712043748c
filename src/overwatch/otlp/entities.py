"""Entities that report at an interval: those whose reports stop are no more.

Rules: an entity is over when three of its intervals passed without a report, by its producer's clock; it is
noticed when its run speaks again, since a run that says nothing at all is judged as a whole. Bounded, and
part of a checkpoint. Must not know messages.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from overwatch.events import Column, EnvsRemoved, Origin, Record

MAX_ENTITIES: Final = 1 << 16
"""Most entities of all runs that may be waited for; beyond it none is, until others end."""
INTERVALS: Final = 3
"""Reports that may be missing."""


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """One report of an env that promises another one."""

    origin: Origin
    env_id: int
    at: int
    """Producer's Unix nanoseconds."""
    interval_s: int
    """Seconds to the next report; 0 promises none."""


class Entity(msgspec.Struct):
    """What is known of one entity."""

    origin: Origin
    due: int
    """Producer's time at which it is over."""


class Entities(msgspec.Struct):
    """Envs that promised to report, by run."""

    runs: dict[str, dict[int, Entity]] = msgspec.field(default_factory=dict)
    size: int = 0

    @property
    def full(self) -> bool:
        """Whether there is room for no more."""
        return self.size >= MAX_ENTITIES

    def note(self, alive: Alive) -> None:
        """Take a report; a later one is never undone by an earlier one."""
        envs = self.runs.get(alive.origin.run_id, {})
        due = alive.at + INTERVALS * alive.interval_s * 1_000_000_000
        known = envs.get(alive.env_id)
        if not alive.interval_s:
            self.forget(alive.origin.run_id, (alive.env_id,))
        elif known is not None:
            known.due = max(known.due, due)
        elif not self.full:
            self.runs.setdefault(alive.origin.run_id, envs)[alive.env_id] = Entity(alive.origin, due)
            self.size += 1

    def forget(self, run_id: str, env_ids: Iterable[int]) -> None:
        """Wait for these no longer."""
        envs = self.runs.get(run_id, {})
        for env_id in env_ids:
            self.size -= envs.pop(env_id, None) is not None
        if not envs:
            self.runs.pop(run_id, None)

    def forget_run(self, run_id: str) -> None:
        """Wait for none of a run."""
        self.size -= len(self.runs.pop(run_id, {}))

    def expire(self, run_id: str, now: int) -> Iterator[Record]:
        """What ended in a run up to a producer's time, and is waited for no longer."""
        over = {env_id: one for env_id, one in self.runs.get(run_id, {}).items() if one.due < now}
        self.forget(run_id, over)
        for env_id, one in over.items():
            yield Record(origin=one.origin, event=EnvsRemoved(at=one.due, env_id=Column.of([env_id])))

    def follow(self, alive: Iterable[Alive], records: tuple[Record, ...]) -> tuple[Record, ...]:
        """Take what a request says; returns its records, and the ends that are due by then."""
        for report in alive:
            self.note(report)
        newest: dict[str, int] = {}
        for record in records:
            run_id, event = record.origin.run_id, record.event
            if run_id not in self.runs:
                continue
            newest[run_id] = max(newest.get(run_id, 0), event.at)
            if isinstance(event, EnvsRemoved) and not event.metrics:
                self.forget(run_id, event.env_id.array().tolist())
        ends = [end for run_id, now in newest.items() for end in self.expire(run_id, now)]
        return (*records, *ends)
