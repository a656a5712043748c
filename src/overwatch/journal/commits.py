"""Group commit: one thread writes to a log whatever waits together, syncs once, then settles it.

Rules: nothing is settled before it is as durable as was asked. What the disk refuses is settled with the
error, which `report` is given once; a disk that refused is tried again while nothing comes. Whatever goes
wrong, every item is settled. How long the disk takes is measured, and logged where it is slow. Must not know
what items are, nor who waits for them.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from overwatch.journal.batches import TYPICAL_BYTES, Durability, Pace
from overwatch.journal.segments import Log

_FAST_SYNC_S: Final = 1.0
"""Longest time that what `fast` acknowledged is not safe from a power loss, in seconds."""
_RETRY_S: Final = 1.0
"""Time between two attempts to write to a disk that refused, in seconds, while nothing comes."""
_SLOW_S: Final = 1.0
"""Time of one commit from which on the disk is slow, in seconds."""
_PROBE: Final = "probe"

_Item = TypeVar("_Item")
_Item_contra = TypeVar("_Item_contra", contravariant=True)

_log = logging.getLogger("overwatch.journal")


class Writes(Protocol[_Item_contra]):
    """What one log's items are: called by the thread that writes, without its lock."""

    def begin(self, group: Sequence[_Item_contra]) -> None:
        """These are written next, if any; first what an earlier refusal left over. Raises `OSError`."""
        ...

    def write(self, item: _Item_contra) -> None:
        """Append it by `GroupCommit.append`. Raises `OSError` or `ValueError`, and then it is refused."""
        ...

    def settle(self, group: Sequence[tuple[_Item_contra, Exception | None]], doubt: Exception | None) -> None:
        """Acknowledge each item that is kept, refuse those that have an error.

        `doubt` is why nothing that was written since the last time is safe, of whichever group it was.
        """
        ...

    def needed(self) -> int:
        """The oldest sequence that must stay in the log."""
        ...


