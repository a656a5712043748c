"""The past of one run: every number over the whole run, as the least and the most of each of a few columns.

Owns how a series stays bounded: a column stands for so many samples, and where all columns are taken each two
of them become one, so that they reach from the first sample to the newest at any length. Owns what is kept
of findings: when each began and cleared. Rules: a number beyond the cap is counted by its name and harms none
that is known; what was not finite is missing, never 0. Pure. Must not know limits, labels or who asks.
"""

import math
from array import array
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.catalog.goodhart import FOOD, GAP, POISON
from overwatch.catalog.gradients import ENTROPY_NATS
from overwatch.catalog.moves import KL_DRIFT, TRUST_REGION
from overwatch.catalog.policy import ENTROPY, GRAD_CLIPPED
from overwatch.events import Column, Conflated, Measured, Origin, Record
from overwatch.state.machines import Gauge
from overwatch.state.run import RunState
from overwatch.state.sources import LEARNS

COLUMNS: Final = 512
"""Most of a series; an even number."""
MOST: Final = {"number": 384, "rank": 96, "machine": 96}
"""Series of each kind: numbers of the policy and of services, those of ranks beside the one that leads, and
readings of lanes and hosts."""
RANKS: Final = 8
"""Ranks that have a past of their own: those below this."""
MAX_MARKS: Final = 256
"""Findings remembered, the newest."""
MAX_CUT: Final = 64
"""Names remembered of those that were cut."""
COLUMN_BYTES: Final = 32
SERIES_BYTES: Final = 1024
"""What a series takes beside its columns."""
MARK_BYTES: Final = 512
_MACHINE: Final = frozenset(
    {"utilization", "memory_used_bytes", "temperature_c", "power_w", "clock_hz", "cpu_utilization",
     "ram_used_bytes", "disk_used_bytes", "network_bytes_per_s", "queue_depth"}
)  # fmt: skip
_DERIVED: Final = tuple(
    row.name for row in (GRAD_CLIPPED, ENTROPY, ENTROPY_NATS, KL_DRIFT, TRUST_REGION, GAP, FOOD, POISON)
)
_NONE: Final = -1
"""Index of a column of which no number is known."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on the axis of time."""

    code: str
    severity: str
    scope: str
    subject: str | None
    since: int
    """Unix nanoseconds."""
    cleared_at: int | None = None
    message: str = ""


class _SavedSeries(msgspec.Struct, frozen=True):
    first_at: int
    per: int
    room: int
    samples: int
    blank: int
    columns: tuple[bytes, bytes, bytes, bytes]


class _Saved(msgspec.Struct, frozen=True):
    series: dict[str, _SavedSeries]
    cut: dict[str, int]
    marks: list[Mark]
    marks_left: int


