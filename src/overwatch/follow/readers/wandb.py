"""W&B's offline runs: the history of a `.wandb` file, its settings and its exit status.

The file is a log of LevelDB: blocks of 32 KiB, in them pieces of records, each with CRC-32, length and kind.
A record is `wandb_internal.Record`. Rules: it is read by the numbers of its fields, so W&B need not be
installed; a record with a wrong checksum is passed over.
"""

import json
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from overwatch.follow.base import Known, Logged, flat
from overwatch.follow.readers.fields import fields, text

MAGIC: Final = b":W&B\xe1\xbe\x00"
_BLOCK: Final = 32 << 10
_PIECE: Final = Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_RUN_CONFIG, _RUN_NAME = 4, 8


class WandbReader:
    """One file."""

    def __init__(self) -> None:
        self.known = Known()
        self._rest = b""
        self._at = 0
        """Where the rest lies in the file."""
        self._begun: bytes | None = None
        """Pieces of a record that is not whole."""

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row a step of the history."""
        for record in self._records(data):
            try:
                row = self._read(record)
            except ValueError:
                self.known.problems["records that are none of W&B's"] += 1
                continue
            if row:
                yield Logged(values=row)

    def restart(self) -> None:
        """The log begins anew."""
        self._rest, self._at, self._begun = b"", 0, None

    def end(self) -> list[Logged]:
        """Nothing follows."""
        self.known.problems.update(["records cut off at the end"] if self._rest.strip(b"\0") else [])
        self._rest = b""
        return []

    def _records(self, data: bytes) -> Iterator[bytes]:
        rest, at = self._rest + data, 0
        if self._at == 0 and len(rest) >= len(MAGIC):
            at = len(MAGIC)
        while self._at or at:
            left = _BLOCK - (self._at + at) % _BLOCK
            if left < _PIECE.size:
                if len(rest) - at < left:
                    break
                at += left
                continue
            if len(rest) - at < _PIECE.size:
                break
            crc, length, kind = _PIECE.unpack_from(rest, at)
            if not _FULL <= kind <= _LAST or length > left - _PIECE.size:
                if len(rest) - at < left:
                    break
                # A broken block, or one that is padded: the next one begins where it ends.
                self.known.problems.update(["blocks that are broken"] if crc or length or kind else [])
                at, self._begun = at + left, None
                continue
            begin = at + _PIECE.size
            if len(rest) < begin + length:
                break
            piece, at = rest[begin : begin + length], begin + length
            if zlib.crc32(piece, zlib.crc32(bytes([kind]))) != crc:
                self.known.problems["records with a wrong checksum"] += 1
                self._begun = None
                continue
            yield from self._joined(kind, piece)
        self._rest, self._at = rest[at:], self._at + at

    def _joined(self, kind: int, piece: bytes) -> Iterator[bytes]:
        if kind in (_FULL, _FIRST):
            self._begun = b""
        if self._begun is None:
            return
        self._begun += piece
        if kind in (_FULL, _LAST):
            yield self._begun
            self._begun = None

    def _read(self, record: bytes) -> dict[str, Any]:
        for field, value in fields(record):
            if field == _HISTORY and isinstance(value, bytes):
                return flat(_items(value))
            if field == _CONFIG and isinstance(value, bytes):
                self._configure(value)
            elif field == _RUN and isinstance(value, bytes):
                for inner, one in fields(value):
                    if inner == _RUN_CONFIG and isinstance(one, bytes):
                        self._configure(one)
                    elif inner == _RUN_NAME and isinstance(one, bytes) and one:
                        self.known.config.setdefault("run_name", text(one))
            elif field == _EXIT and isinstance(value, bytes):
                status = dict(fields(value)).get(1, 0)
                failed = ("failed", f"exit status {status!r}")
                self.known.ending = failed if status else ("completed", None)
                self.known.is_over = True
        return {}

    def _configure(self, message: bytes) -> None:
        found = flat(_items(message))
        self.known.config.update(
            (name, str(value)) for name, value in found.items() if not name.startswith("_")
        )


def _items(message: bytes) -> dict[str, Any]:
    """The items of a message: a key, or the path of a nested one, and a value of JSON."""
    found: dict[str, Any] = {}
    for field, item in fields(message):
        if field != 1 or not isinstance(item, bytes):
            continue
        path, value = list[str](), "null"
        for inner, one in fields(item):
            if inner in (1, 2):
                path.append(text(one))
            elif inner == 16:
                value = text(one)
        found["/".join(part for part in path if part)] = json.loads(value)
    return found


def looks_like(head: bytes) -> bool:
    """Whether a file begins as W&B's do."""
    return head.startswith(MAGIC[:4])
