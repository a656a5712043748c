"""Metrics as text for Prometheus: families, a builder with a cap of series, and which format a scraper gets.

Formats are text 0.0.4 and 1.0.0 and OpenMetrics 1.0. They are written here and not by `prometheus_client`,
as the page of a collector has up to 20,000 series and a new state each tenth of a second:

- `prometheus_client` formats one sample at a time: a sort of its labels, three escapes and a format for each.
  5,000 samples take it 177 ms, and the page here 0.9 ms (`make bench-prometheus`, both in one run, equal
  when parsed).
- Nearly all of a sample is the same from page to page. So a sample is two values: its *head*, which is the
  line up to the number with the end of the line before, and its number. Labels are escaped once, where a
  caller makes them (`labels_text`), and shared by all series of a run.
- All numbers of a family become text in one call, as a JSON array split at its commas: JSON's shortest
  decimal of a finite double is one that Prometheus reads as the same double. What is not finite never comes
  in, so no element holds a comma or is `null`.
- A page is then one join of heads and numbers. An exemplar is put behind its number, in OpenMetrics alone.

`tests/overwatch/serve/test_metrics_text.py` reads what is written with `prometheus_client`'s parsers. Rules:
names are expected to be valid; what is absent has no sample, so it never looks like a number; beyond the cap
samples are counted, a histogram goes in whole or not at all; a label's value holds no character that could
steer a terminal, and two different values stay different. Of an `Accept` header what weighs most is given,
the newer format among equals, text 0.0.4 where it names nothing; names here are valid in every scheme, so
`escaping` is answered and changes nothing. Pure. Must not know snapshots, nor HTTP.
"""

import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from overwatch.catalog import ROWS, Kind, Metric, label_name, prometheus_name

_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_LABEL: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LIKE_ESCAPE: Final = re.compile(r"\\(?=u[0-9a-f]{4}|U[0-9a-f]{8})")
"""A backslash that would be read as the start of an escape."""
MOST_EXEMPLAR: Final = 128
"""Most characters in the labels of an exemplar, of OpenMetrics 1.0."""


