r"""Metrics for Prometheus: families of `prometheus_client`, made of rows, labels and numbers.

Names are expected to be valid. What is absent or not finite has no sample, so it never looks like a number.
Beyond the cap of series samples are counted; a histogram goes in whole or not at all. A label's value holds
no character that could steer a terminal, and two different values stay different. Pure; must not know
snapshots, nor HTTP.
"""

import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from prometheus_client import metrics_core
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from overwatch.catalog import ROWS, Kind, Metric, label_name, prometheus_name

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LIKE_ESCAPE: Final = re.compile(r"\\(?=u[0-9a-f]{4}|U[0-9a-f]{8})")
"""A backslash that would be read as the start of an escape."""
MOST_EXEMPLAR: Final = 128
"""Most characters in the labels of an exemplar, of OpenMetrics 1.0."""
Labels: TypeAlias = Mapping[str, str]
Family: TypeAlias = metrics_core.Metric
NO_LABELS: Final[Labels] = {}


class Families(Collector):
    """Families that are there already, for the encoders of `prometheus_client`."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """Return all of them."""
        return self._families


@lru_cache(8192)
def visible(text: str) -> str:
    r"""Text with control, format and separator characters as `\u001b` or `\U000e0001`; a line feed stays.

    Reversible: replace each such escape by its character. A backslash that begins the like becomes an escape.

    >>> visible("a\x1b[0m"), visible(r"a\u001b"), visible("ü\\n")
    ('a\\u001b[0m', 'a\\u005cu001b', 'ü\\n')
    """
    if "\\" in text:
        text = _LIKE_ESCAPE.sub(r"\\u005c", text)
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _UNSAFE:
        return character
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"


def exemplar_of(labels: Labels, value: float, at: float) -> Exemplar | None:
    """Return an exemplar, seen at Unix time `at`; `None` where its labels are too long to be in a page."""
    shown = {name: visible(word) for name, word in labels.items()}
    if sum(len(name) + len(word) for name, word in shown.items()) > MOST_EXEMPLAR:
        return None
    return Exemplar(shown, value, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """What a histogram holds."""

    cumulated: Mapping[str, int]
    """Counts up to an upper end as text, `+Inf` last."""
    total: float | None
    """Sum of all that was observed; absent where it is unknown."""
    exemplars: Mapping[int, Exemplar | None] = field(default_factory=dict)
    """By place of their bucket."""


_CONSTANT: Final = {row.name: {label_name(key): word for key, word in row.attributes.items()} for row in ROWS}


class FamilyBuilder:
    """A page without its text: the families of all runs, up to a number of series."""

    __slots__ = ("_families", "dropped", "room")

    def __init__(self, most: int = sys.maxsize) -> None:
        self._families: dict[str, Family] = {}
        self.room = most
        """For how many series there is room."""
        self.dropped = 0
        """Series that had no room."""

    def _add(self, name: str, kind: str, asks: str, samples: Sequence[Sample]) -> None:
        """Add samples to a family, where there is room for all of them."""
        if self.room < len(samples):
            self.dropped += len(samples)
            return
        self.room -= len(samples)
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, asks, kind)
        family.samples += samples

    def gauge(self, name: str, asks: str, labels: Labels, value: float | None) -> None:
        """Add one sample; an absent or non-finite value adds none."""
        if value is not None and math.isfinite(value):
            self._add(name, "gauge", asks, [_sample(name, labels, value)])

    def counter(self, name: str, asks: str, labels: Labels, value: float) -> None:
        """Add one sample of what only grows; the name is without `_total`."""
        self._add(name, "counter", asks, [_sample(f"{name}_total", labels, value)])

    def info(self, name: str, asks: str, labels: Labels) -> None:
        """Add what something is; the name is without `_info`."""
        self._add(name, "info", asks, [_sample(f"{name}_info", labels, 1)])

    def histogram(self, row: Metric, labels: Labels, buckets: Buckets) -> None:
        """Add a histogram of a row: one series a bucket, its sum and its count; all of it or nothing.

        Without a sum that only rises there is no count either, as OpenMetrics wants it.
        """
        for name in (prometheus_name(row), *row.also):
            samples = [
                _sample(f"{name}_bucket", {**labels, "le": end}, count, buckets.exemplars.get(place))
                for place, (end, count) in enumerate(buckets.cumulated.items())
            ]
            if buckets.total is not None and buckets.total >= 0:
                samples.append(_sample(f"{name}_sum", labels, buckets.total))
                samples.append(_sample(f"{name}_count", labels, buckets.cumulated["+Inf"]))
            self._add(name, "histogram", row.asks, samples)

    def row(self, row: Metric, labels: Labels, value: float | None) -> None:
        """Add one sample of a row of the catalogue."""
        labels = {**labels, **_CONSTANT.get(row.name, NO_LABELS)}
        for name in (prometheus_name(row), *row.also):
            if row.kind is not Kind.COUNTER:
                self.gauge(name, row.asks, labels, value)
            elif value is not None:
                self.counter(name.removesuffix("_total"), row.asks, labels, value)

    def states(
        self, name: str, asks: str, labels: Labels, label: str, counts: Mapping[str, float],
        *, words: Iterable[str],
    ) -> None:  # fmt: skip
        """Add one series for each of these words, by a label; 0 where nothing is in that state."""
        for word in words:
            self.gauge(name, asks, {**labels, label: word}, counts.get(word, 0))

    def families(self) -> Iterator[Family]:
        """All families in order of name."""
        for name in sorted(self._families):
            yield self._families[name]


def _sample(name: str, labels: Labels, value: float, exemplar: Exemplar | None = None) -> Sample:
    shown = {key: visible(word) for key, word in labels.items()}
    return Sample(name, shown, float(value), None, exemplar)
