"""Growing NumPy arrays and short windows of recent values, as they are kept in a checkpoint.

Rules: capacity doubles, so growth is cheap; a grown row holds the fill value; of a window the newest values
push the oldest out. Must not know what the values mean.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


_SIZES: Final = 32
"""Sizes of fleets of which shared arrays are kept."""
LARGEST = 2**53
"""Where counters stop: up to it a double and a checkpoint hold every whole number."""


def counted(total: int, more: int) -> int:
    """A counter after `more`, however large that was sent; what is negative does not count."""
    return min(total + max(more, 0), LARGEST)


class Derived:
    """What can be worked out anew from the rest of a state: empty in a checkpoint, and after one."""


def floats(rows: int, *more: int) -> Floats:
    """An array of shape (rows, *more) filled with NaN; whether a value is absent is known by its time."""
    return np.full((rows, *more), np.nan)


def ints(rows: int, *more: int, fill: int = 0) -> Ints:
    """An array of shape (rows, *more) filled with `fill`."""
    return np.full((rows, *more), fill, dtype=np.int64)


@lru_cache(maxsize=_SIZES)
def no_floats(rows: int) -> Floats:
    """Zeros of shape (rows,) that cannot be written to: the same array each time."""
    zeros = np.zeros(rows)
    zeros.flags.writeable = False
    return zeros


@lru_cache(maxsize=_SIZES)
def no_ints(rows: int) -> Ints:
    """The same of whole numbers."""
    zeros = ints(rows)
    zeros.flags.writeable = False
    return zeros


def grown(old: np.ndarray, shape: tuple[int, ...], fill: float) -> np.ndarray:
    """A copy of `old` in an array of `shape`; new cells hold `fill`, and what is beyond it is left out."""
    copy = np.full(shape, fill, dtype=old.dtype)
    shared = tuple(slice(0, min(sizes)) for sizes in zip(old.shape, shape, strict=True))
    copy[shared] = old[shared]
    return copy


class Table(Protocol):
    """Arrays with a row an env, or dictionaries of such."""

    FILLS: ClassVar[Mapping[str, float]]
    """Their names, with what an unused row holds."""


def arrays_of(table: Table) -> Iterator[tuple[np.ndarray, float]]:
    """The arrays of a table, with what an unused row holds."""
    for name, fill in table.FILLS.items():
        held = getattr(table, name)
        yield from ((one, fill) for one in (held.values() if isinstance(held, dict) else (held,)))


def resize(table: Table, rows: int) -> None:
    """Give a table so many rows."""
    for name, fill in table.FILLS.items():
        held = getattr(table, name)
        if isinstance(held, dict):
            held |= {key: grown(one, (rows, *one.shape[1:]), fill) for key, one in held.items()}
        else:
            setattr(table, name, grown(held, (rows, *held.shape[1:]), fill))


def encode_hook(value: Any) -> Any:
    """An array as [dtype, shape, bytes], one of the standard library as [type, bytes], for msgspec."""
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, array):
        return [value.typecode, value.tobytes()]
    if isinstance(value, Derived):
        return None
    raise NotImplementedError(f"a checkpoint cannot hold {type(value).__name__}")


def decode_hook(kind: Any, value: Any) -> Any:
    """The inverse of `encode_hook`."""
    origin = getattr(kind, "__origin__", kind)
    if origin is np.ndarray:
        dtype, shape, data = value
        return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
    if origin is array:
        return array(*value)
    if isinstance(kind, type) and issubclass(kind, Derived):
        return kind()
    raise NotImplementedError(f"a checkpoint cannot hold {kind}")


T = TypeVar("T")

NORMAL: Final = 1.4826
"""Standard deviations in one median absolute deviation, for normal data."""


class Ring(msgspec.Struct, Generic[T]):
    """At most `size` items, oldest first."""

    size: int
    items: list[T] = msgspec.field(default_factory=list)

    def push(self, item: T) -> None:
        """Append one item; drop the oldest beyond `size`."""
        self.items.append(item)
        if len(self.items) > self.size:
            del self.items[0]


def median(values: list[float]) -> float | None:
    """The middle of the values, `None` of none. Exact: a sort and at most one mean."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def seconds_between(times: Sequence[int]) -> list[float]:
    """Seconds from each of these times, in ns, to the next."""
    return [(after - before) / 1e9 for before, after in pairwise(times)]
