"""Metric families and their text: Prometheus text 0.0.4 and 1.0.0, OpenMetrics 1.0.

Owns the formats. A sample is kept as what stands before its number and the number, so that all numbers of a
family become text at once. Names are expected to be valid, values to be finite. A label's value holds no
character that could steer a terminal, and two different values stay different. Must not know which metrics
there are, nor HTTP.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_LABEL: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LIKE_ESCAPE: Final = re.compile(r"\\(?=u[0-9a-f]{4}|U[0-9a-f]{8})")
"""A backslash that would be read as the start of an escape."""
MOST_EXEMPLAR: Final = 128
"""Most characters in the labels of an exemplar, of OpenMetrics 1.0."""


class FamilyKind(Enum):
    """What a family's samples are; the value is the word in the text."""

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

    __slots__ = ("_heads", "_labels", "_suffix", "_values", "asks", "exemplars", "kind", "name")

    def __init__(self, name: str, kind: FamilyKind, asks: str, labels: Sequence[str] = ()) -> None:
        """`name` is without the suffix that its kind adds: a counter's `_total`, an info's `_info`."""
        self.name = name
        self.kind = kind
        self.asks = asks
        self.exemplars: dict[int, str] = {}
        """Text of an exemplar by the place of its sample."""
        self._labels = tuple(labels)
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

    def add(self, words: Sequence[str], value: float) -> None:
        """Add a sample with the family's labels; `words` are their values."""
        self.put(labels_text(dict(zip(self._labels, words, strict=True))), value)

    def put(self, labels: str, value: float) -> None:
        """Add a sample whose labels are text already, as of `labels_text`."""
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
