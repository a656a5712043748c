"""A journal's files read where they lie, by who does not own them: no lock, no recovery, nothing changed.

For looking at what a collector that is gone, or at work, left behind. Rules: what is damaged is passed over,
a gap in the numbers shows it. Must not know what the bodies mean.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from overwatch.journal.batches import Signal
from overwatch.journal.durable import KINDS
from overwatch.journal.parts import parts_in
from overwatch.journal.records import Scanner

_LOG = "journal"
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
    return has_log(folder, _LOG)


def has_log(folder: Path, log: str) -> bool:
    """Whether files of a log lie here. Raises `OSError`, `LogVersionError`."""
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