class FamilyKind(Enum):
    """What a family's samples are; the value is its name in the text."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


_SUFFIX: Final = {FamilyKind.COUNTER: "_total", FamilyKind.INFO: "_info"}


class Text(Enum):
    """A text format; the value is its media type with its version."""

    PLAIN = "text/plain; version=0.0.4; charset=utf-8"
    PLAIN_1 = "text/plain; version=1.0.0; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    OPEN_METRICS_0 = "application/openmetrics-text; version=0.0.1; charset=utf-8"

    @property
    def is_open(self) -> bool:
        """Whether it is one of OpenMetrics."""
        return self in (Text.OPEN_METRICS, Text.OPEN_METRICS_0)


class Family:
    """One name with its samples, under construction."""

    __slots__ = ("_heads", "_suffix", "_values", "asks", "exemplars", "kind", "name")

    def __init__(self, name: str, kind: FamilyKind, asks: str) -> None:
        """`name` is without the suffix that its kind adds: a counter's `_total`, an info's `_info`."""
        self.name = name
        self.kind = kind
        self.asks = asks
        self.exemplars: dict[int, str] = {}
        """Text of an exemplar by the place of its sample."""
        self._suffix = _SUFFIX.get(kind, "")
        self._heads: list[str] = []
        """What stands before the number of each sample, with the end of the line before."""
        self._values: list[float] = []

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self._values)

    def samples(self) -> Iterator[tuple[str, float]]:
        """Each sample as its name with labels, and its value."""
        yield from zip((head[1:-1] for head in self._heads), self._values, strict=True)

    def put(self, labels: str, value: float) -> None:
        """Add a sample; labels are text already, as of `labels_text`."""
        self._put(self._suffix, labels, value)

    def put_histogram(self, labels: str, buckets: Mapping[str, int], total: float | None) -> None:
        """Add a histogram: cumulated counts by their upper end as text, `+Inf` last, and the sum.

        Without a sum that only rises there is no count either, as OpenMetrics wants it.
        """
        comma = "," if labels else ""
        for end, count in buckets.items():
            self._put("_bucket", f'{labels}{comma}le="{end}"', count)
        if total is not None and total >= 0:
            self._put("_sum", labels, total)
            self._put("_count", labels, buckets["+Inf"])

    def _put(self, suffix: str, labels: str, value: float) -> None:
        braced = f"{{{labels}}}" if labels else ""
        self._heads.append(f"\n{self.name}{suffix}{braced} ")
        self._values.append(float(value))

    def text(self, form: Text) -> str:
        """The family in a format, header and all."""
        is_open = form.is_open
        name = self.name if is_open else self.name + self._suffix
        kind = "gauge" if self.kind is FamilyKind.INFO and not is_open else self.kind.value
        asks = self.asks.translate(_LABEL if is_open else _HELP)
        numbers = msgspec.json.encode(self._values).decode()[1:-1].split(",")
        if is_open:
            for place, exemplar in self.exemplars.items():
                numbers[place] += f" # {exemplar}"
        lines = [""] * (2 * len(self._heads))
        lines[::2], lines[1::2] = self._heads, numbers[: len(self._heads)]
        return f"# HELP {name} {asks}\n# TYPE {name} {kind}{''.join(lines)}\n"


def labels_text(labels: Mapping[str, str]) -> str:
    r"""Labels as they stand between braces.

    >>> labels_text({"run": 'a"b', "level": "ok"})
    'run="a\\"b",level="ok"'
    """
    return ",".join(f'{name}="{visible(word).translate(_LABEL)}"' for name, word in labels.items())


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


def exemplar_text(labels: Mapping[str, str], value: float, at: float) -> str | None:
    """An exemplar as it stands after its sample, `None` where its labels are too long to be one."""
    if sum(len(name) + len(visible(word)) for name, word in labels.items()) > MOST_EXEMPLAR:
        return None
    return f"{{{labels_text(labels)}}} {value!r} {at!r}"


def page(families: Iterable[Family], form: Text) -> bytes:
    """All families in a format."""
    end = "# EOF\n" if form.is_open else ""
    return ("".join(family.text(form) for family in families) + end).encode("utf-8", "replace")


_NAMES: Final = {row.name: (prometheus_name(row), *row.also) for row in ROWS}
_CONSTANT: Final = {
    row.name: "," + labels_text({label_name(key): word for key, word in row.attributes.items()})
    for row in ROWS
    if row.attributes
}


def _names(row: Metric) -> tuple[str, ...]:
    """The families that a row's samples are in."""
    return _NAMES.get(row.name) or (prometheus_name(row), *row.also)


class FamilyBuilder:
    """A page without its text: the families of all runs, up to a number of series."""

    __slots__ = ("_families", "_room", "dropped")

    def __init__(self, most: int = sys.maxsize) -> None:
        self._families: dict[str, Family] = {}
        self._room = most
        self.dropped = 0
        """Series that had no room."""

    def _family(self, name: str, kind: FamilyKind, asks: str, series: int = 1) -> Family | None:
        """The family, where there is room for so many more series of it."""
        if self._room < series:
            self.dropped += series
            return None
        self._room -= series
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, asks)
        return family

    def gauge(self, name: str, asks: str, labels: str, value: float | None) -> None:
        """Add one sample; an absent or non-finite value adds none."""
        if (
            value is not None
            and math.isfinite(value)
            and (family := self._family(name, FamilyKind.GAUGE, asks))
        ):
            family.put(labels, value)

    def counter(self, name: str, asks: str, labels: str, value: float) -> None:
        """Add one sample of what only grows; the name is without `_total`."""
        if family := self._family(name, FamilyKind.COUNTER, asks):
            family.put(labels, value)

    def info(self, name: str, asks: str, labels: str) -> None:
        """Add what something is; the name is without `_info`."""
        if family := self._family(name, FamilyKind.INFO, asks):
            family.put(labels, 1)

    def histogram(self, row: Metric, labels: str, buckets: "Buckets") -> None:
        """Add a histogram of a row: one series a bucket, its sum and its count; all of it or nothing."""
        series = len(buckets.cumulated) + (0 if buckets.total is None or buckets.total < 0 else 2)
        for name in _names(row):
            if family := self._family(name, FamilyKind.HISTOGRAM, row.asks, series):
                first = family.n
                family.put_histogram(labels, buckets.cumulated, buckets.total)
                family.exemplars.update(
                    {first + place: text for place, text in buckets.exemplars.items() if text}
                )

    def row(self, row: Metric, labels: str, value: float | None) -> None:
        """Add one sample of a row of the catalogue."""
        labels += _CONSTANT.get(row.name, "")
        for name in _names(row):
            if row.kind is not Kind.COUNTER:
                self.gauge(name, row.asks, labels, value)
            elif value is not None:
                self.counter(name.removesuffix("_total"), row.asks, labels, value)

    def states(
        self, name: str, asks: str, labels: str, words: Mapping[str, str], counts: Mapping[str, float]
    ) -> None:
        """Add one series for each word, as of `known`; 0 where nothing is in that state."""
        for word, text in words.items():
            self.gauge(name, asks, f"{labels},{text}", counts.get(word, 0))

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
    exemplars: Mapping[int, str | None] = field(default_factory=dict)
    """By place of their bucket, as of `exemplar_text`."""


