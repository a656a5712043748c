"""The non-blocking hand-off to the exporter process.

Rules: `send` never waits, never raises, and may be called from any thread and from a signal handler. When
the pipe is full, numbers are dropped and facts are held in a bounded backlog; everything dropped is counted
by reason, and the count travels in the stream. A partial write is finished before the next frame. A dead
exporter is started again by the helper thread. Must not know what records mean.
"""

import logging
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, TypeAlias

import msgspec

from overwatch.sdk.frames import Close, Dropped, Progress, encode
from overwatch.sdk.process import ExporterProcess

log: Final = logging.getLogger("overwatch.sdk")

_POLL_S: Final = 0.05
_REAP_S: Final = 0.5


class _Token:
    """Says something to the helper thread."""


_WAKE: Final = _Token()
_END: Final = _Token()
_Aside: TypeAlias = tuple[bytes, bool] | str
"""A record that another thread was in the way of, or the reason of a drop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeLimits:
    """What the hand-off may hold and how often it tries again."""

    backlog_bytes: int = 4 << 20
    """Facts held while the pipe is full."""
    restarts: int = 5
    """How often a dead exporter is started again."""
    backoff_s: float = 0.2
    """Wait before the first restart; doubles with each."""

    def __post_init__(self) -> None:
        if self.backlog_bytes < 0 or self.restarts < 0 or self.backoff_s < 0:
            raise ValueError(f"limits of the pipe cannot be negative: {self}")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records; `accepted` is what was delivered plus what was dropped."""

    accepted: int
    dropped: dict[str, int]
    """Records that did not arrive, by reason."""