class GroupCommit(Generic[_Item]):
    """The one writer of a log. `start` it, then `close` it, and the log after it."""

    def __init__(
        self,
        log: Log,
        writes: Writes[_Item],
        durability: Durability = Durability.FSYNC,
        report: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """`report` is given why the disk refuses, and `None` when it does no more."""
        self.lock = threading.RLock()
        """Guards what waits."""
        self.files = threading.Lock()
        """Guards the log's list of files: held to append, to drop and to read, not to sync."""
        self.refusal: OSError | ValueError | None = None
        """Why the disk refused the last attempt."""
        self.is_closing = False
        self._log, self._writes, self._durability, self._report = log, writes, durability, report
        self._work = threading.Condition(self.lock)
        self._waiting: deque[_Item] = deque()
        self._trouble: OSError | None = None
        """Why nothing of what is being written can be kept."""
        self._unsynced_since: float | None = None
        self._is_woken = False
        self._commits, self._took_s, self._slow = 0, 0.0, 0
        self._began: float | None = None
        """When the commit that is under way began."""
        self._thread = threading.Thread(target=self._run, name=log.name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread goes on; without it nothing is settled."""
        return self._thread.is_alive()

    @property
    def pace(self) -> Pace:
        """How fast the disk is; from any thread, at once."""
        began = self._began
        waiting_s = 0.0 if began is None else time.monotonic() - began
        return Pace(self._commits, self._took_s, waiting_s)

    @property
    def waiting(self) -> Iterable[_Item]:
        """What was submitted and is not being written yet; the caller holds the lock."""
        return self._waiting

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def submit(self, item: _Item) -> None:
        """Write an item soon, after those before it."""
        with self._work:
            self._waiting.append(item)
            self._work.notify()

    def wake(self) -> None:
        """Look now whether a file can be dropped."""
        with self._work:
            self._is_woken = True
            self._work.notify()

    def append(self, kind: int, stamp: int, *payload: bytes) -> int:
        """Add a record, for `Writes`; its sequence. Raises `OSError`, `ValueError` as `Log.append` does."""
        if self._trouble is not None:
            raise self._trouble
        with self.files:
            sequence = self._log.append(kind, stamp, *payload)
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()
        return sequence

    def close(self) -> None:
        """Settle what waits and end the thread. A second call does nothing."""
        with self._work:
            self.is_closing = True
            self._work.notify()
        self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._work:
                self._work.wait_for(
                    lambda: self._waiting or self.is_closing or self._is_woken, self._patience_s
                )
                self._is_woken = False
                group = list(self._waiting)
                self._waiting.clear()
                closing = self.is_closing and not group
            self._began = time.monotonic() if group or self._unsynced_since is not None else None
            self._guarded(group, closing=closing)
            self._drop()
            self._measure()

    @property
    def _patience_s(self) -> float | None:
        """The longest time until there is something to do without a new item."""
        if self.refusal is not None:
            return _RETRY_S
        return None if self._unsynced_since is None else _FAST_SYNC_S

    def _measure(self) -> None:
        """Log a slow commit: the first time, and whenever there are twice as many."""
        if self._began is None:
            return
        took_s, self._began = time.monotonic() - self._began, None
        self._commits, self._took_s = self._commits + 1, self._took_s + took_s
        self._slow += took_s >= _SLOW_S
        if took_s >= _SLOW_S and self._slow & (self._slow - 1) == 0:
            _log.warning(
                "%s: the disk is slow, or this process had no CPU: to write and sync what waited took "
                "%.1f s, the %d. time of more than %g s; what is sent is acknowledged only after that",
                self._log.folder.path, took_s, self._slow, _SLOW_S,
            )  # fmt: skip

    def _guarded(self, group: list[_Item], *, closing: bool) -> None:
        """The border of the thread: whatever goes wrong, no caller waits for ever."""
        try:
            self._commit(group, closing=closing)
        except Exception as error:  # noqa: BLE001 logged, and raised at every sender
            _log.exception("the journal could not write")
            self._writes.settle([(item, error) for item in group], error)

    def _commit(self, group: list[_Item], *, closing: bool) -> None:
        """The border to the disk: what it refuses is refused to its sender, and reported once by `report`."""
        is_retry = not group and self.refusal is not None and not closing
        self._trouble = self._look() if group or is_retry else None
        error = self._begin(group, probe=is_retry)
        settled: list[tuple[_Item, Exception | None]] = []
        for item in group:
            try:
                self._writes.write(item)
                settled.append((item, None))
            except (OSError, ValueError) as refused:
                error = refused
                settled.append((item, refused))
        doubt = None
        try:
            self._sync(closing=closing)
        except OSError as refused:
            error = refused
            if self._durability is not Durability.FAST:
                doubt, settled = refused, [(item, before or refused) for item, before in settled]
        self._writes.settle(settled, doubt)
        if group or is_retry or error:
            self.refusal = error
            self._report(None if error is None else str(error))

    def _begin(self, group: list[_Item], *, probe: bool) -> OSError | ValueError | None:
        """Why a disk refuses before anything of a group is written; it may be that no sender asks."""
        try:
            self._writes.begin(group)
            if probe:
                if self._trouble is not None:
                    return self._trouble
                self._log.folder.replace(_PROBE, bytes(TYPICAL_BYTES))
                self._log.folder.files.remove(_PROBE)
        except (OSError, ValueError) as error:
            return error
        return None

    def _look(self) -> OSError | None:
        """Why nothing can be kept in this folder; looked at once for what is written together."""
        try:
            self._log.folder.check()
            with self.files:
                self._log.check()
        except OSError as error:
            return error
        return None

    def _sync(self, *, closing: bool) -> None:
        """Make it durable: now, or in `fast` once it has waited for half of its time."""
        since, due = self._unsynced_since, closing or self._durability is Durability.FSYNC
        if since is not None and (due or time.monotonic() - since >= _FAST_SYNC_S / 2):
            self._unsynced_since = None
            self._log.sync()

    def _drop(self) -> None:
        needed = self._writes.needed()
        try:
            with self.files:
                self._log.drop(needed)
        except OSError as error:
            where = self._log.folder.path
            self._report(f"{where}: a file that is no longer needed cannot be removed: {error.strerror}")
