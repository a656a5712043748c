"""Requests kept on disk until the collector has them, over outages of it and over deaths of this process.

Rules: requests go in the order in which they came, one at a time. When the budget is used up the oldest
numbers go first and facts last, counted. Trouble with the disk is never the trainer's: requests are kept in
bounded memory then, and move to the disk when it takes them again. The page cache is enough for a request to
survive this process. Spools lie in one folder for each life of a producer, under a root of this user's own;
no part of a path is taken from outside as it is. Must not know encoding or the network.
"""

import errno
import hashlib
import os
import re
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from overwatch.journal import (
    HEADER_BYTES,
    CursorFile,
    Files,
    Folder,
    FolderBusyError,
    FolderLostError,
    Log,
    LogLimits,
    LogVersionError,
    Signal,
    is_held,
)
from overwatch.sdk.exporter.queues import DiskQueue, Entry, Mark, PriorityQueues, Request, merged

CLOSED: Final = "closed"
REJECTED: Final = "rejected"
_OVERHEAD_BYTES: Final = HEADER_BYTES + 512
_LARGEST_RECORD: Final = (1 << 32) - 1
META: Final = "meta.json"
_LONGEST_META: Final = 64 << 10
_LONGEST_PART: Final = 48
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLimits:
    """What may wait while the collector is away."""

    budget_bytes: int = 256 << 20
    """Bytes of requests that wait; the disk holds the passed part of two files besides."""
    memory_bytes: int = 32 << 20
    """Bytes of them in memory while the disk is in trouble."""
    segment_bytes: int = 4 << 20
    """Size of the files, which are removed as a whole."""
    retry_s: float = 1.0
    """A disk in trouble is tried again when a request comes, this often at most."""


class SpoolMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Whose requests a spool holds."""

    run_id: str
    role: str
    rank: int
    epoch: str
    """UUID of this life of the producer."""
    pid: int
    """The process that spools."""
    rings: str | None = None
    """Folder of the rings that the requests come from."""
    endpoint: str | None = None
    """OTLP endpoint as the trainer asked for it."""
    otlp_env: dict[str, str] | None = None
    """What of its environment decides the destination: see `overwatch.sdk.trainer_env`."""
    created: int
    """Unix nanoseconds."""


_meta: Final = msgspec.json.Decoder(SpoolMeta).decode


class Books(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a spool's records, over all its lives: accepted = delivered + waiting + all dropped."""

    accepted: int
    delivered: int
    """That the collector has."""
    dropped: Counter[str]
    """That were given up, by reason."""
    waiting: int
    """Of requests that are not settled."""
    waiting_bytes: int
    """Bytes of those requests, on disk and in memory."""
    at_risk: int
    """That are lost with this process: those in memory, and all where the folder is lost."""


