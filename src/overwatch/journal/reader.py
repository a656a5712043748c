"""A place in a log, moving on record by record.

Rules: what is damaged, gone or unreadable is passed over and counted by the gap in the numbers; nothing is
raised. Must not know who writes.
"""

import contextlib
import os

from overwatch.journal.folder import Folder
from overwatch.journal.parts import Part, Parts
from overwatch.journal.records import HEADER_BYTES, Record, Scanner


class Reader:
    """Made by `Log.reader`; used by the log's own thread."""

    def __init__(self, parts: Parts, folder: Folder, start: int) -> None:
        self._parts = parts
        self._folder = folder
        self._part: Part | None = None
        self._scanner: Scanner | None = None
        self._fd = -1
        self.position = start
        """Sequence of the next record to read."""
        self.lost = 0
        """Records passed over because they were damaged or gone."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of the log from this place on; all of them before the first read."""
        if self._part is None:
            return self._parts.bytes_after(0, 0)
        offset = self._part.end if self._scanner is None else self._scanner.offset
        return self._parts.bytes_after(self._part.number, offset)

    def offset_of(self, record: Record) -> int:
        """Where in its file the record begins that `next` returned last."""
        offset = 0 if self._scanner is None else self._scanner.offset
        return offset - HEADER_BYTES - len(record.payload)

    def next(self) -> Record | None:
        """The next whole record; `None` at the end of the log, for now."""
        if self._part is None:
            self._enter(self._parts.holding(self.position))
        while self._part is not None:
            record = self._found(self._part)
            following = self._parts.following(self._part.number)
            if record is not None and (following is None or record.sequence < following.first):
                self.lost += record.sequence - self.position
                self.position = record.sequence + 1
                return record
            if following is None:
                return None
            self._enter(following)
        return None

    def close(self) -> None:
        """Let go of the file; the place is kept, nothing more is read from this file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._scanner = -1, None

    def _found(self, part: Part) -> Record | None:
        if self._scanner is None:
            self._enter(part)
        if self._scanner is not None:
            with contextlib.suppress(OSError):
                return self._scanner.next(part.end, self.position)
        return None

    def _enter(self, part: Part | None) -> None:
        self.close()
        self._part = part
        if part is not None:
            with contextlib.suppress(OSError):
                self._fd = self._folder.open(part.name)
                self._scanner = Scanner(self._fd, part.salt)
