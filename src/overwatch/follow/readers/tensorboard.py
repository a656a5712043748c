"""TensorBoard's event files: their scalars; one row for those of one step that follow one another.

A record is its length, the masked CRC-32C of that, its bytes and the masked CRC-32C of these; the bytes are
`tensorflow.Event`. Rules: a record with a wrong checksum is passed over, and a broken length up to the next
one that is whole; histograms, images and text are no numbers, and some texts are settings.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from overwatch.follow.base import MOST_BYTES, Known, Logged
from overwatch.follow.readers.fields import fields, floating, text
from overwatch.follow.readers.settings import MARKS, settings_of

_HEADER: Final = struct.Struct("<QI")
FIRST_BYTES: Final = 16 << 10
"""Of a file that is only asked for its first name."""
_MOST_BYTES: Final = 1 << 20
"""Of an event that is looked into: scalars are small."""
_ONE: Final = {1: ("<f", 5), 2: ("<d", 6)}
"""Of a tensor by its type: how one number is packed, and the field of the numbers."""


def _crc_of(value: int) -> int:
    """CRC-32C of one byte, as far as a table has it."""
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE: Final = tuple(map(_crc_of, range(256)))


def masked_crc(data: bytes) -> int:
    """The checksum of a record's part."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


class EventReader:
    """One file."""

    def __init__(self, folder: str = "") -> None:
        """`folder` is that of `add_scalars`, which has part of each name."""
        self.known = Known()
        self._folder = folder
        self._rest = b""
        self._row: dict[str, float] = {}
        """Scalars of one step, as far as they came."""
        self._now: tuple[float, float | None] = (0.0, 0.0)
        self._at_zero: set[str] = set()
        """Names that came at step 0, which is also how a scalar without a step is written."""

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row for the scalars of one step, each name once; without steps it ends where a name recurs."""
        for at, step, scalars in self._events(data):
            here: float | None = step
            if step == 0:
                is_stepless = self._now[1] is None or not self._at_zero.isdisjoint(scalars)
                here = None if is_stepless else step
                self._at_zero |= scalars.keys()
            if self._row and (here != self._now[1] or not self._row.keys().isdisjoint(scalars)):
                yield self._whole()
            self._row.update(scalars)
            self._now = (at, here)
        if self._row and self._now[1] is not None:
            yield self._whole()

    def _whole(self) -> Logged:
        row, self._row = self._row, {}
        return Logged(values=row, at=self._now[0], step=self._now[1])

    def restart(self) -> None:
        """Records begin anew."""
        self._rest, self._row, self._now = b"", {}, (0.0, 0.0)
        self._at_zero.clear()

    def end(self) -> list[Logged]:
        """Nothing follows: a row without a step is whole."""
        self.known.problems.update(["records cut off at the end"] if self._rest else [])
        self._rest = b""
        return [self._whole()] if self._row else []

    def _events(self, data: bytes) -> Iterator[tuple[float, float, dict[str, float]]]:
        for record in self._records(data):
            try:
                found = _event(record)
                if any(mark in record for mark in MARKS):
                    self.known.config.update(_settings(record))
            except ValueError:
                self.known.problems["records that are no event"] += 1
                continue
            if found[2]:
                yield *found[:2], {_full(name, self._folder): value for name, value in found[2].items()}

    def _records(self, data: bytes) -> Iterator[bytes]:
        rest, at = self._rest + data, 0
        while len(rest) - at >= _HEADER.size:
            length, crc = _HEADER.unpack_from(rest, at)
            if length > MOST_BYTES or masked_crc(rest[at : at + 8]) != crc:
                self.known.problems["stretches of bytes that are no record"] += 1
                at = _next_record(rest, at + 1)
                continue
            begin, end = at + _HEADER.size, at + _HEADER.size + length
            if len(rest) < end + 4:
                break
            record, at = rest[begin:end], end + 4
            if length > _MOST_BYTES:
                continue
            if masked_crc(record) == int.from_bytes(rest[end : end + 4], "little"):
                yield record
            else:
                self.known.problems["records with a wrong checksum"] += 1
        self._rest = rest[at:]


def _next_record(data: bytes, at: int) -> int:
    """Where the next header may begin: the upper half of its length is zero."""
    while (zeros := data.find(b"\0\0\0\0", at + 4)) >= 0:
        at = zeros - 4
        if len(data) - at < _HEADER.size:
            return at
        if masked_crc(data[at : at + 8]) == _HEADER.unpack_from(data, at)[1]:
            return at
        at += 1
    return max(at, len(data) - 11)


def _settings(record: bytes) -> dict[str, str]:
    """The settings in `tensorflow.Event`. Raises `ValueError`."""
    summaries = [one for field, one in fields(record) if field == 5 and isinstance(one, bytes)]
    values = [one for summary in summaries for inner, one in fields(summary) if inner == 1]
    return {name: word for one in values if isinstance(one, bytes) for name, word in settings_of(one).items()}


def _event(record: bytes) -> tuple[float, float, dict[str, float]]:
    """Time, step and scalars of `tensorflow.Event`. Raises `ValueError`."""
    at, step, scalars = 0.0, 0, dict[str, float]()
    for field, value in fields(record):
        if field == 1:
            at = floating(value, "<d")
        elif field == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif field == 5 and isinstance(value, bytes):
            for inner, one in fields(value):
                if inner == 1 and isinstance(one, bytes):
                    scalars.update(_scalar(one))
    return at, float(step), scalars


def _scalar(summary: bytes) -> dict[str, float]:
    """The tag and number of `Summary.Value`; nothing where it has another kind of value."""
    tag, number = "", None
    for field, value in fields(summary):
        if field == 1:
            tag = text(value)
        elif field == 2:
            number = floating(value, "<f")
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return {} if number is None else {tag: number}


def _tensor(message: bytes) -> float | None:
    """The only number of a tensor."""
    found = dict(fields(message))
    kind, place = _ONE.get(found.get(1, 0), ("", 0))  # type: ignore[arg-type]  # a type is a number
    packed = found.get(4) or found.get(place)
    is_one = bool(kind) and isinstance(packed, bytes) and len(packed) == struct.calcsize(kind)
    return floating(packed, kind) if is_one and packed is not None else None


def looks_like(head: bytes) -> bool:
    """Whether a file begins with a record."""
    return len(head) >= 12 and masked_crc(head[:8]) == _HEADER.unpack_from(head)[1]


def _full(tag: str, folder: str) -> str:
    """The name of a scalar whose `add_scalars` put the rest of it into the name of the folder."""
    first = tag.replace("/", "_") + "_"
    return f"{tag}/{folder.removeprefix(first)}" if folder.startswith(first) else tag


@lru_cache(maxsize=4096)
def first_tag(path: Path, size: int) -> str:
    """Name of the first scalar of a file of so many bytes; empty where there is none at its beginning."""
    try:
        with path.open("rb") as file:
            rows = EventReader().feed(file.read(size))
            return next((name for row in rows for name in row.values), "")
    except OSError:
        return ""
