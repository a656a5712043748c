"""Bytes that must be the same, with gaps in which numbers lie: compared whole, at the speed of memory.

Long gaps are not looked at. Must not know what lies in the gaps.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
_PIECE: Final = 32 << 10
"""Bytes that are compared at once."""
_LONG: Final = 256
"""From so many bytes on it costs less to go around a gap than to look at it."""
_MOST_PARTS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """What every body of one shape has in common."""

    length: int
    parts: tuple[slice, ...]
    """What is not in a long gap."""
    bits: Bytes
    """The bits of these parts that must be the same, one part behind the other."""
    fixed: Bytes
    """What they are, zero elsewhere; of the same shape."""
    text: bytes
    """The same as bytes, where it is compared at once; else empty."""

    @classmethod
    def of(cls, body: bytes, bits: Bytes) -> "Mask":
        """The mask of bodies that are like this one in these bits, one byte of them for each."""
        parts = _parts(bits)
        bits = _joined(bits, parts)
        fixed = _joined(np.frombuffer(body, np.uint8), parts) & bits
        return cls(len(body), parts, bits, fixed, fixed.tobytes() if len(fixed) <= _PIECE else b"")

    def fits(self, came: Bytes) -> bool:
        """Whether bytes are the same wherever they must be."""
        if len(came) != self.length:
            return False
        came = _joined(came, self.parts)
        length = len(came)
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


def _joined(data: Bytes, parts: tuple[slice, ...]) -> Bytes:
    if len(parts) == 1:
        return data[parts[0]]
    return np.concatenate([data[part] for part in parts])


def _parts(bits: Bytes) -> tuple[slice, ...]:
    """Where there are bits, but for long gaps between them; all of it where that is too often."""
    edges = np.flatnonzero(np.diff(bits != 0, prepend=False, append=False))
    starts, stops = edges[::2], edges[1::2]
    apart = starts[1:] - stops[:-1] >= _LONG
    if not starts.size or int(apart.sum()) >= _MOST_PARTS:
        return (slice(0, len(bits)),)
    begins = [int(starts[0]), *starts[1:][apart].tolist()]
    ends = [*stops[:-1][apart].tolist(), int(stops[-1])]
    return tuple(map(slice, begins, ends))
