"""The requests of a trainer's spool, read where they lie: what its collector did not take yet."""

import os
from collections.abc import Iterator
from pathlib import Path

from overwatch.feeds.source import Account
from overwatch.journal import LogVersionError
from overwatch.journal.spooled import spooled
from overwatch.recordings.index import Entry, Located, RecordingError


class Spooled:
    """One producer's spool. Nothing in it is changed; a trainer may be writing to it."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.account = Account()
        self._folder = folder

    def entries(self) -> Iterator[Entry]:
        """Requests as they were put; a stamp is when its request was written."""
        self.account.clear()
        try:
            for kept in spooled(self._folder):
                yield Located(
                    sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, file=kept.file,
                    offset=kept.offset, length=len(kept.body),
                )  # fmt: skip
        except LogVersionError as error:
            raise RecordingError(str(error)) from error

    def body(self, entry: Located) -> bytes:
        """The request of an entry; `OSError` once it was delivered and let go of."""
        with (self._folder / entry.file).open("rb") as file:
            return os.pread(file.fileno(), entry.length, entry.offset)
