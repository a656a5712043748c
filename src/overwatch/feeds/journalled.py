"""The batches of a collector's journal, read where they lie: what it accepted and had not let go of yet."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch.feeds.source import Account
from overwatch.journal import LogVersionError, Signal
from overwatch.journal.scan import scan
from overwatch.recordings.index import Entry, Located, RecordingError, StartBody, Started

_start_body: Final = msgspec.json.Decoder(StartBody).decode


class Journalled:
    """A folder of journal segments. Nothing in it is changed; a collector may be writing to it."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.account = Account()
        self._folder = folder

    def entries(self) -> Iterator[Entry]:
        """Batches and starts as they were accepted."""
        self.account.clear()
        wanted: int | None = None
        try:
            for kept in scan(self._folder):
                if wanted is not None and kept.sequence > wanted:
                    self.account.remark(f"{self.name}: batches {wanted} to {kept.sequence - 1} are missing")
                wanted = kept.sequence + 1
                if kept.signal is Signal.START:
                    body = self._start(kept.body)
                    yield Started(sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, body=body)
                else:
                    yield Located(
                        sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, file=kept.file,
                        offset=kept.offset, length=len(kept.body),
                    )  # fmt: skip
        except LogVersionError as error:
            raise RecordingError(str(error)) from error

    def body(self, entry: Located) -> bytes:
        """The request of an entry; `OSError` once the collector let go of it."""
        with (self._folder / entry.file).open("rb") as file:
            return os.pread(file.fileno(), entry.length, entry.offset)

    def _start(self, body: bytes) -> StartBody:
        try:
            return _start_body(body)
        except msgspec.DecodeError:
            self.account.skip(self.name, "a start record that cannot be read")
            return StartBody()
