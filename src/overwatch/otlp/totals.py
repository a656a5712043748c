"""Series and entities of foreign producers over time: totals, restarts, second writers, and what ended.

Rules, of OTLP's data model: a point that comes again, or is older than what is known, counts nothing; a gap
or an overlap between two changes begins the total anew; of two writers of one series the one that began last
is believed. Of entities that report at an interval: one is over when three of its intervals passed without a
report, by its producer's clock; it is noticed when its run sends again, since a run that sends nothing at all
is judged as a whole. Bounded, and part of a checkpoint. Must not know names, subjects or messages.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from overwatch.events import Column, EnvsRemoved, Origin, Record, TallySeries
from overwatch.otlp.distribution import Distribution

MAX_SERIES: Final = 1 << 16
"""Most series of all runs together."""
MAX_ENTITIES: Final = 1 << 16
"""Most entities of all runs that may be waited for; beyond it none is, until others end."""
INTERVALS: Final = 3
"""Reports that may be missing."""
_LARGEST: Final = 1e300
SLACK_NS: Final = 1_000_000
"""Two windows that miss each other by less belong together: some producers keep milliseconds."""


class Step(Enum):
    """What a point is to its series."""

    BEGAN = "began"
    WENT_ON = "went_on"
    RESET = "reset"
    """The producer began again, or points between were lost."""
    OVERLAPPED = "overlapped"
    """Another writer sends the same series."""
    LATE = "late"
    """It came twice, or after a newer one: it counts nothing."""
    NO_ROOM = "no_room"
    """The series is one too many."""


class Position(NamedTuple):
    """Where a point belongs, and when it was."""

    run_id: str
    group: str
    """Series that add up to one value: those of one producer, metric and subject."""
    part: str
    """Which series of the group."""
    start: int
    """Unix nanoseconds from which it counts; 0 where the producer does not send it."""
    at: int


class Moved(NamedTuple):
    """What became of a point."""

    step: Step
    value: float | None = None
    """The group's total; `None` where the point counts nothing."""
    first: bool = False
    """Whether it is the first time that two producers send this series."""


class Spread(NamedTuple):
    """What became of a distribution."""

    step: Step
    newest: Distribution | None = None
    """What was observed since the point before; `None` where the point counts nothing."""
    first: bool = False


class Series(msgspec.Struct):
    """The newest point of one series."""

    start: int
    at: int
    since: int = 0
    """Where the newest window of changes began."""
    value: float = 0.0
    whole: Distribution | None = None
    """Everything since `start`, of a distribution that is sent as totals."""
    disputed: bool = False
    """Whether two writers were seen."""


class Group(msgspec.Struct):
    """Series that add up."""

    total: float = 0.0
    series: dict[str, Series] = msgspec.field(default_factory=dict)
    at: int = 0
    """Of totals the newest moment. Where they may fall, `total` is what was sent of it alone."""
    odd: int = 0
    """Parts that are no part of `total`, as nothing can be added to them."""
    tally: TallySeries | None = None
    """Everything that was counted, over all lives and gaps; of what is counted by labels."""

    def plus(self, position: Position, value: float, before: Series | None, *, rises: bool) -> float:
        """The total with a newer value of one part, whose series was `before`.

        What can only rise is still there where it is not sent anew; of all else what is not sent is gone.
        """
        if not rises and position.at < self.at:
            return value
        if not rises and position.at > self.at:
            self.total, self.odd = 0.0, 0
        self.at = max(self.at, position.at)
        if before is not None and (rises or before.at == position.at):
            self._take(before.value, -1)
        self._take(value, 1)
        if not self.odd:
            return self.total
        return math.nan if _adds_up(value) else value

    def _take(self, value: float, times: int) -> None:
        if _adds_up(value):
            self.total += times * value
        else:
            self.odd += times


def _adds_up(value: float) -> bool:
    """Whether as many values as there may be have a sum that each can be taken off again."""
    return abs(value) <= _LARGEST


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
        """Take what a request reports; returns its records, and the ends that are due by then."""
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


