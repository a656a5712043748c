"""A state that is a fold of operations, on disk: its operations in a log, the bytes of its items beside them.

Owns durability for services that hold what others sent: `Store` keeps the operations of any `Book`. Must not
know what operations mean, nor who waits.
"""

from overwatch_rl.oplog.book import Book
from overwatch_rl.oplog.recovering import Recovery
from overwatch_rl.oplog.store import ItemLostError, Level, Store, StoreLimits
from overwatch_rl.oplog.writing import StoreClosedError

__all__ = ["Book", "ItemLostError", "Level", "Recovery", "Store", "StoreClosedError", "StoreLimits"]
