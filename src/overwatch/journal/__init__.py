"""The durable log: what was accepted, in order, with one clock.

Owns the seam `Batch(sequence, stamp, signal, body)`. Under the journal's lock every accepted batch gets
the next sequence number and the stamp `max(previous + 1 ns, now)`, so order and ticks are the same
whenever the batches are read again. `MemoryJournal` keeps batches in memory until every reader has passed
them; `Log` keeps records on disk, `CursorFile` a reader's place, `Folder` the lock on both.
Must not know what the bytes mean.
"""

from typing import Final

from overwatch.journal.cursors import CursorFile, Place
from overwatch.journal.folder import (
    DiskFiles,
    File,
    Files,
    Folder,
    FolderBusyError,
    FolderLostError,
    is_held,
)
from overwatch.journal.memory import Batch, Cursor, JournalFullError, MemoryJournal, Signal
from overwatch.journal.parts import LogVersionError
from overwatch.journal.reader import Reader
from overwatch.journal.records import HEADER_BYTES, Record
from overwatch.journal.segments import Log, LogLimits, LogSyncError, LogWriteError, Recovery

__all__ = [
    "HEADER_BYTES",
    "INDEX_VERSION",
    "Batch",
    "Cursor",
    "CursorFile",
    "DiskFiles",
    "File",
    "Files",
    "Folder",
    "FolderBusyError",
    "FolderLostError",
    "JournalFullError",
    "Log",
    "LogLimits",
    "LogSyncError",
    "LogVersionError",
    "LogWriteError",
    "MemoryJournal",
    "Place",
    "Reader",
    "Record",
    "Recovery",
    "Signal",
    "is_held",
]

INDEX_VERSION: Final = 1
"""Shape of the index that locates batches in a recording; its writer and its reader must agree."""
