"""Records of one shape as the rows of an array: which of them fit, and what lies in their slots.

Rules: a row fits only where all that lies in its slots can be told at once: a time that is none, a number
that is not finite, a text beyond plain ASCII are left to the general path. Must not know what a slot means.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from overwatch.otlp.mask import Bytes
from overwatch.otlp.record_slots import Kind, Slot, bits_of, other

_IS_PLAIN: Final = np.array([0x20 <= byte < 0x7F and byte not in b'"\\' for byte in range(256)])
"""Bytes of text that are what they are in every code, and in JSON."""

_Fits: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowShape:
    """What records of one shape have in common, and where they differ."""

    length: int
    slots: tuple[Slot, ...]
    bits: Bytes
    """Of every byte the bits that must be the same."""
    fixed: Bytes

    @classmethod
    def of(cls, record: bytes, slots: Sequence[Slot]) -> "RowShape":
        """The shape of records that are like this one but for what lies in some slots."""
        bits = bits_of(len(record), slots)
        fixed = np.frombuffer(record, np.uint8) & bits
        return cls(length=len(record), slots=tuple(slots), bits=bits, fixed=fixed)

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return 2 * self.length + 128 * len(self.slots) + 512

    def at(self, data: Bytes, starts: Sequence[int]) -> Bytes:
        """The bytes of records that begin at these places, a row each."""
        rows: Bytes = data[np.add.outer(np.array(starts), np.arange(self.length))]
        return rows

    def read(self, rows: Bytes) -> tuple[_Fits, list[np.ndarray]]:
        """Which rows fit, and by slot what lies in each: whole numbers, doubles or bytes of text."""
        fits: _Fits = ((rows & self.bits) == self.fixed).all(1)
        columns = []
        for slot in self.slots:
            is_told, column = _column(rows, slot)
            fits &= is_told
            columns.append(column)
        return fits, columns

    def altered(self, record: bytes, turn: int) -> bytes:
        """A record of this shape in whose slots all is different."""
        made = bytearray(record)
        for number, slot in enumerate(self.slots, 1 + turn):
            here = slice(slot.start, slot.stop)
            made[here] = other(record[here], slot.kind, number, turn)
        return bytes(made)


def _column(rows: Bytes, slot: Slot) -> tuple[_Fits | bool, np.ndarray]:
    """Of which rows what lies in a slot can be told, and what it is."""
    data = rows[:, slot.start : slot.stop]
    match slot.kind:
        case Kind.FIXED:
            times = np.ascontiguousarray(data).view("<u8")[:, 0]
            return times != 0, times
        case Kind.DOUBLE:
            values = np.ascontiguousarray(data).view("<f8")[:, 0]
            return np.isfinite(values), values
        case Kind.WHOLE:
            wholes = np.zeros(len(rows), np.uint64)
            for place in range(data.shape[1]):
                wholes |= (data[:, place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            return True, wholes
        case Kind.TEXT | Kind.PACKED:
            is_plain = np.all(_IS_PLAIN[data], axis=1)
            return is_plain, np.ascontiguousarray(data).view(f"S{data.shape[1]}")[:, 0]
        case _:
            assert_never(slot.kind)
