"""The durable log: what was accepted, in order, with one clock.

Owns the seam `Batch(sequence, stamp, signal, body)`. Under the journal's lock every accepted batch gets
the next sequence number and the stamp `max(previous + 1 ns, now)`, so order and ticks are the same
whenever the batches are read again. `MemoryJournal` keeps batches in memory until every reader has passed
them, `DurableJournal` on disk: `Log` keeps its records, `GroupCommit` writes and syncs them in groups,
`CursorFile` a reader's place, `Note` what else a part leaves for its next life, `Folder` the lock.
Must not know what the bytes mean.
"""

from typing import Final

from overwatch.journal.batches import (
    Batch,
    Cursor,
    Durability,
    Gap,
    Journal,
    JournalFullError,
    JournalLimits,
    Lag,
    Made,
    Signal,
)
from overwatch.journal.commits import GroupCommit
from overwatch.journal.cursors import CursorFile, Note, Place
from overwatch.journal.durable import DurableJournal
from overwatch.journal.folder import (
    File,
    Files,
    Folder,
    FolderBusyError,
    FolderLostError,
    is_held,
)
from overwatch.journal.memory import MemoryJournal
from overwatch.journal.records import HEADER_BYTES, LogVersionError, Reader, Record
from overwatch.journal.segments import Log, LogLimits, LogSyncError, LogWriteError, Placed, Recovery

__all__ = [
    "HEADER_BYTES",
    "INDEX_VERSION",
    "Batch",
    "Cursor",
    "CursorFile",
    "Durability",
    "DurableJournal",
    "File",
    "Files",
    "Folder",
    "FolderBusyError",
    "FolderLostError",
    "Gap",
    "GroupCommit",
    "Journal",
    "JournalFullError",
    "JournalLimits",
    "Lag",
    "Log",
    "LogLimits",
    "LogSyncError",
    "LogVersionError",
    "LogWriteError",
    "Made",
    "MemoryJournal",
    "Note",
    "Place",
    "Placed",
    "Reader",
    "Record",
    "Recovery",
    "Signal",
    "is_held",
]

INDEX_VERSION: Final = 1
"""Shape of the index that locates batches in a recording; its writer and its reader must agree."""
