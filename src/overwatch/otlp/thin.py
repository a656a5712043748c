"""Batches with fewer numbers in them: facts whole, of the numbers one a period, and all around what matters.

Rules: facts keep their bytes, their order and their producers' times. A number that is left stands in the
place of the last that it stands for, so that folding the batches in order ends where it would have ended.
Batches of one second become one, stamped as the last of them, but for those around what matters. Whoever
sent in a second still sends in it, so that silence is what it was. Pure. Must not know files.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import Final

from overwatch.journal import Batch, Signal
from overwatch.otlp import wire
from overwatch.otlp.batch_editor import Sheet, join_numbers, sheet_of
from overwatch.otlp.wire import MalformedBody

SECOND_NS: Final = 1_000_000_000


class RetentionLevel(Enum):
    """What a stretch of a recording still holds of a run; the value is the word in the index."""

    WHOLE = "whole"
    """Everything, as it came."""
    SECOND = "second"
    """Facts, one number a second, and everything around findings."""
    MINUTE = "minute"
    """Facts, one number a minute, and everything around findings."""
    SPARSE = "sparse"
    """Facts, one number in ten minutes, and one a second around findings."""
    GONE = "gone"
    """Nothing."""

    @property
    def step(self) -> int:
        """How far down it is, from 0."""
        return _ORDER.index(self)

    @property
    def period_ns(self) -> int:
        """Time of which one number is left; 0 where all are."""
        return _PERIODS[self]

    @property
    def kept_period_ns(self) -> int:
        """The same around findings."""
        return SECOND_NS if self is RetentionLevel.SPARSE else 0

    def __lt__(self, other: "RetentionLevel") -> bool:
        return self.step < other.step

    @property
    def coarser(self) -> "RetentionLevel":
        """The next step down; `GONE` is the last."""
        return _ORDER[min(self.step + 1, len(_ORDER) - 1)]


_ORDER: Final = tuple(RetentionLevel)
_PERIODS: Final = {
    RetentionLevel.WHOLE: 0,
    RetentionLevel.SECOND: SECOND_NS,
    RetentionLevel.MINUTE: 60 * SECOND_NS,
    RetentionLevel.SPARSE: 600 * SECOND_NS,
    RetentionLevel.GONE: 0,
}
_STAGES: Final = (RetentionLevel.SECOND, RetentionLevel.MINUTE, RetentionLevel.SPARSE)

Span = tuple[int, int]
"""From one stamp to another, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinning:
    """What is to be left of each run."""

    floor: RetentionLevel = RetentionLevel.WHOLE
    """Of every run: what is left is this coarse at least."""
    grains: Mapping[str, RetentionLevel] = field(default_factory=dict)
    """Of single runs, by run id, where that is coarser; records of no run are under the empty one."""
    kept: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Around what matters, by run id; in order, without overlaps."""
    usual: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """The same for longer: what the run reports of itself is left once a second, to show what was usual."""

    def period_ns(self, run_id: str, stamp: int) -> int:
        """Time of which one number is left; 0 where all are."""
        grain = self.of(run_id)
        return grain.kept_period_ns if _is_within(self.kept, run_id, stamp) else grain.period_ns

    def is_usual(self, run_id: str, stamp: int) -> bool:
        """Whether only measurements of many subjects may be fewer than one a second."""
        return _is_within(self.usual, run_id, stamp)

    def is_gone(self, run_id: str) -> bool:
        """Whether nothing is left."""
        return self.of(run_id) is RetentionLevel.GONE

    def of(self, run_id: str) -> RetentionLevel:
        """What is left of a run."""
        return max(self.floor, self.grains.get(run_id, self.floor))


@dataclass(slots=True)
class Loss:
    """What went with one run."""

    batches: int = 0
    records: int = 0
    first: int = 0
    last: int = 0
    """Stamps of the first and the last batch."""

    def add(self, records: int, stamp: int) -> None:
        """Count one batch."""
        self.batches += 1
        self.records += records
        self.first = self.first or stamp
        self.last = stamp


def _is_within(spans_of: Mapping[str, Sequence[Span]], run_id: str, stamp: int) -> bool:
    spans = spans_of.get(run_id, ())
    place = bisect_right(spans, stamp, key=lambda span: span[0])
    return place > 0 and stamp <= spans[place - 1][1]


def thin(batches: Iterable[Batch], thinning: Thinning, losses: dict[str, Loss]) -> Iterator[Batch]:
    """What is left of batches in order; what goes whole is counted in `losses` by run id."""
    grains = {thinning.floor, *thinning.grains.values()}
    left: Iterable[Batch] = batches
    if RetentionLevel.GONE in grains:
        left = _without(left, thinning, losses)
    coarsest = max((grain.period_ns for grain in grains), default=0)
    for stage in _STAGES:
        if stage.period_ns <= coarsest:
            left = _stage(left, thinning, stage.period_ns)
    yield from left


def _without(batches: Iterable[Batch], thinning: Thinning, losses: dict[str, Loss]) -> Iterator[Batch]:
    for batch in batches:
        sheet = _sheet(batch)
        if sheet is None:
            yield batch
            continue
        for run_id in sheet.runs:
            if thinning.is_gone(run_id):
                losses.setdefault(run_id, Loss()).add(sheet.drop(run_id), batch.stamp)
        if sheet.is_changed:
            yield from sheet.batches()
        else:
            yield batch


def _stage(batches: Iterable[Batch], thinning: Thinning, period_ns: int) -> Iterator[Batch]:
    """One number a period; what earlier stages left is folded on."""
    for _, together in groupby(batches, key=lambda batch: batch.stamp // period_ns):
        yield from _thinned(list(together), thinning, period_ns)


def _thinned(batches: list[Batch], thinning: Thinning, period_ns: int) -> Iterator[Batch]:
    waiting: list[Sheet] = []
    sheets = [_sheet(batch) for batch in batches]
    chosen: list[Sheet] = []
    for batch, sheet in zip(batches, sheets, strict=True):
        if sheet is not None:
            for run_id in sheet.runs:
                if thinning.period_ns(run_id, batch.stamp) >= period_ns:
                    spares = period_ns > SECOND_NS and thinning.is_usual(run_id, batch.stamp)
                    sheet.choose(run_id, only_many=spares)
            chosen.append(sheet)
    join_numbers(chosen, period_ns)
    for batch, sheet in zip(batches, sheets, strict=True):
        is_kept = sheet is None or not all(
            thinning.period_ns(run_id, batch.stamp) >= SECOND_NS for run_id in sheet.runs
        )
        if waiting and (is_kept or waiting[-1].second != batch.stamp // SECOND_NS):
            yield from _merged(waiting)
            waiting = []
        if sheet is None or (is_kept and not sheet.is_changed):
            yield batch
        elif is_kept:
            yield from sheet.batches()
        else:
            waiting.append(sheet)
    yield from _merged(waiting)


def _merged(sheets: list[Sheet]) -> Iterator[Batch]:
    """The batches of one second as one a signal."""
    if sheets:
        last = sheets[-1]
        last.take_in(sheets[:-1])
        yield from last.batches()


def _sheet(batch: Batch) -> Sheet | None:
    """A batch opened up; `None` for one that is left as it is."""
    if batch.signal is Signal.START:
        return None
    try:
        return sheet_of(batch, wire.parse(batch.signal, batch.body))
    except MalformedBody:
        return None