def known(label: str, words: Iterable[str]) -> dict[str, str]:
    """Words of a closed set, each with its label as text."""
    return {word: labels_text({label: word}) for word in words}


_FORMS: Final = {
    ("application/openmetrics-text", "1.0.0"): Text.OPEN_METRICS,
    ("application/openmetrics-text", "0.0.1"): Text.OPEN_METRICS_0,
    ("application/openmetrics-text", ""): Text.OPEN_METRICS,
    ("text/plain", "1.0.0"): Text.PLAIN_1,
    ("text/plain", "0.0.4"): Text.PLAIN,
    ("text/plain", ""): Text.PLAIN,
}
_NEWER_FIRST: Final = (Text.OPEN_METRICS, Text.OPEN_METRICS_0, Text.PLAIN_1, Text.PLAIN)
_UNCHANGED: Final = ("allow-utf-8", "underscores", "values")
"""Escaping schemes that leave these names as they are; `dots` would not."""


class Chosen(NamedTuple):
    """What is answered."""

    form: Text
    content_type: str


class _Requested(NamedTuple):
    weight: float
    form: Text
    escaping: str


def choose(accept: str) -> Chosen:
    """The format for an `Accept` header.

    >>> choose("text/plain;version=0.0.4;q=0.5, application/openmetrics-text;version=1.0.0").form.name
    'OPEN_METRICS'
    """
    requested = [
        found for item in accept.split(",") if (found := _read(item)) is not None and found.weight > 0
    ]
    if not requested:
        return Chosen(Text.PLAIN, Text.PLAIN.value)
    best = min(requested, key=lambda one: (-one.weight, _NEWER_FIRST.index(one.form)))
    escaping = best.escaping if best.escaping in _UNCHANGED else "underscores"
    versioned = best.form in (Text.OPEN_METRICS, Text.PLAIN_1)
    return Chosen(best.form, best.form.value + (f"; escaping={escaping}" if versioned else ""))


def _read(item: str) -> _Requested | None:
    """One item of an `Accept` header; `None` for what is not on offer."""
    media, *parameters = (part.strip() for part in item.split(";"))
    given = {key.strip().lower(): word.strip() for key, _, word in (p.partition("=") for p in parameters)}
    form = _FORMS.get((media.lower(), given.get("version", "")))
    return None if form is None else _Requested(_weight(given.get("q", "1")), form, given.get("escaping", ""))


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def accepts_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` header allows gzip; `gzip;q=0` does not.

    >>> accepts_gzip("deflate, gzip;q=0.5"), accepts_gzip("gzip;q=0")
    (True, False)
    """
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name == "gzip":
            weights = [p.replace(" ", "").removeprefix("q=") for p in parameters if p.startswith("q")]
            return _weight(weights[0] if weights else "1") > 0
    return False
