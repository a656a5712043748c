"""Values of many subjects in one piece: bytes of one dtype, with words as numbers.

Owns the dtypes that may travel and how many values fit. Loads NumPy only when a column is made or read as
an array. Must not know what the values mean.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
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
