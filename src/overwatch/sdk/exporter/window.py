"""A tenth of a second of events: numbers of one subject become one record, facts stay as they are.

Rules: a conflated record tells the newest value of each column, how many there were, the extremes and the
breaches of every row that has limits, and never hides a change of a slot's stage. Numbers leave before
facts, both in the order they came. Pure; must not know records, requests or time.
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from overwatch.catalog import BY_NAME, Limit, Limits, Metric, Scope, Side
from overwatch.events import Column, Conflated, Event, Measured

_STAGE: Final = "overwatch.slot.stage"
_Subject: TypeAlias = tuple[Scope, tuple[tuple[str, Column], ...]]
LimitsOf: TypeAlias = Callable[[Metric], Limits]
"""What judges a row in this run."""


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What came through a window."""

    numbers: tuple[Measured, ...]
    facts: tuple[Event, ...]
    counted_numbers: int
    """Records of the trainer that the numbers stand for."""
    counted_facts: int


class _Extremes:
    """Of one row over a window."""

    __slots__ = ("criticals", "high", "limits", "low", "warnings")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.low, self.high = math.inf, -math.inf
        self.warnings = self.criticals = 0

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            return
        self.low, self.high = min(self.low, value), max(self.high, value)
        if _is_beyond(self.limits.critical, value):
            self.criticals += 1
        elif _is_beyond(self.limits.warning, value):
            self.warnings += 1

    def merge(self, told: Conflated, name: str) -> None:
        """Take what an earlier conflation said."""
        for end in (told.low.get(name), told.high.get(name)):
            if end is not None:
                value = end.first()
                self.low, self.high = min(self.low, value), max(self.high, value)
        self.warnings += told.warnings.get(name, 0)
        self.criticals += told.criticals.get(name, 0)


class _Gathered:
    """The numbers of one subject so far."""

    def __init__(self, first: Measured) -> None:
        self.newest = first
        self.values = dict(first.values)
        self.n = 0
        self.extremes: dict[str, _Extremes] = {}

    def add(self, event: Measured, limits_of: LimitsOf) -> None:
        self.n += 1 if event.conflated is None else event.conflated.n
        self.newest = event
        self.values.update(event.values)
        if event.scope is not Scope.POLICY:
            return
        for name, column in event.values.items():
            extremes = self.extremes.get(name)
            if extremes is None:
                row = BY_NAME.get(name)
                limits = None if row is None else limits_of(row)
                if limits is None or (limits.warning is None and limits.critical is None):
                    continue
                extremes = self.extremes[name] = _Extremes(limits)
            if event.conflated is not None:
                extremes.merge(event.conflated, name)
            if len(column):
                extremes.add(column.first())

    def event(self) -> Measured:
        """The one measurement."""
        if self.n == 1:
            return self.newest
        known = {name: found for name, found in self.extremes.items() if math.isfinite(found.low)}
        told = Conflated(
            n=self.n,
            low={name: Column.scalar(found.low) for name, found in known.items()},
            high={name: Column.scalar(found.high) for name, found in known.items()},
            warnings={name: found.warnings for name, found in known.items() if found.warnings},
            criticals={name: found.criticals for name, found in known.items() if found.criticals},
        )
        return msgspec.structs.replace(self.newest, values=self.values, conflated=told)


class Window:
    """Gathers events until somebody takes them."""

    def __init__(self, limits_of: LimitsOf) -> None:
        self._limits_of = limits_of
        self._open: dict[_Subject, _Gathered] = {}
        self._done: list[_Gathered] = []
        self._facts: list[Event] = []
        self._counted_numbers = 0
        self._counted_facts = 0
        self.size_bytes = 0
        """Roughly what was added, as the adder said."""

    def __bool__(self) -> bool:
        return bool(self._open or self._facts)

    def add(self, event: Event, *, size: int = 0, counted: int = 1) -> None:
        """Take one event of `size` bytes, which stands for so many records of the trainer."""
        self.size_bytes += size
        if not isinstance(event, Measured):
            self._facts.append(event)
            self._counted_facts += counted
            return
        self._counted_numbers += counted
        subject = (event.scope, tuple(event.keys.items()))
        gathered = self._open.get(subject)
        if gathered is None or _differ_in_stage(gathered, event):
            gathered = self._open[subject] = _Gathered(event)
            self._done.append(gathered)
        gathered.add(event, self._limits_of)

    def take(self) -> Passed:
        """Everything gathered; the window is empty afterwards."""
        passed = Passed(
            numbers=tuple(gathered.event() for gathered in self._done),
            facts=tuple(self._facts),
            counted_numbers=self._counted_numbers,
            counted_facts=self._counted_facts,
        )
        self._open, self._done, self._facts = {}, [], []
        self._counted_numbers = self._counted_facts = self.size_bytes = 0
        return passed


def _differ_in_stage(gathered: _Gathered, event: Measured) -> bool:
    """Whether conflating would hide that a slot changed its stage."""
    return event.scope is Scope.SLOT and gathered.values.get(_STAGE) != event.values.get(_STAGE)


def _is_beyond(limit: Limit | None, value: float) -> bool:
    if limit is None or limit.relative:
        return False
    match limit.side:
        case Side.ABOVE:
            return value > limit.value
        case Side.AT_OR_ABOVE:
            return value >= limit.value
        case Side.BELOW:
            return value < limit.value
        case Side.AT_OR_BELOW:
            return value <= limit.value
