"""Files of a journal or a spool read where they lie, by a process that does not own them.

For looking at what a collector or a trainer that is gone, or at work, left behind. Rules: no lock, no
recovery, nothing changed; what is damaged is passed over, a gap in the numbers shows it. A spool has two
logs, facts and numbers. Each record is a request behind a head, whose first element is the request's place
in the order of both; before the head stands its length. Must not know what else heads hold, nor what bodies
mean.
"""

import heapq
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch.journal.batches import KINDS, Signal
from overwatch.journal.records import Scanner, parts_in

_LOG = "journal"
LOGS: Final = ("facts", "numbers")
_LENGTH_BYTES: Final = 4
_SIGNALS = {kind: signal for signal, kind in KINDS.items()}


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a journal, and where its body lies."""

    sequence: int
    stamp: int
    signal: Signal
    file: str
    """Name within the folder."""
    offset: int
    body: bytes


def is_journal(folder: Path) -> bool:
    """Whether files of a journal lie here. Raises `OSError`, `LogVersionError`."""
    return _has_log(folder, _LOG)


def is_spool(folder: Path) -> bool:
    """Whether files of a spool lie here. Raises `OSError`, `LogVersionError`."""
    return any(_has_log(folder, log) for log in LOGS)


def _has_log(folder: Path, log: str) -> bool:
    return bool(parts_in(_sizes(folder), log, folder))


def scan(folder: Path, log: str = _LOG) -> Iterator[Kept]:
    """Every whole record of a log, in order. Raises `OSError`, `LogVersionError`."""
    wanted = 0
    for part in parts_in(_sizes(folder), log, folder):
        fd = os.open(folder / part.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            scanner = Scanner(fd, part.salt)
            while (record := scanner.next(part.end, wanted)) is not None:
                wanted = record.sequence + 1
                signal = _SIGNALS.get(record.kind)
                if signal is not None:
                    yield Kept(
                        sequence=record.sequence, stamp=record.stamp, signal=signal, file=part.name,
                        offset=scanner.offset - len(record.payload), body=record.payload,
                    )  # fmt: skip
        finally:
            os.close(fd)


def _sizes(folder: Path) -> dict[str, int]:
    """The plain files here."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            known = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(known.st_mode):
                found[entry.name] = known.st_size
    return found


class _Head(msgspec.Struct, frozen=True, array_like=True):
    order: int


_head: Final = msgspec.msgpack.Decoder(_Head).decode


def before(head: bytes) -> bytes:
    """What stands before a head in a record."""
    return len(head).to_bytes(_LENGTH_BYTES, "little")


def parted(payload: bytes) -> tuple[bytes, int] | None:
    """A record's head, and where its body begins; `None` where it is too short to have both."""
    start = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES], "little")
    return None if start > len(payload) else (payload[_LENGTH_BYTES:start], start)


def spooled(folder: Path) -> Iterator[Kept]:
    """Every whole request, in the order in which they were put. Raises `OSError`, `LogVersionError`."""
    merged = heapq.merge(*(_requests(folder, log) for log in LOGS), key=lambda found: found[0])
    stamp = 0
    for sequence, (_, kept) in enumerate(merged, 1):
        # A clock that was set back does not change the order in which they were put.
        stamp = max(stamp + 1, kept.stamp)
        yield msgspec.structs.replace(kept, sequence=sequence, stamp=stamp)


def _requests(folder: Path, log: str) -> Iterator[tuple[int, Kept]]:
    for kept in scan(folder, log):
        found = parted(kept.body)
        if found is None:
            continue
        head, start = found
        try:
            order = _head(head).order
        except msgspec.MsgspecError:
            continue
        request = msgspec.structs.replace(kept, offset=kept.offset + start, body=kept.body[start:])
        yield order, request
