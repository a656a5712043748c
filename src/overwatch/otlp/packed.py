"""What a body says as bytes, for who would have to decode it again: later, or in another process.

Rules: what comes out is what `decode` gives; what would take many times the bytes that it is given is not
packed, as records share what packing repeats: the name of a run of a MiB in each of a thousand. Must not know
what records mean.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import msgspec

from overwatch.events import Record
from overwatch.otlp.entities import Alive
from overwatch.otlp.result import Decoded, Problem

MOST_TIMES: Final = 8
"""So many times the size of a body what it says may take."""
_FEW: Final = 8
"""Things that are packed before anybody looks how much they take."""


class _Packed(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    items: int
    unattributed: int
    unmapped: int
    records: list[bytes]
    problems: list[bytes]
    alive: list[bytes]
    untimed: int


# msgspec learns a type at its first use, and crashes where two threads are the first: these ones are.
_write = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(_Packed).decode
_records = msgspec.msgpack.Decoder(list[Record]).decode
_problems = msgspec.msgpack.Decoder(list[Problem]).decode
_alive = msgspec.msgpack.Decoder(list[Alive]).decode


class _TooMuchError(Exception):
    """It takes more bytes than it may."""


def packed(decoded: Decoded, size: int) -> bytes | None:
    """What a body of `size` bytes says; `None` where it takes many times as many, or has series."""
    if decoded.series is not None:
        return None
    room = _Room(MOST_TIMES * size)
    try:
        parts = [room.filled(told) for told in (decoded.records, decoded.problems, decoded.alive)]
    except _TooMuchError:
        return None
    records, problems, alive = parts
    return _write(
        _Packed(
            items=decoded.items,
            unattributed=decoded.unattributed,
            unmapped=decoded.unmapped,
            records=records,
            problems=problems,
            alive=alive,
            untimed=decoded.untimed,
        )
    )


def unpacked(data: bytes) -> Decoded:
    """What a body said; raises `DecodeError` for what `packed` never made."""
    told = _read(data)
    return Decoded(
        items=told.items,
        unattributed=told.unattributed,
        unmapped=told.unmapped,
        records=tuple(chain.from_iterable(map(_records, told.records))),
        problems=tuple(chain.from_iterable(map(_problems, told.problems))),
        alive=tuple(chain.from_iterable(map(_alive, told.alive))),
        untimed=told.untimed,
    )


class _Room:
    """Bytes that are left."""

    def __init__(self, most: int) -> None:
        self._left = most

    def filled(self, told: Sequence[object]) -> list[bytes]:
        """A few things at a time; raises `_TooMuchError`."""
        parts: list[bytes] = []
        for start in range(0, len(told), _FEW):
            part = _write(told[start : start + _FEW])
            self._left -= len(part)
            if self._left < 0:
                raise _TooMuchError
            parts.append(part)
        return parts
