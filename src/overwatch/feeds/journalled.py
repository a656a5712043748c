"""What a collector's journal and a trainer's spool hold, read where they lie.

A journal has what its collector accepted and did not let go of yet; a spool, what its collector did not take
yet. Rules: nothing is changed, and who writes may go on. Must not know what bodies mean.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch.feeds.source import Account
from overwatch.journal import LogVersionError, Signal
from overwatch.journal.scan import Kept, scan, spooled
from overwatch.recordings.index import Entry, Located, RecordingError, StartBody, Started

_start_body: Final = msgspec.json.Decoder(StartBody).decode


class _Segments:
    """A folder of log segments."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.account = Account()
        self._folder = folder

    def entries(self) -> Iterator[Entry]:
        """Requests and starts in the order in which they were written; a stamp is when."""
        self.account.clear()
        try:
            yield from map(self._entry, self._kept())
        except LogVersionError as error:
            raise RecordingError(str(error)) from error

    def body(self, entry: Located) -> bytes:
        """The request of an entry; `OSError` once its owner let go of it."""
        with (self._folder / entry.file).open("rb") as file:
            return os.pread(file.fileno(), entry.length, entry.offset)

    def _kept(self) -> Iterator[Kept]:
        raise NotImplementedError

    def _entry(self, kept: Kept) -> Entry:
        if kept.signal is Signal.START:
            body = self._start(kept.body)
            return Started(sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, body=body)
        return Located(
            sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, file=kept.file,
            offset=kept.offset, length=len(kept.body),
        )  # fmt: skip

    def _start(self, body: bytes) -> StartBody:
        try:
            return _start_body(body)
        except msgspec.DecodeError:
            self.account.skip(self.name, "a start record that cannot be read")
            return StartBody()


class Journalled(_Segments):
    """A collector's journal."""

    def _kept(self) -> Iterator[Kept]:
        wanted: int | None = None
        for kept in scan(self._folder):
            if wanted is not None and kept.sequence > wanted:
                self.account.remark(f"{self.name}: batches {wanted} to {kept.sequence - 1} are missing")
            wanted = kept.sequence + 1
            yield kept


class Spooled(_Segments):
    """One producer's spool."""

    def _kept(self) -> Iterator[Kept]:
        return spooled(self._folder)