class Spool:
    """One producer's requests. Safe from any thread; one at a time takes."""

    def __init__(
        self,
        path: Path,
        limits: SpoolLimits | None = None,
        *,
        meta: SpoolMeta | None = None,
        files: Callable[[int], Files] = Files,
    ) -> None:
        """Open or begin the spool in a folder; `meta` is written into it.

        Raises `FolderBusyError` when another process has it; any other trouble makes it `degraded`.
        """
        self._path = path
        self._limits = limits or SpoolLimits()
        self._meta = meta
        self._files = files
        self._changed = threading.Condition()
        self._queues = PriorityQueues(self._limits.budget_bytes, self._limits.memory_bytes)
        self._folder: Folder | None = None
        self._mark = Mark()
        """All that came up to here is on disk or settled."""
        self._seen = Mark()
        """All that came."""
        self._unsettled: deque[tuple[int, Mapping[str, int]]] = deque()
        """Requests with the ring positions that they bring the trainer to, until they are settled."""
        self._was_open = False
        self._is_closed = False
        self._left_empty = False
        self._retry_at = 0.0
        self._trouble: str | None = None
        try:
            self._open()
        except FolderBusyError:
            raise
        except (OSError, LogVersionError) as error:
            self._fall(error)
        self._settled = dict(self._mark.rings)

    def put(
        self, signal: Signal, body: bytes, *, is_fact: bool, records: int, last_seq: int,
        rings: Mapping[str, int],
    ) -> Request:  # fmt: skip
        """Keep a request as the newest; `rings` are the ring positions that it brings the spool to."""
        with self._changed:
            self._see(self._seen.order + 1, last_seq, rings)
            request = Request(
                order=self._seen.order, signal=signal, body=body, is_fact=is_fact, records=records,
                last_seq=self._seen.last_seq,
            )  # fmt: skip
            queue = self._queues.of(request)
            queue.stats.accepted += records
            if self._is_closed:
                queue.stats.drop(CLOSED, records)
            elif self._queues.make_room(queue, len(body) + _OVERHEAD_BYTES):
                self._keep(queue, Entry(request, dict(rings), queue.stats.accepted))
            else:
                self._queues.drop(queue, request)
            self._note_changes()
            return request

    def account(self, records: int, rings: Mapping[str, int], lost: str | None = None) -> None:
        """Account for records that come in no request, and for the ring positions behind them.

        They are `lost` for a reason, or leave as spans: whether a span arrives is no part of the account.
        """
        with self._changed:
            self._see(self._seen.order, self._seen.last_seq, rings)
            stats = self._queues.facts.stats
            stats.accepted += records
            if lost is None:
                stats.delivered += records
            else:
                stats.drop(lost, records)
            self._queues.facts.is_dirty = True
            self._note_changes()

    def _see(self, order: int, last_seq: int, rings: Mapping[str, int]) -> None:
        self._seen = self._seen.after(order, last_seq, rings)
        self._unsettled.append((order, rings))

    def take(self, timeout_s: float) -> Request | None:
        """The oldest request, waiting up to `timeout_s` for one; the same again until it is settled."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._queues.oldest() is not None, max(timeout_s, 0.0)
            )
            if self._is_closed:
                return None
            taken = self._queues.take()
            self._save()
            return taken

    def landed(self, request: Request, rejected: int) -> None:
        """The collector has the taken request, but for so many records."""
        refused = min(max(rejected, 0), request.records)
        self._settle(request, request.records - refused, REJECTED)

    def lost(self, request: Request, reason: str) -> None:
        """The taken request is given up."""
        self._settle(request, 0, reason)

    def _settle(self, request: Request, delivered: int, reason: str) -> None:
        with self._changed:
            queue = self._queues.settle(request)
            if queue is not None:
                queue.stats.delivered += delivered
                queue.stats.drop(reason, request.records - delivered)
            self._note_settled(request.order)
            self._note_changes()

    def _note_settled(self, order: int) -> None:
        while self._unsettled and self._unsettled[0][0] <= order:
            for ring, sequence in self._unsettled.popleft()[1].items():
                self._settled[ring] = max(self._settled.get(ring, 0), sequence)

    @property
    def settled(self) -> dict[str, int]:
        """By ring, the record of the trainer up to which everything is delivered, or given up and counted."""
        with self._changed:
            if self._is_empty():
                self._note_settled(self._seen.order)
            return dict(self._settled)

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until every request has landed or is lost; whether it has."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._queues.oldest() is None, max(timeout_s, 0.0)
            )
            return self._is_empty()

    def close(self, *, discard: bool = False) -> None:
        """Let go of the folder; with `discard` remove it, if nothing waits. Nothing is taken afterwards."""
        with self._changed:
            if self._is_closed:
                return
            if self.degraded:
                self._return()
            self._left_empty = self._queues.oldest() is None
            for queue in self._queues.queues:
                queue.is_dirty = True
            self._save()
            self._is_closed = True
            for queue in self._queues.queues:
                queue.close()
            if self._folder is not None:
                self._give_back(self._folder, discard=discard and self._left_empty)
            self._changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Nothing waits; after `close`, nothing was left."""
        with self._changed:
            return self._is_empty()

    @property
    def books(self) -> Books:
        """What became of all records."""
        with self._changed:
            queues, at_risk = self._queues, 0
            if self.degraded:
                at_risk = queues.waiting if self._is_lost() else queues.in_memory
            return Books(
                accepted=sum(queue.stats.accepted for queue in queues.queues),
                delivered=sum(queue.stats.delivered for queue in queues.queues),
                dropped=queues.dropped,
                waiting=queues.waiting,
                waiting_bytes=queues.bytes,
                at_risk=at_risk,
            )

    @property
    def room(self) -> int | None:
        """Bytes left on the disk; `None` where that is not known, or no request goes there now."""
        if self.degraded:
            return None
        try:
            found = os.statvfs(self._path)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    @property
    def spooled(self) -> dict[str, int]:
        """Ring positions up to which all is on disk or settled; what comes after them is to be put."""
        with self._changed:
            return dict(self._mark.rings)

    @property
    def next_seq(self) -> int:
        """The next free `overwatch.seq`."""
        with self._changed:
            return self._seen.last_seq + 1

    @property
    def degraded(self) -> bool:
        """The disk is in trouble: new requests are kept in memory, which a crash of this process loses."""
        return self._trouble is not None

    @property
    def trouble(self) -> str | None:
        """What is wrong with the disk, for a person."""
        return self._trouble

    def _is_lost(self) -> bool:
        try:
            if self._folder is not None:
                self._folder.check()
        except FolderLostError:
            return True
        return False

    def _is_empty(self) -> bool:
        return self._left_empty if self._is_closed else self._queues.oldest() is None

    def _note_changes(self) -> None:
        """Whatever changed is saved, and those who wait for a change look again."""
        if not self._queues.is_in_memory:
            self._mark = self._seen
        self._save()
        self._changed.notify_all()

    def _save(self) -> None:
        try:
            for queue in self._queues.queues:
                if queue.is_dirty:
                    queue.save(self._mark)
        except OSError as error:
            self._fall(error)

    def _keep(self, queue: DiskQueue, entry: Entry) -> None:
        if self._is_on_disk():
            try:
                self._store(queue, entry)
            except OSError as error:
                self._fall(error)
            else:
                return
        self._queues.hold(queue, entry)

    def _store(self, queue: DiskQueue, entry: Entry) -> None:
        """Put a request on disk. Raises `OSError`; then it is not there."""
        if self._folder is not None:
            self._folder.check()
        mark = self._mark.after(entry.request.order, entry.request.last_seq, entry.rings)
        queue.store(entry, mark)
        self._mark = mark

    def _is_on_disk(self) -> bool:
        """Whether requests go to the disk; one in trouble is tried again, when it is time."""
        if not self.degraded:
            return True
        return time.monotonic() >= self._retry_at and self._return()

    def _fall(self, error: Exception) -> None:
        self._trouble = str(error) or type(error).__name__
        self._retry_at = time.monotonic() + self._limits.retry_s

    def _return(self) -> bool:
        """Move to the disk what is in memory, in its order; whether all of it went."""
        try:
            self._find_folder()
            while queues := [queue for queue in self._queues.queues if queue.memory]:
                queue = min(queues, key=lambda queue: queue.memory[0].request.order)
                self._store(queue, queue.memory[0])
                queue.unload()
        except (OSError, LogVersionError) as error:
            self._fall(error)
            return False
        self._trouble = None
        return True

    def _find_folder(self) -> None:
        """Have a folder that is where it should be; one that is not is kept while it can be read."""
        if self._folder is None:
            self._open()
            return
        try:
            self._folder.check()
        except FolderLostError:
            on_disk = any(queue.head() is not None and queue.disk_bytes for queue in self._queues.queues)
            if on_disk and not self._folder.is_deleted:
                raise
            self._queues.lift()
            for queue in self._queues.queues:
                queue.leave()
            self._folder.close()
            self._folder = None
            self._open()

    def _open(self) -> None:
        """Lock the folder and open what is in it, going on with it if it is this spool's first."""
        folder = Folder(self._path, self._files)
        opened: list[tuple[Log, CursorFile]] = []
        try:
            if self._meta is not None:
                folder.replace(META, msgspec.json.encode(self._meta))
            limits = LogLimits(segment_bytes=self._limits.segment_bytes, record_bytes=_LARGEST_RECORD)
            for queue in self._queues.queues:
                cursor = CursorFile(folder, queue.name)
                floor = cursor.place.position if cursor.place is not None else 1
                opened.append((Log(folder, queue.name, limits, floor=floor), cursor))
            self._begin(opened)
        except BaseException:
            for log, _ in opened:
                log.close()
            folder.close()
            raise
        self._folder = folder
        self._was_open = True

    def _begin(self, opened: list[tuple[Log, CursorFile]]) -> None:
        has_past = any(log.next_sequence > 1 for log, _ in opened)
        is_new = self._seen.order == 0
        if has_past and not is_new and not self._was_open:
            raise OSError(errno.EEXIST, f"{self._path} holds requests of an earlier process; they stay there")
        if is_new:
            pairs = zip(self._queues.queues, opened, strict=True)
            self._seen = self._mark = merged(*(queue.restore(*found) for queue, found in pairs))
            return
        for queue, found in zip(self._queues.queues, opened, strict=True):
            queue.begin(*found)

    def _give_back(self, folder: Folder, *, discard: bool) -> None:
        if discard:
            try:
                folder.discard()
            except OSError as error:
                self._fall(error)
        folder.close()
        self._folder = None


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A spool that no process holds."""

    path: Path
    meta: SpoolMeta


def spool_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's spools: `$OVERWATCH_SPOOL_DIR`, else under the user's state."""
    if given := env.get("OVERWATCH_SPOOL_DIR"):
        return Path(given)
    state = env.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "overwatch" / "spool"
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 never raises, as Path.home does
    if home.startswith("/"):
        return Path(home) / ".local" / "state" / "overwatch" / "spool"
    return Path(tempfile.gettempdir()) / f"overwatch-{os.getuid()}" / "spool"


def spool_folder(root: Path, meta: SpoolMeta) -> Path:
    """The folder of one producer's life."""
    return root / "-".join((_part(meta.run_id), _part(meta.role), str(int(meta.rank)), _part(meta.epoch)))


def orphans(root: Path) -> list[Orphan]:
    """The spools under `root` that no process holds, oldest first; what is none is passed over."""
    try:
        folders = list(root.iterdir())
    except OSError:
        return []
    found = []
    for folder in folders:
        try:
            if not is_held(folder):
                found.append(Orphan(path=folder, meta=read_meta(folder)))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda orphan: (orphan.meta.created, orphan.path))


def read_meta(folder: Path) -> SpoolMeta:
    """What a spool states of itself. Raises `OSError`, or `ValueError` when it states nothing of use."""
    fd = os.open(folder / META, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(fd, _LONGEST_META)
    finally:
        os.close(fd)
    return _meta(data)


def _part(text: str) -> str:
    """A name as part of a path: as it is where that is safe, else what is safe of it and a digest."""
    safe = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST_PART]
    if safe == text and safe:
        return safe
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{safe}_{digest}" if safe else digest
