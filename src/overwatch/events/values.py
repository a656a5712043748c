"""What events carry: columns of values, and counters and histograms with labels.

Owns the dtypes that may travel, and how many values fit into a column. Every number of a series is cumulative
over one life of its producer, so a lost record loses nothing. Loads NumPy only when a column is made or read
as an array. Must not know what the values mean.
"""

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import numpy as np

MAX_ROWS: Final = 1 << 22
"""Most values one column may hold."""

_ITEM_BYTES: Final = {
    "<f8": 8, "<f4": 4, "<i8": 8, "<i4": 4, "<i2": 2, "|i1": 1, "<u4": 4, "<u2": 2, "|u1": 1,
}  # fmt: skip


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one field for many subjects: little-endian bytes of one dtype.

    With `labels`, the values are indices into them (dictionary coding); -1 then means absent.
    Raises `ValueError` when dtype, length or a label index does not fit.
    """

    dtype: str
    data: bytes
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        size = _ITEM_BYTES.get(self.dtype)
        if size is None:
            known = ", ".join(sorted(_ITEM_BYTES))
            raise ValueError(f"column dtype {self.dtype!r} is not supported; use one of {known}")
        if len(self.data) % size:
            raise ValueError(f"column of {len(self.data)} bytes is not a whole number of {self.dtype} items")
        if len(self.data) // size > MAX_ROWS:
            raise ValueError(f"column of {len(self.data) // size} values is longer than {MAX_ROWS}")
        if self.labels is not None:
            self._check_labels(self.labels)

    def _check_labels(self, labels: tuple[str, ...]) -> None:
        if self.dtype.endswith(("f4", "f8")):
            raise ValueError(f"a column with labels holds integers, not {self.dtype}")
        if not self.data:
            return
        codes = self.array()
        low, high = int(codes.min()), int(codes.max())
        if low < -1 or high >= len(labels):
            raise ValueError(f"label index {low if low < -1 else high} is outside of {len(labels)} labels")

    def __len__(self) -> int:
        return len(self.data) // _ITEM_BYTES[self.dtype]

    @classmethod
    def scalar(cls, value: float) -> "Column":
        """A column of one double; needs no NumPy."""
        return cls(dtype="<f8", data=struct.pack("<d", value))

    @classmethod
    def of(cls, values: "Iterable[float] | np.ndarray") -> "Column":
        """A column of numbers; floats stay float32 or float64, integers keep a supported width."""
        import numpy as np

        array = np.ascontiguousarray(values if isinstance(values, np.ndarray) else list(values))
        if array.ndim != 1:
            raise ValueError(f"a column has one dimension, this array has shape {array.shape}")
        if array.dtype == np.bool_:
            array = array.astype(np.uint8)
        code = array.dtype.newbyteorder("<").str
        if code not in _ITEM_BYTES:
            array = array.astype("<f8" if array.dtype.kind == "f" else "<i8")
            code = array.dtype.str
        return cls(dtype=code, data=array.astype(code, copy=False).tobytes())

    @classmethod
    def of_labels(cls, values: Sequence[str | None]) -> "Column":
        """A dictionary-coded column of words; `None` becomes -1."""
        labels = tuple(dict.fromkeys(value for value in values if value is not None))
        codes = {label: code for code, label in enumerate(labels)}
        numbers = [-1 if value is None else codes[value] for value in values]
        return cls(dtype="<i4", data=struct.pack(f"<{len(numbers)}i", *numbers), labels=labels)

    def array(self) -> "np.ndarray":
        """The values (or label indices) as a read-only NumPy array of shape (n,)."""
        import numpy as np

        return np.frombuffer(self.data, dtype=self.dtype)

    def words(self) -> list[str | None]:
        """The values of a dictionary-coded column; raises `ValueError` on a column of numbers."""
        if self.labels is None:
            raise ValueError(f"a {self.dtype} column without labels has no words")
        labels = self.labels
        return [None if code < 0 else labels[code] for code in self.array().tolist()]

    def first(self) -> float:
        """The first value as a float; needs no NumPy for a column made by `scalar`."""
        if self.dtype == "<f8":
            return float(struct.unpack_from("<d", self.data)[0])
        return float(self.array()[0])


def scalars(values: Mapping[str, float]) -> dict[str, Column]:
    """Columns of one value each, as `run.update` sends them."""
    return {name: Column.scalar(value) for name, value in values.items()}


MOST_BUCKETS: Final = 4096
MOST_LABELS: Final = 16
MOST_SUM: Final = 1e100
MOST_COUNT: Final = 1 << 53
"""Up to it a double holds every whole number."""


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """How many values lie between bounds; a value that is a bound lies below it.

    Raises `ValueError` unless there is one count more than bounds, and the bounds rise.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """One a bound, not cumulated, and one for all values above the last."""

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError(f"{len(self.counts)} counts do not go with {len(self.bounds)} bounds: one more")
        if len(self.counts) > MOST_BUCKETS:
            raise ValueError(f"{len(self.counts)} buckets are more than {MOST_BUCKETS}")
        if any(not low < high for low, high in pairwise(self.bounds)) or not all(
            map(math.isfinite, self.bounds)
        ):
            raise ValueError("the bounds of buckets rise and are finite; these do not")
        if min(self.counts) < 0:
            raise ValueError(f"a bucket holds {min(self.counts)} values")

    def plus(self, other: "Buckets") -> "Buckets":
        """The values of both between the bounds of this; those of a bucket of other bounds lie at its end."""
        counts = list(self.counts)
        for end, count in zip((*other.bounds, math.inf), other.counts, strict=True):
            place = bisect_left(self.bounds, end)
            counts[place] = min(counts[place] + count, MOST_COUNT)
        return Buckets(bounds=self.bounds, counts=tuple(counts))

    def minus(self, before: "Buckets") -> "Buckets | None":
        """The values that came since `before`; `None` where it has other bounds, or more in some bucket."""
        counts = tuple(new - old for new, old in zip(self.counts, before.counts, strict=False))
        if self.bounds != before.bounds or min(counts) < 0:
            return None
        return Buckets(bounds=self.bounds, counts=counts)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a histogram, and the span in which it was observed."""

    bucket: int
    """Place of its bucket."""
    value: float
    at: int
    """Producer's time."""
    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""


