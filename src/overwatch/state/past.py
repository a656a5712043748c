"""The past of one run: every number over the whole run, as the least and the most of each of a few columns.

Owns how a series stays bounded: a column stands for so many samples, and where all columns are taken each two
of them become one, so that they reach from the first sample to the newest at any length. Owns what is kept
of findings: when each began and cleared. Rules: a number beyond the cap is counted by its name and harms none
that is known; what was not finite is missing, never 0. Pure. Must not know limits, labels or who asks.
"""

import math
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.catalog.goodhart import FOOD, GAP, POISON
from overwatch.catalog.gradients import ENTROPY_NATS
from overwatch.catalog.moves import KL_DRIFT, TRUST_REGION
from overwatch.catalog.policy import ENTROPY, GRAD_CLIPPED
from overwatch.events import Column, Conflated, Measured, Origin, Record
from overwatch.state.arrays import decode_hook, encode_hook
from overwatch.state.machines import Gauge
from overwatch.state.run import RunState
from overwatch.state.sources import LEARNS

if TYPE_CHECKING:
    Wholes: TypeAlias = array[int]
    Reals: TypeAlias = array[float]
else:
    Wholes = Reals = array
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


class Line(msgspec.Struct):
    """One number over the whole run: parallel arrays with an entry a column, the oldest first."""

    first_at: int = 0
    """Time of the first sample, Unix nanoseconds."""
    per: int = 1
    """Samples in a full column."""
    room: int = 0
    """Samples that the newest column still takes."""
    samples: int = 0
    blank: int = 0
    """Samples that were not finite."""
    at: Wholes = msgspec.field(default_factory=lambda: array("q"))
    """Time of the newest sample in the column; never falls."""
    index: Wholes = msgspec.field(default_factory=lambda: array("q"))
    """Number of its update, -1 where none was given."""
    low: Reals = msgspec.field(default_factory=lambda: array("d"))
    """NaN where no sample was finite."""
    high: Reals = msgspec.field(default_factory=lambda: array("d"))

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


def _least(one: float, other: float) -> float:
    """The smaller; the one that is a number where the other is none."""
    return other if one != one or other < one else one  # noqa: PLR0124


class Past(msgspec.Struct):
    """All numbers of one run over its whole length."""

    lines: dict[str, Line] = {}
    """By full metric name; `name#3` for rank 3, `gpu/lane/short` and `host/short` for machines."""
    sizes: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(MOST, 0))
    """How many there are of each kind."""
    cut: dict[str, int] = {}
    """Samples of numbers beyond a cap, by name; the first few names."""
    marks: dict[tuple[str, int], Mark] = {}
    """By the finding's id and begin, in the order of their begin."""
    marks_left: int = 0
    """Older ones that were let go."""

    @property
    def size(self) -> int:
        """What it takes in memory."""
        columns = sum(len(line.at) for line in self.lines.values())
        return COLUMN_BYTES * columns + SERIES_BYTES * len(self.lines) + MARK_BYTES * len(self.marks)

    def take(self, state: RunState, record: Record, stamp: int) -> None:
        """Add what a record, which was just folded into the state, holds of numbers over time."""
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
                for name, value in measured_numbers(state, record, stamp):
                    self.add(name, event.at, _ends(event.conflated, name, value), state.update)
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

    def begin_anew(self) -> None:
        """Forget the numbers, so that those that come from now on are held as they are."""
        self.lines, self.sizes, self.cut = {}, dict.fromkeys(MOST, 0), {}

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
        return msgspec.msgpack.encode(self, enc_hook=encode_hook)

    @classmethod
    def load(cls, data: bytes) -> "Past":
        """The past of `dump`'s bytes. Raises `ValueError` on anything else."""
        return _decoder.decode(data)


def measured_numbers(state: RunState, record: Record, stamp: int) -> Iterator[tuple[str, float]]:
    """Yield the policy's numbers of a record just folded, and those made of them; NaN if not finite."""
    event, origin = record.event, record.origin
    if not isinstance(event, Measured) or event.scope is not Scope.POLICY:
        return
    if origin.role not in LEARNS or origin.rank != state.ranks.leader:
        return
    for name in dict.fromkeys((*event.values, *_DERIVED)):
        series = state.policy.get(name)
        if series is not None and series.at == event.at and series.stamp == stamp:
            yield name, math.nan if series.value is None else series.value


def kind_of(name: str) -> str:
    """The kind of a series, of `MOST`."""
    if name.startswith(("gpu/", "host/")):
        return "machine"
    full, mark, rank = name.rpartition("#")
    return "rank" if mark and full in BY_NAME and rank.isdecimal() else "number"


_decoder: Final = msgspec.msgpack.Decoder(Past, dec_hook=decode_hook)


def _ends(conflated: Conflated | None, name: str, value: float) -> tuple[float, float]:
    """The least and the most of the updates of a record, of which `value` is the last."""
    if conflated is None:
        return value, value
    found = [value, *_reported((conflated.low, conflated.high), name)]
    finite = [one for one in found if math.isfinite(one)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def _reported(tables: tuple[dict[str, Column], ...], name: str) -> Iterator[float]:
    for table in tables:
        column = table.get(name)
        if column is not None and len(column):
            yield column.first()
