"""How a spool's requests lie in records, and reading them where they lie, as `scan` reads a journal.

A spool has two logs, facts and numbers. Each record is a request behind a head, whose first element is the
request's place in the order of both; before the head stands its length. Rules: no lock, no recovery, nothing
changed; what is damaged is passed over. Must not know what else heads hold, nor what bodies mean.
"""

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch.journal.scan import Kept, has_log, scan

LOGS: Final = ("facts", "numbers")
_LENGTH_BYTES: Final = 4


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


def is_spool(folder: Path) -> bool:
    """Whether files of a spool lie here. Raises `OSError`, `LogVersionError`."""
    return any(has_log(folder, log) for log in LOGS)


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
