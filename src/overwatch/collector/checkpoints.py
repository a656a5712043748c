"""Checkpoints of the fold in the journal's folder, so that a restart folds seconds again and not the past.

Rules: two files, written in turn, each replaced as a whole, so that one that is damaged or half written
leaves the one before it. What cannot be read, and what another version wrote, is passed over with a message:
older is slower, never wrong. Some are left beside recordings too. Writing happens in a thread of its own.
Must not know what a fold holds.
"""

import errno
import logging
import os
import stat
import struct
import threading
import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from overwatch import __version__
from overwatch.aggregator import LONGEST_SILENCE_NS, Checkpoint, Resumed
from overwatch.collector.health import Health
from overwatch.fold import SLOW_NS, Fold
from overwatch.journal import Cursor, DurableJournal, Folder
from overwatch.recordings.checkpoints import Leaving

EVERY_NS: Final = 30 * SLOW_NS
"""Time between two checkpoints."""

MOST_BYTES: Final = 64 << 20
"""A checkpoint comes sooner when the journal grew by this much."""

IDLE_NS: Final = LONGEST_SILENCE_NS
"""The same while nothing comes: what is passed over then is passed over by a restart too."""
BYTES_A_SECOND: Final = 1 << 19
"""What checkpoints may write on average."""
_TIMES_TAKEN: Final = 50
"""Times as long as making one takes until the next: the fold stands still for it."""
_OF_SIZE: Final = 4
"""Times its size by which the journal grows until the next."""
_OF_JOURNAL: Final = 0.25
"""By this share of its room on disk the journal grows at most until the next, whatever one costs: what came
since the last but one is kept, and a journal that is full takes nothing in."""
MOST_FILE_BYTES: Final = 1 << 30
VERSION: Final = 7
NAMES: Final = ("fold-0.checkpoint", "fold-1.checkpoint")
_MAGIC: Final = b"\xf5OWk"
_HEAD: Final = struct.Struct("<4sBI")
_PART: Final = "checkpoints"
_LEFT: Final = "checkpoints/recording"