class TallySeries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One counter or histogram with its labels, since its producer began.

    Raises `ValueError` where its numbers cannot be.
    """

    metric: str
    """Full name of a catalogue row, or a custom one."""
    labels: dict[str, str] = {}
    sum: float | None = None
    """Of a counter its total, of a histogram the sum of the values; absent where the producer has none."""
    count: int | None = None
    """How many values a histogram holds; absent of a counter."""
    buckets: Buckets | None = None
    """Absent of a counter, and of a histogram without bounds."""
    samples: tuple[Sample, ...] = ()
    """Of a histogram at most one a bucket, the newest that a trace shows."""

    def __post_init__(self) -> None:
        if not self.metric or len(self.labels) > MOST_LABELS:
            raise ValueError(f"a series has a name and at most {MOST_LABELS} labels")
        if self.sum is not None and not abs(self.sum) <= MOST_SUM:
            raise ValueError(f"{self.metric} is {self.sum}; at most {MOST_SUM:g} can be counted")
        if self.count is None:
            if self.sum is None or self.sum < 0 or self.buckets is not None:
                raise ValueError(f"{self.metric} without a count is a counter: a total of 0 or more")
        elif not 0 <= self.count <= MOST_COUNT or (
            self.buckets is not None and sum(self.buckets.counts) != self.count
        ):
            raise ValueError(f"{self.metric} counts {self.count}: too many, or not what its buckets hold")

    @property
    def size(self) -> float:
        """What only grows: the count of a histogram, the total of a counter."""
        return float(self.count if self.count is not None else self.sum or 0.0)
