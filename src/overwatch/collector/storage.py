"""The collector's memory of earlier lives: the journal on disk, its checkpoints, and where to go on.

Rules: opening never needs a person; what is damaged is passed over and logged. A clock that went back is set
after the journal's last stamp, so that time never falls. Must not know what components do with it.
"""

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from overwatch.aggregator import Resumed
from overwatch.collector.checkpoints import Checkpoints
from overwatch.collector.extensions.file_storage import FileStorageConfig
from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.past_memory import PastMemory
from overwatch.fold import SLOW_NS
from overwatch.journal import Cursor, DurableJournal, Folder, FolderLostError, JournalLimits
from overwatch.journal.batches import SEGMENT_BYTES

_PART: Final = "journal"
_SEGMENTS: Final = 16
"""Of so many the journal is at least: it gives room back one at a time."""
_LOST: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""Errors of a folder that does not come back, where e.g. EIO may pass."""
_log = logging.getLogger("overwatch.collector")


class Storage:
    """What lies in the folder `journal` of the data folder. `close` it."""

    def __init__(
        self,
        config: FileStorageConfig,
        held_bytes: int,
        now: Callable[[], int],
        health: Health,
        memory: LimitsConfig,
    ) -> None:
        """Open it; raises `OSError` or `LogVersionError`, with what to do."""
        self._health = health
        self._now, self._ahead = now, 0
        self._folder = Folder(config.directory / "journal")
        most = config.max_size_mib << 20
        limits = JournalLimits(
            durability=config.durability,
            held_bytes=held_bytes,
            disk_bytes=most,
            segment_bytes=min(SEGMENT_BYTES, most // _SEGMENTS),
        )
        try:
            self.checkpoints = Checkpoints(self._folder, health)
            self.past = PastMemory(health, memory)
            self._loaded = self.checkpoints.load()
            report, floor = partial(health.report, _PART), self.checkpoints.floor
            self.journal = DurableJournal(self._folder, self.clock, limits, floor=floor, report=report)
        except BaseException:
            self._folder.close()
            raise
        self._log_what_was_found()

    def clock(self) -> int:
        """The time in Unix nanoseconds, as far ahead of the machine's as the journal was before."""
        return self._now() + self._ahead

    def resume(self) -> tuple[Cursor, Resumed | None]:
        """The aggregator's cursor and where it goes on; `None` where nothing came before."""
        (resumed, position), self._loaded = self._loaded or (Resumed(), self.journal.first_sequence), None
        is_new = resumed.tick == 0 and position == self.journal.opened_at
        if not is_new and not self.past.has_room():
            # What began empty is what a replay of this life begins with too.
            self.past.leave_out("all that was known of earlier lives")
            is_new, position = True, self.journal.opened_at
        cursor = self.journal.cursor("aggregator", position, made=True)
        self.checkpoints.attach(self.journal, cursor)
        resumed.past = self.past
        return cursor, None if is_new else resumed

    def start(self) -> None:
        """Begin to keep checkpoints."""
        self.checkpoints.start()
        self._health.watch(_PART, self._goes_on)

    def stop(self) -> None:
        """Write what waits and let go of the folder."""
        self.checkpoints.stop()
        self.journal.close()
        self._folder.close()

    def _goes_on(self) -> bool:
        """Whether the journal can write again by itself, sooner or later."""
        try:
            self._folder.check()
        except FolderLostError as error:
            if error.errno in _LOST:
                self._health.lost(
                    _PART, f"{error.strerror}; what was in it is lost, and a restart makes it again"
                )
        return self.journal.is_running

    def _log_what_was_found(self) -> None:
        journal = self.journal
        lag = journal.last_stamp - self.clock()
        if lag > 5 * SLOW_NS:
            self._ahead = lag
            _log.warning(
                "the clock is %.0f s behind the journal's last batch; going on from there", lag / 1e9
            )
        if journal.recovery.torn_bytes:
            _log.warning(
                "the journal's last %d bytes were not whole and are left out", journal.recovery.torn_bytes
            )
        if journal.recovery.set_aside:
            _log.error(
                "files of the journal cannot be read and are set aside as *.bad: %s",
                ", ".join(journal.recovery.set_aside),
            )
        earlier = journal.opened_at - journal.first_sequence
        if earlier:
            _log.info("the journal holds %d batches of earlier lives", earlier)