_log = logging.getLogger("overwatch.collector")


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint on disk."""

    version: str
    """Of Overwatch; another one may fold differently."""
    tick: int
    position: int
    fold: bytes


_kept: Final = msgspec.msgpack.Decoder(_Kept).decode


class Checkpoints:
    """The checkpoints of one collector. `load` before the journal is opened, then `attach`, then `keep`."""

    def __init__(self, folder: Folder, health: Health) -> None:
        self._folder = folder
        self._health = health
        self._found: list[tuple[int, _Kept]] = []
        self._turn = 0
        self._journal: DurableJournal | None = None
        self._cursor: Cursor | None = None
        self._before = 0
        """Position of the newest checkpoint on disk."""
        self._last_tick = 0
        self._last_bytes = 0
        self._size, self._took_s = 0, 0.0
        """Of the newest one, and what it took to make it."""
        self._leaving: tuple[Leaving, ...] = ()
        self._waiting: Checkpoint | None = None
        self._stopping = False
        self._work = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=_PART, daemon=True)

    def load(self) -> tuple[Resumed, int] | None:
        """The newest checkpoint that can be used and the position after it, or `None`."""
        self._found = sorted(
            ((turn, kept) for turn in range(len(NAMES)) if (kept := self._read(NAMES[turn])) is not None),
            key=lambda found: (found[1].position, found[1].tick),
            reverse=True,
        )
        for turn, kept in self._found:
            try:
                fold = Fold.load(kept.fold)
            except Exception as error:  # noqa: BLE001 whatever it is, starting never needs a person
                _log.warning("checkpoint %s does not fit this version: %s", NAMES[turn], error)
                continue
            self._turn, self._before, self._last_tick = 1 - turn, kept.position, kept.tick
            self._size = len(kept.fold)
            self._found = [(one, msgspec.structs.replace(each, fold=b"")) for one, each in self._found]
            return Resumed(fold=fold, tick=kept.tick), kept.position
        return None

    @property
    def floor(self) -> tuple[int, int]:
        """The sequence and the stamp after which the journal must go on."""
        newest = [kept for _, kept in self._found]
        return max([kept.position for kept in newest], default=1), max(
            [kept.tick for kept in newest], default=0
        )

    def attach(self, journal: DurableJournal, cursor: Cursor) -> None:
        """Report which journal grows, and which cursor may let go of what two checkpoints have passed."""
        self._journal, self._cursor = journal, cursor
        self._last_bytes = journal.written_bytes

    def leave(self, leaving: Iterable[Leaving]) -> None:
        """Leave some beside these recordings too."""
        self._leaving = tuple(leaving)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._health.watch(_PART, self._thread.is_alive)

    def stop(self) -> None:
        """Write what waits."""
        with self._work:
            self._stopping = True
            self._work.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def due(self, tick: int) -> bool:
        """Whether time went by or the journal grew since the last one."""
        if self._last_tick == 0:
            self._last_tick = tick
        grown = 0
        if self._journal is not None:
            grown = self._journal.written_bytes - self._last_bytes
            most = self._journal.limits.disk_bytes * _OF_JOURNAL
            if grown >= min(max(MOST_BYTES, _OF_SIZE * self._size), most):
                return True
        apart = max(
            EVERY_NS, self._size * SLOW_NS // BYTES_A_SECOND, round(self._took_s * _TIMES_TAKEN * 1e9)
        )
        return tick - self._last_tick >= (apart if grown else max(apart, IDLE_NS))

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write it soon; one that waits still is left out for it."""
        self._last_tick, self._size, self._took_s = checkpoint.tick, len(checkpoint.fold), checkpoint.took_s
        self._last_bytes = 0 if self._journal is None else self._journal.written_bytes
        with self._work:
            self._waiting = checkpoint
            self._work.notify()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting is not None or self._stopping)
                checkpoint, self._waiting = self._waiting, None
            if checkpoint is None:
                return
            self._write(checkpoint)
            self._leave(checkpoint)

    def _leave(self, checkpoint: Checkpoint) -> None:
        """The border to the disk: without it a replay only folds for longer."""
        for leaving in self._leaving:
            try:
                if leaving.take(checkpoint):
                    self._health.recovered(_LEFT)
            except OSError as error:
                self._health.failed(_LEFT, f"{error.filename or 'a recording'}: {error.strerror or error}")

    def _write(self, checkpoint: Checkpoint) -> None:
        """The border to the disk: without a new checkpoint the journal only keeps more."""
        kept = _Kept(
            version=__version__, tick=checkpoint.tick, position=checkpoint.position, fold=checkpoint.fold
        )
        body = msgspec.msgpack.encode(kept)
        try:
            self._folder.replace(NAMES[self._turn], _HEAD.pack(_MAGIC, VERSION, zlib.crc32(body)) + body)
            self._folder.files.sync()
        except OSError as error:
            self._health.failed(_PART, f"{self._folder.path}: {error.strerror or error}")
            return
        self._health.recovered(_PART)
        if self._cursor is not None and self._before:
            self._cursor.keep(self._before)
        self._turn, self._before = 1 - self._turn, checkpoint.position

    def _read(self, name: str) -> _Kept | None:
        try:
            data = self._bytes(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("checkpoint %s cannot be read: %s", name, error.strerror or error)
            return None
        magic, version, check = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
        body = data[_HEAD.size :]
        if magic != _MAGIC or (version == VERSION and check != zlib.crc32(body)):
            _log.warning("checkpoint %s is damaged; an older one is used", name)
            return None
        try:
            kept = _kept(body) if version == VERSION else None
        except msgspec.MsgspecError:
            kept = None
        if kept is None or kept.version != __version__:
            by = f"layout {version}" if kept is None else f"version {kept.version}"
            _log.warning("checkpoint %s was written by %s; the journal is folded again instead", name, by)
            return None
        return kept

    def _bytes(self, name: str) -> bytes:
        with open(self._folder.open(name), "rb") as file:  # noqa: PTH123 a descriptor
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_FILE_BYTES:
                raise OSError(errno.EFBIG, "it is no regular file, or larger than any checkpoint")
            # A large file of something else is not read.
            head = file.read(_HEAD.size)
            return head + file.read(MOST_FILE_BYTES) if head.startswith(_MAGIC) else head