class Totals(msgspec.Struct):
    """What requests sent before: all series by run, and who reports; `Totals()` knows nothing."""

    runs: dict[str, dict[str, Group]] = msgspec.field(default_factory=dict)
    size: int = 0
    """Series of all runs."""
    label_sets: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """How many each counter and histogram with labels has, by run, then by who counts what."""
    entities: Entities = msgspec.field(default_factory=Entities)
    """What reports at an interval."""

    @property
    def full(self) -> bool:
        """Whether there is room for no more."""
        return self.size >= MAX_SERIES or self.entities.full

    def add(self, position: Position, change: float) -> Moved:
        """Add a change up; the value is the total since its series began."""
        group, series, step = self._place(position, changes=True)
        if group is None or series is None:
            return Moved(step, None, series is not None and _dispute(series, step))
        if step is Step.WENT_ON:
            group.total += change
            series.value += change
        else:
            group.total += change - series.value
            series.value = change
        return Moved(step, group.total, _go_on(series, position, step))

    def watch(self, position: Position, total: float, *, rises: bool) -> Moved:
        """Take a total as its producer sends it; `rises` where it can never be less than before.

        The value is that of all parts.
        """
        group, series, step = self._place(position, changes=False)
        if step is Step.NO_ROOM:
            return Moved(Step.BEGAN, total)  # A series that is not watched is believed.
        if group is None or series is None:
            return Moved(step, None, series is not None and _dispute(series, step))
        if step is Step.WENT_ON and rises and total < series.value:
            step = Step.RESET
        whole = group.plus(position, total, None if step is Step.BEGAN else series, rises=rises)
        series.value = total
        return Moved(step, whole, _go_on(series, position, step))

    def observe(self, position: Position, point: Distribution, *, changes: bool) -> Spread:
        """What a distribution reports anew; `changes` where each point holds only what is new."""
        group, series, step = self._place(position, changes=changes)
        if group is None or series is None:
            return Spread(step, None, series is not None and _dispute(series, step))
        newest = point.minus(series.whole) if step is Step.WENT_ON and series.whole else None
        if step is Step.WENT_ON and not changes and newest is None:
            step = Step.RESET
        series.whole = None if changes else point
        return Spread(step, newest or point, _go_on(series, position, step))

    def rise(self, position: Position, value: float, *, changes: bool) -> Moved:
        """How much a rising sum has risen since the point before; a gap or a restart takes none off."""
        group, series, step = self._place(position, changes=changes)
        if group is None or series is None:
            return Moved(step, None, series is not None and _dispute(series, step))
        if step is Step.WENT_ON and not changes and value < series.value:
            step = Step.RESET
        risen = value if changes or step is not Step.WENT_ON else value - series.value
        series.value = value
        return Moved(step, risen, _go_on(series, position, step))

    def counted(self, position: Position) -> Group:
        """The group of a point that counts."""
        return self.runs[position.run_id][position.group]

    def has(self, position: Position) -> bool:
        """Whether the group of a point is known."""
        return position.group in self.runs.get(position.run_id, {})

    def keep(self, runs: Collection[str]) -> None:
        """Forget the series of all other runs."""
        for run_id in {*self.runs, *self.entities.runs} - set(runs):
            self.forget(run_id)

    def forget(self, run_id: str) -> None:
        """Forget the series of a run."""
        self.entities.forget_run(run_id)
        self.label_sets.pop(run_id, None)
        gone = self.runs.pop(run_id, {})
        self.size -= sum(len(group.series) for group in gone.values())

    def _place(self, position: Position, *, changes: bool) -> tuple[Group | None, Series | None, Step]:
        """The group and the series of a point, and what it is to them; no group where it counts nothing."""
        group = self.runs.get(position.run_id, {}).get(position.group)
        series = None if group is None else group.series.get(position.part)
        if series is not None:
            step, is_old = _step(series, position, changes=changes)
            return None if is_old else group, series, step
        if self.size >= MAX_SERIES:
            return None, None, Step.NO_ROOM
        self.size += 1
        if group is None:
            group = self.runs.setdefault(position.run_id, {}).setdefault(position.group, Group())
        series = group.series[position.part] = Series(
            start=position.start, at=position.at, since=position.start
        )
        return group, series, Step.BEGAN


def _step(series: Series, position: Position, *, changes: bool) -> tuple[Step, bool]:
    """What a point is to its series, and whether it is older than what is known."""
    step = _step_of_change(series, position) if changes else _step_of_total(series, position)
    overlaps = position.at <= series.at if changes else position.start < series.start
    return step, step is Step.LATE or (step is Step.OVERLAPPED and overlaps)


def _step_of_change(series: Series, position: Position) -> Step:
    if position.at <= series.at:
        # No window of one writer ends within another one of it.
        within = series.since and series.since + SLACK_NS < position.at < series.at - SLACK_NS
        return Step.OVERLAPPED if within else Step.LATE
    if position.start and position.start + SLACK_NS < series.start:
        return Step.LATE
    if not position.start or abs(position.start - series.at) <= SLACK_NS:
        return Step.WENT_ON
    return Step.RESET if position.start > series.at else Step.OVERLAPPED


def _step_of_total(series: Series, position: Position) -> Step:
    if not position.start or not series.start or position.start == series.start:
        return Step.WENT_ON if position.at > series.at else Step.LATE
    if position.start > series.start:
        # One that began before the other's last word is a second writer, not its successor.
        return Step.RESET if position.start >= series.at else Step.OVERLAPPED
    return Step.OVERLAPPED if position.at > series.at else Step.LATE


def _go_on(series: Series, position: Position, step: Step) -> bool:
    """Note a point that counts; whether it is the first that shows a second writer."""
    if step is Step.BEGAN:
        return False
    series.since, series.at = position.start or series.at, position.at
    if step is not Step.WENT_ON:
        series.start = position.start
    return _dispute(series, step)


def _dispute(series: Series, step: Step) -> bool:
    first = step is Step.OVERLAPPED and not series.disputed
    series.disputed = series.disputed or first
    return first
