"""The durable log: what was accepted, in order, with one clock.

Owns the seam `Batch(sequence, stamp, signal, body)`. Under the journal's lock every accepted batch gets
the next sequence number and the stamp `max(previous + 1 ns, now)`, so order and ticks are the same
whenever the batches are read again. This form keeps batches in memory until every reader has passed them.
Must not know what the bytes mean.
"""

from typing import Final

from overwatch.journal.memory import Batch, Cursor, JournalFullError, MemoryJournal, Signal

__all__ = ["INDEX_VERSION", "Batch", "Cursor", "JournalFullError", "MemoryJournal", "Signal"]

INDEX_VERSION: Final = 1
"""Shape of the index that locates batches in a recording; its writer and its reader must agree."""
