"""An update in one piece: its numbers, its moment and its index are one msgpack array behind the head.

So one call encodes all of it and one sum covers all of it; moment and index in the head are 0, and the rows
of its tag say how many numbers there are. The index has room for the largest: behind a shorter one lie zeros,
which are not summed. Both sides share this. Pure. Must not know names or rings.
"""

import struct
from dataclasses import dataclass
from typing import Final

import msgspec

from overwatch.sdk.rings.layout import PRIME, summing

NUMBER: Final = 9
"""Bytes of one number of an update: its tag, and a double; so many have a moment and the largest index."""
MOMENT: Final = 0xCF
"""What a moment begins with."""
_LONGER: Final = {0xCC: 1, 0xD0: 1, 0xCD: 2, 0xD1: 2, 0xCE: 4, 0xD2: 4, 0xCF: 8, 0xD3: 8}
"""Bytes behind the first one of an index; none behind any other."""
NO_INDEX: Final = 0xC0
"""What stands where an index would begin."""
_WHOLE: Final = struct.Struct(">Q")
_index: Final = msgspec.msgpack.Decoder(int).decode
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Opened:
    """What lies in such a record."""

    numbers: bytes
    """The numbers alone, as a msgpack array."""
    at: int
    """Unix nanoseconds."""
    index: int | None


def first_number(names: int) -> int:
    """Where the first number begins in a msgpack array of so many."""
    return 1 if names < 16 else 3 if names < 1 << 16 else 5


def room(names: int) -> int:
    """Bytes of a payload with so many numbers."""
    return first_number(names + 2) + NUMBER * (names + 2)


def start(tag: int) -> int:
    """What the sum of a record with this tag starts from."""
    return tag % PRIME


def opened(payload: bytes, names: int, tag: int, found: int) -> Opened | None:
    """What a payload says; `None` when it is not one of so many numbers, or not of the sum that was found."""
    place = place_of_index(names)
    moment = place - NUMBER
    if not 0 < names < 1 << 16 or len(payload) != place + NUMBER or payload[moment] != MOMENT:
        return None
    end = place + covered(payload[place])
    if summing(len(payload))(payload[:end], start(tag)) != found:
        return None
    numbers = header(names) + payload[first_number(names + 2) : moment]
    return Opened(numbers, *stamp(payload, names))


def place_of_index(names: int) -> int:
    """Where in a payload with so many numbers the index begins."""
    return first_number(names + 2) + NUMBER * (names + 1)


def covered(first: int) -> int:
    """Bytes of an index that begins with this one; the sum ends behind them."""
    return 1 + _LONGER.get(first, 0)


def stamp(payload: bytes, names: int) -> tuple[int, int | None]:
    """Moment and index of a payload that is sound."""
    place = place_of_index(names)
    (at,) = _WHOLE.unpack_from(payload, place - NUMBER + 1)
    return at, index_in(payload[place:])


def header(names: int) -> bytes:
    """How a msgpack array of so many numbers begins."""
    return bytes([0x90 | names]) if names < 16 else struct.pack(">BH", 0xDC, names)


def index_bytes(index: int | None) -> bytes:
    """An index with its zeros."""
    return _encode(index).ljust(NUMBER, b"\0")


def index_in(data: bytes) -> int | None:
    """The index that bytes begin with; `None` also for one of more than 64 bits, to lose only the index."""
    if data[0] == NO_INDEX:
        return None
    try:
        found = _index(data[: covered(data[0])])
    except msgspec.MsgspecError:
        return None
    return found if found < 1 << 63 else None
