"""Bytes that must be the same, with gaps in which numbers lie: compared whole, at the speed of memory.

Must not know what lies in the gaps.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
_PIECE: Final = 32 << 10
"""Bytes that are compared at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """What every body of one shape has in common."""

    bits: Bytes
    """The bits that must be the same, shape (length,)."""
    fixed: Bytes
    """What they are, zero elsewhere; of the same shape."""
    text: bytes
    """The same as bytes, where it is compared at once; else empty."""

    @classmethod
    def of(cls, body: bytes, bits: Bytes) -> "Mask":
        """The mask of bodies that are like this one in these bits."""
        fixed = np.frombuffer(body, np.uint8) & bits
        return cls(bits, fixed, fixed.tobytes() if len(body) <= _PIECE else b"")

    def fits(self, came: Bytes) -> bool:
        """Whether bytes are the same wherever they must be."""
        length = len(self.bits)
        if len(came) != length:
            return False
        if length <= _PIECE:
            return (came & self.bits).tobytes() == self.text
        # Pieces that stay in the processor's cache: an array of the whole size costs more than to compare it.
        scratch = np.empty(min(_PIECE, length), np.uint8)
        for start in range(0, length, _PIECE):
            here = slice(start, start + _PIECE)
            masked = np.bitwise_and(came[here], self.bits[here], out=scratch[: length - start])
            if masked.tobytes() != self.fixed[here].tobytes():
                return False
        return True
