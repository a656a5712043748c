"""Families under construction: one gathers the samples of all runs, up to a number of series.

Owns the room on a page. What is absent or not finite has no sample, so it never looks like a number. Must not
know snapshots.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from overwatch.catalog import ROWS, Kind, Metric, label_name, prometheus_name
from overwatch.serve.families import Family, FamilyKind, labels_text

_NAMES: Final = {row.name: (prometheus_name(row), *row.also) for row in ROWS}
_CONSTANT: Final = {
    row.name: "," + labels_text({label_name(key): word for key, word in row.attributes.items()})
    for row in ROWS
    if row.attributes
}


def _names(row: Metric) -> tuple[str, ...]:
    """The families that a row's samples are in."""
    return _NAMES.get(row.name) or (prometheus_name(row), *row.also)


class Sheet:
    """A page without its text."""

    __slots__ = ("_families", "_room", "dropped")

    def __init__(self, most: int) -> None:
        self._families: dict[str, Family] = {}
        self._room = most
        self.dropped = 0
        """Series that had no room."""

    def gauge(self, name: str, asks: str, labels: str, value: float | None) -> None:
        """Add one sample; an absent or non-finite value adds none."""
        if value is None or not math.isfinite(value):
            return
        if not self._room:
            self.dropped += 1
            return
        self._room -= 1
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, FamilyKind.GAUGE, asks)
        family.put(labels, value)

    def counter(self, name: str, asks: str, labels: str, value: float) -> None:
        """Add one sample of what only grows; the name is without `_total`."""
        if not self._room:
            self.dropped += 1
            return
        self._room -= 1
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, FamilyKind.COUNTER, asks)
        family.put(labels, value)

    def histogram(self, row: Metric, labels: str, buckets: "Buckets") -> None:
        """Add a histogram of a row: one series a bucket, its sum and its count; all of it or nothing."""
        series = len(buckets.cumulated) + (0 if buckets.total is None or buckets.total < 0 else 2)
        series *= len(_names(row))
        if self._room < series:
            self.dropped += series
            return
        self._room -= series
        for name in _names(row):
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = Family(name, FamilyKind.HISTOGRAM, row.asks)
            first = family.n
            family.put_histogram(labels, buckets.cumulated, buckets.total)
            family.exemplars.update({first + place: text for place, text in buckets.exemplars.items()})

    def info(self, name: str, asks: str, labels: str) -> None:
        """Add what something is; the name is without `_info`."""
        if not self._room:
            self.dropped += 1
            return
        self._room -= 1
        family = self._families.setdefault(name, Family(name, FamilyKind.INFO, asks))
        family.put(labels, 1)

    def row(self, row: Metric, labels: str, value: float | None) -> None:
        """Add one sample of a row of the catalogue."""
        labels += _CONSTANT.get(row.name, "")
        for name in _names(row):
            if row.kind is not Kind.COUNTER:
                self.gauge(name, row.asks, labels, value)
            elif value is not None:
                self.counter(name.removesuffix("_total"), row.asks, labels, value)

    def states(self, name: str, asks: str, labels: str, counts: "States") -> None:
        """Add one series for each known word, 0 where nothing is in that state."""
        for word, text in counts.known:
            self.gauge(name, asks, f"{labels},{text}", counts.values.get(word, 0))

    def families(self) -> Iterator[Family]:
        """All families in order of name."""
        for name in sorted(self._families):
            yield self._families[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """What a histogram holds."""

    cumulated: Mapping[str, int]
    """Counts up to an upper end as text, `+Inf` last."""
    total: float | None
    """Sum of all that was observed; absent where it is unknown."""
    exemplars: Mapping[int, str] = field(default_factory=dict)
    """By place of their bucket, as of `exemplar_text`."""


class States:
    """How many things are in each of a closed set of states."""

    __slots__ = ("known", "values")

    def __init__(self, known: Mapping[str, str], values: Mapping[str, float]) -> None:
        self.known = known.items()
        self.values = values


def known(label: str, words: Iterable[str]) -> dict[str, str]:
    """Words of a closed set, each with its label as text."""
    return {word: labels_text({label: word}) for word in words}