class Line:
    """One number over the whole run: parallel arrays with an entry a column, the oldest first."""

    __slots__ = ("at", "blank", "first_at", "high", "index", "low", "per", "room", "samples")

    def __init__(self, first_at: int = 0) -> None:
        self.first_at = first_at
        """Time of the first sample, Unix nanoseconds."""
        self.per = 1
        """Samples in a full column."""
        self.room = 0
        """Samples that the newest column still takes."""
        self.samples = 0
        self.blank = 0
        """Samples that were not finite."""
        self.at: array[int] = array("q")
        """Time of the newest sample in the column; never falls."""
        self.index: array[int] = array("q")
        """Number of its update, -1 where none was given."""
        self.low: array[float] = array("d")
        """NaN where no sample was finite."""
        self.high: array[float] = array("d")

    def take(self, at: int, index: int | None, low: float, high: float) -> None:
        """Add one sample, or the least and most of several; NaN for what was not finite."""
        self.samples += 1
        self.blank += low != low  # noqa: PLR0124 (that is how NaN is known)
        number = _NONE if index is None or not 0 <= index < 1 << 62 else index
        if not self.room:
            if len(self.at) >= COLUMNS:
                self._halve()
            self.room = self.per
            at = max(at, self.at[-1]) if self.at else at
            for column, value in ((self.at, at), (self.index, number)):
                column.append(value)
            self.low.append(low)
            self.high.append(high)
        else:
            self.at[-1] = max(at, self.at[-1])
            self.index[-1] = number if number != _NONE else self.index[-1]
            self.low[-1] = _least(self.low[-1], low)
            self.high[-1] = -_least(-self.high[-1], -high)
        self.room -= 1

    def _halve(self) -> None:
        self.at, self.index = self.at[1::2], self.index[1::2]
        low, high = np.frombuffer(self.low).reshape(-1, 2), np.frombuffer(self.high).reshape(-1, 2)
        self.low = array("d", np.fmin(low[:, 0], low[:, 1]).tobytes())
        self.high = array("d", np.fmax(high[:, 0], high[:, 1]).tobytes())
        self.per *= 2

    def save(self) -> _SavedSeries:
        """As plain bytes."""
        columns = self.at.tobytes(), self.index.tobytes(), self.low.tobytes(), self.high.tobytes()
        return _SavedSeries(self.first_at, self.per, self.room, self.samples, self.blank, columns)

    @classmethod
    def of(cls, saved: _SavedSeries) -> "Line":
        """The line of `save`'s bytes. Raises `ValueError` where they are of no line."""
        line = cls(saved.first_at)
        line.per, line.room, line.samples, line.blank = saved.per, saved.room, saved.samples, saved.blank
        at, index, low, high = saved.columns
        for whole, data in ((line.at, at), (line.index, index)):
            whole.frombytes(data)
        for number, data in ((line.low, low), (line.high, high)):
            number.frombytes(data)
        lengths = {len(line.at), len(line.index), len(line.low), len(line.high)}
        if len(lengths) > 1 or max(lengths) > COLUMNS:
            raise ValueError(f"columns of a past have lengths {sorted(lengths)}; one of at most {COLUMNS}")
        return line


def _least(one: float, other: float) -> float:
    """The smaller; the one that is a number where the other is none."""
    return other if one != one or other < one else one  # noqa: PLR0124