class Pipe:
    """The trainer's end of the stream. Raises `OSError` when no process can be started."""

    def __init__(self, hello: Callable[[int], bytes], limits: PipeLimits | None = None) -> None:
        self._limits = limits or PipeLimits()
        self._hello = hello
        self._lock = threading.Lock()
        self._aside: deque[_Aside] = deque()
        self._tokens: SimpleQueue[_Token] = SimpleQueue()
        self._tail = memoryview(b"")
        self._tail_records = 0
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._accepted = 0
        self._delivered = 0
        """By exporters that have ended."""
        self._dropped: Counter[str] = Counter()
        self._told = 0
        self._told_before = 0
        """Drops that earlier exporters were told of or counted themselves."""
        self._awake = False
        self._lives = 0
        self._over = threading.Event()
        self._exporter: ExporterProcess | None = None
        self._gone: list[ExporterProcess] = []
        self._start()
        self._helper = threading.Thread(target=self._tend, name="overwatch-pipe", daemon=True)
        self._helper.start()

    @property
    def exporter_pid(self) -> int | None:
        """The exporter's process id while one lives."""
        exporter = self._exporter
        return None if exporter is None else exporter.pid

    def send(self, frame: bytes, *, fact: bool) -> None:
        """Hand over one encoded record."""
        if not self._lock.acquire(blocking=False):
            self._aside.append((frame, fact))
            self._wake()
            return
        try:
            self._take_aside()
            self._push(frame, fact=fact)
        finally:
            self._lock.release()

    def count_drop(self, reason: str) -> None:
        """Count a record that could not even be made."""
        self._aside.append(reason)
        self._wake()

    def _push(self, frame: bytes, *, fact: bool) -> None:
        self._accepted += 1
        exporter = self._exporter
        if exporter is None:
            self._hold(frame, fact=fact, reason="exporter_down")
        elif not self._flush(exporter) or not self._write(exporter, frame, records=1):
            self._hold(frame, fact=fact, reason="pipe_full")

    def _write(self, exporter: ExporterProcess, frame: bytes, *, records: int) -> bool:
        """Whether the frame went at least partly into the pipe; its rest is then the tail."""
        try:
            written = exporter.write(frame)
        except OSError:
            self._lose(exporter)
            return False
        if written == len(frame):
            exporter.written += records
        elif written:
            self._tail, self._tail_records = memoryview(frame)[written:], records
            self._wake()
        return written > 0

    def _flush(self, exporter: ExporterProcess) -> bool:
        """Write what waits; whether nothing waits any more."""
        while self._exporter is exporter and (self._tail or self._backlog):
            if self._tail:
                try:
                    self._tail = self._tail[exporter.write(self._tail) :]
                except OSError:
                    self._lose(exporter)
                    return False
                if self._tail:
                    return False
                exporter.written += self._tail_records
            elif self._write(exporter, self._backlog[0], records=1):
                self._backlog_bytes -= len(self._backlog.popleft())
            else:
                return False
        return self._exporter is exporter

    def _hold(self, frame: bytes, *, fact: bool, reason: str) -> None:
        if not fact or self._hopeless():
            self._dropped[reason] += 1
        elif self._backlog_bytes + len(frame) > self._limits.backlog_bytes:
            self._dropped["backlog_full"] += 1
        else:
            self._backlog.append(frame)
            self._backlog_bytes += len(frame)
        self._wake()

    def _hopeless(self) -> bool:
        return self._exporter is None and self._lives > self._limits.restarts

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._tokens.put(_WAKE)

    def _lose(self, exporter: ExporterProcess) -> None:
        """The exporter is gone; the helper settles its account."""
        if self._tail:
            exporter.written += self._tail_records
            self._tail = memoryview(b"")
        self._gone.append(exporter)
        self._exporter = None
        self._wake()

    def _settle(self, exporter: ExporterProcess, progress: Progress) -> None:
        """Book what an ended exporter did; what it never accounted for is unconfirmed."""
        lost = exporter.written - progress.delivered - sum(progress.dropped.values())
        self._told_before += self._told + sum(progress.dropped.values())
        self._told = 0
        self._dropped.update(progress.dropped)
        self._delivered += progress.delivered
        if lost > 0:
            self._dropped["unconfirmed"] += lost

    def _start(self) -> None:
        exporter = ExporterProcess()
        self._lives += 1
        self._exporter = exporter
        self._write(exporter, self._hello(self._lives - 1), records=0)

    def _tend(self) -> None:
        """The helper: records put aside, what waits for room, restarts. Sleeps while there is nothing."""
        while True:
            if self._tokens.get() is _END:
                return
            with self._lock:
                self._awake = False
                self._take_aside()
            while not self._over.is_set() and not self._settled():
                self._wait()

    def _take_aside(self) -> None:
        """Push what was put aside; it came before whatever comes now."""
        while self._aside:
            item = self._aside.popleft()
            if isinstance(item, tuple):
                self._push(item[0], fact=item[1])
            else:
                self._accepted += 1
                self._dropped[item] += 1

    def _settled(self) -> bool:
        """Whether nothing is left for the helper to do."""
        with self._lock:
            exporter = self._exporter
            if exporter is None:
                return self._hopeless() and not self._gone
            return self._flush(exporter) and self._tell(exporter)

    def _tell(self, exporter: ExporterProcess) -> bool:
        """Say how much was dropped, if that is news."""
        total = sum(self._dropped.values()) - self._told_before
        if total == self._told:
            return True
        if self._write(exporter, encode(Dropped(total=total)), records=0):
            self._told = total
        return False

    def _wait(self) -> None:
        exporter = self._exporter
        if exporter is not None:
            _wait_writable(exporter.fd, _POLL_S)
            return
        with self._lock:
            gone, self._gone = self._gone, []
        ended = [(exporter, exporter.finish(_REAP_S)) for exporter in gone]
        with self._lock:
            for exporter, progress in ended:
                self._settle(exporter, progress)
            if self._hopeless():
                log.warning(
                    "telemetry is off for the rest of this run: its exporter ended %d times", self._lives
                )
                return
        if not self._over.wait(self._limits.backoff_s * 2 ** (self._lives - 1)):
            self._restart()

    def _restart(self) -> None:
        with self._lock:
            try:
                self._start()
            except OSError as error:
                self._lives += 1
                log.warning("the telemetry exporter could not be started again: %s", error)
                return
        log.warning("the telemetry exporter ended and was started again")

    def close(self, timeout_s: float) -> Outcome:
        """Send what waits, let the exporter deliver it, and say what became of everything.

        Returns within `timeout_s` seconds, whatever the exporter does.
        """
        deadline = time.monotonic() + timeout_s
        self._over.set()
        self._tokens.put(_END)
        self._helper.join(timeout_s / 4)
        if self._lock.acquire(timeout=timeout_s / 4):
            try:
                self._take_aside()
                self._finish(deadline)
            finally:
                self._lock.release()
        missing = self._accepted - self._delivered - sum(self._dropped.values())
        if missing > 0:
            self._dropped["unconfirmed"] += missing
        return Outcome(accepted=self._accepted, dropped=dict(+self._dropped))

    def _finish(self, deadline: float) -> None:
        grace = min(0.1, max(deadline - time.monotonic(), 0.0) / 5)
        exporter = self._exporter
        if exporter is not None:
            self._say_close(exporter, deadline - grace)
            if self._exporter is exporter:
                self._lose(exporter)
        for gone in self._gone:
            self._settle(gone, gone.finish(deadline - time.monotonic()))
        self._gone.clear()
        if self._backlog:
            self._dropped["not_sent"] += len(self._backlog)
            self._backlog.clear()

    def _say_close(self, exporter: ExporterProcess, deadline: float) -> None:
        """Write what waits, then the farewell, as far as `deadline` allows."""
        said = False
        while self._exporter is exporter and time.monotonic() < deadline:
            if self._flush(exporter):
                if said:
                    return
                if not self._tell(exporter):
                    continue
                said = self._write(exporter, encode(Close(deadline=deadline)), records=0)
            elif self._exporter is exporter:
                _wait_writable(exporter.fd, _POLL_S)

    def abandon(self) -> None:
        """Let go of everything in a forked child."""
        self._over.set()
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.abandon()


def _wait_writable(fd: int, timeout_s: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll(timeout_s * 1000)