class Past:
    """All numbers of one run over its whole length."""

    __slots__ = ("cut", "lines", "marks", "marks_left", "sizes")

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        """By full metric name; `name#3` for rank 3, `gpu/lane/short` and `host/short` for machines."""
        self.sizes = dict.fromkeys(MOST, 0)
        """How many there are of each kind."""
        self.cut: dict[str, int] = {}
        """Samples of numbers beyond a cap, by name; the first few names."""
        self.marks: dict[tuple[str, int], Mark] = {}
        """By the finding's id and begin, in the order of their begin."""
        self.marks_left = 0
        """Older ones that were let go."""

    @property
    def size(self) -> int:
        """What it takes in memory."""
        columns = sum(len(line.at) for line in self.lines.values())
        return COLUMN_BYTES * columns + SERIES_BYTES * len(self.lines) + MARK_BYTES * len(self.marks)

    def take(self, state: RunState, record: Record, stamp: int) -> None:
        """Add what a record, which was just folded into the state, told of numbers over time."""
        event = record.event
        if not isinstance(event, Measured):
            return
        match event.scope:
            case Scope.LEARNER | Scope.ACTOR | Scope.REPLAY | Scope.ORCHESTRATOR | Scope.ROLLOUTS:
                self._of_service(state, event, record.origin)
            case Scope.POLICY if record.origin.role not in LEARNS:
                pass
            case Scope.POLICY if record.origin.rank != state.ranks.leader:
                self._of_rank(event, record.origin.rank)
            case Scope.POLICY:
                self._numbers(state, event, stamp)
            case Scope.GPU:
                for lane_id in event.keys["gpu_id"].words():
                    lane = None if lane_id is None else state.lane_ids.name(lane_id)
                    if lane is not None:
                        self._gauges(f"gpu/{lane}/", state.lanes.get(lane, {}), event)
            case Scope.HOST:
                self._gauges("host/", state.host, event)
            case _:
                pass

    def mark(self, finding_id: str, mark: Mark) -> None:
        """Remember a finding, or what became of it."""
        key = finding_id, mark.since
        known = self.marks.get(key)
        if known is None and len(self.marks) >= MAX_MARKS:
            del self.marks[next(iter(self.marks))]
            self.marks_left += 1
        if known != mark:
            self.marks[key] = mark

    def add(self, name: str, at: int, value: tuple[float, float], index: int | None) -> None:
        """Add one sample's least and most to a number; a new one beyond the most of its kind is counted."""
        line = self.lines.get(name)
        if line is None:
            kind = kind_of(name)
            if self.sizes[kind] >= MOST[kind]:
                self._cut(name)
                return
            self.sizes[kind] += 1
            line = self.lines[name] = Line(at)
        line.take(at, index, *value)

    def _cut(self, name: str) -> None:
        if name in self.cut or len(self.cut) < MAX_CUT:
            self.cut[name] = self.cut.get(name, 0) + 1

    def _of_service(self, state: RunState, event: Measured, origin: Origin) -> None:
        """Gauges of the process that comes first of those that report them."""
        for name, column in event.values.items():
            first = state.services.first(name)
            if first is not None and len(column) and (first.role, first.rank) == (origin.role, origin.rank):
                value = column.first()
                value = value if math.isfinite(value) else math.nan
                self.add(name, event.at, (value, value), event.index)

    def _numbers(self, state: RunState, event: Measured, stamp: int) -> None:
        for name in dict.fromkeys((*event.values, *_DERIVED)):
            series = state.policy.get(name)
            if series is None or series.at != event.at or series.stamp != stamp:
                continue
            value = math.nan if series.value is None else series.value
            self.add(name, event.at, _ends(event.conflated, name, value), state.update)

    def _of_rank(self, event: Measured, rank: int) -> None:
        for name, column in event.values.items():
            if name in BY_NAME and len(column) and 0 <= rank < RANKS:
                value = column.first()
                ends = _ends(event.conflated, name, value if math.isfinite(value) else math.nan)
                self.add(f"{name}#{rank}", event.at, ends, event.index)

    def _gauges(self, prefix: str, gauges: dict[str, Gauge], event: Measured) -> None:
        for name in event.values:
            row = BY_NAME.get(name)
            gauge = None if row is None or row.short not in _MACHINE else gauges.get(row.short)
            if row is not None and gauge is not None and gauge.at == event.at:
                self.add(f"{prefix}{row.short}", event.at, (gauge.value, gauge.value), None)

    def dump(self) -> bytes:
        """All of it as bytes."""
        series = {name: line.save() for name, line in self.lines.items()}
        saved = _Saved(series, self.cut, list(self.marks.values()), self.marks_left)
        return msgspec.msgpack.encode(saved)

    @classmethod
    def load(cls, data: bytes) -> "Past":
        """The past of `dump`'s bytes, an empty one of none. Raises `ValueError` on anything else."""
        past = cls()
        if not data:
            return past
        saved = _saved(data)
        for name, series in saved.series.items():
            past.lines[name] = Line.of(series)
            past.sizes[kind_of(name)] += 1
        past.cut, past.marks_left = saved.cut, saved.marks_left
        for mark in saved.marks:
            past.marks[f"{mark.code}:{mark.scope}:{mark.subject or ''}", mark.since] = mark
        return past


def kind_of(name: str) -> str:
    """The kind of a series, of `MOST`."""
    if name.startswith(("gpu/", "host/")):
        return "machine"
    full, mark, rank = name.rpartition("#")
    return "rank" if mark and full in BY_NAME and rank.isdecimal() else "number"


_saved: Final = msgspec.msgpack.Decoder(_Saved).decode


def _ends(conflated: Conflated | None, name: str, value: float) -> tuple[float, float]:
    """The least and the most of the updates of a record, of which `value` is the last."""
    if conflated is None:
        return value, value
    found = [value, *_told((conflated.low, conflated.high), name)]
    finite = [one for one in found if math.isfinite(one)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def _told(tables: tuple[dict[str, Column], ...], name: str) -> Iterator[float]:
    for table in tables:
        column = table.get(name)
        if column is not None and len(column):
            yield column.first()
