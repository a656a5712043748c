"""A run's link to its exporter: the rings it writes, the process that reads them, and who looks after both.

Rules: nothing here waits but `flush` and `close`, each for its own time and no longer; a dead exporter is
followed by another that goes on where it stopped; where no process or no shared file can be had, the
exporter is a thread. Must not know what records mean.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Final, TypeAlias

import msgspec

from overwatch.sdk.frames import Frame, Hello, Progress
from overwatch.sdk.greeting import forget_hello, write_hello
from overwatch.sdk.process import AccountFile, ExporterProcess
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.writer import Entry

if TYPE_CHECKING:
    from overwatch.sdk.exporter.core import ExporterThread

log: Final = logging.getLogger("overwatch.sdk")

_POLL_S: Final = 0.01
_ROOM_SHARE: Final = 0.75
"""Of the time to close, what may go by until the last facts have found room in their ring."""
NOT_KEPT: Final = "not_kept"
"""Why records are gone that found no place on disk."""
LOST: Final = "spool_lost"
"""Why records are gone that an exporter had only in its memory when it died."""
RESTARTS: Final = 5
"""How often in a row a dead exporter is followed by another; counted anew once one lived for `STEADY_S`."""
BACKOFF_S: Final = 0.2
"""Wait before the first of them; doubles with each."""
STEADY_S: Final = 60.0
_LIFE_S: Final = 0.5
"""With less time left no other exporter is started."""

Exporter: TypeAlias = "ExporterProcess | ExporterThread"
"""One life of what reads the rings and delivers."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records; `accepted` is `delivered` plus `kept` plus what was dropped."""

    accepted: int
    delivered: int
    kept: int
    """On disk, to be delivered by the next start or by `overwatch sync`."""
    dropped: dict[str, int]
    """Records that are gone, by reason."""


class Link:
    """One run's way to its exporter. Raises `OSError` when there can be none."""

    def __init__(self, hello: Hello) -> None:
        self.role = hello.role
        """Of this process in its run."""
        self._over = threading.Event()
        self._lock = threading.Lock()
        """Held while an exporter is exchanged for another."""
        self._account = AccountFile()
        self._greeting: IO[bytes] | None = None
        """Held open for as long as the exporter is this link's."""
        self._start: Callable[[bool], Exporter]
        """Starts one that shares its process with other runs, or that has one alone."""
        self._exporter: Exporter | None = self._open_process(hello) or self._open_thread(hello)
        self._keeper = threading.Thread(target=self._keep, name="overwatch-keeper", daemon=True)
        self._keeper.start()

    def _open_rings(self, hello: Hello, *, shared: bool) -> None:
        started = hello.started
        self.rings = RingSet(hello.epoch, preset=started.chosen, config=started.config, shared=shared)

    def _open_process(self, hello: Hello) -> "Exporter | None":
        """An exporter of its own, with rings it can share; `None` where that cannot be."""
        try:
            self._open_rings(hello, shared=True)
        except OSError as error:
            log.warning("telemetry runs inside of the trainer: there is no room for its rings: %s", error)
            return None
        try:
            self._greeting = write_hello(self.rings.path, hello)
            exporter = ExporterProcess(self.rings.path, self._account)
        except OSError as error:
            log.warning("telemetry runs inside of the trainer: no process could be started: %s", error)
            forget_hello(self.rings.path)
            self._take_leave()
            self.rings.close(0.0)
            self.rings.unlink()
            return None
        self._start = lambda alone: ExporterProcess(self.rings.path, self._account, alone=alone)
        return exporter

    def _open_thread(self, hello: Hello) -> Exporter:
        """The exporter as a thread; OpenTelemetry is then loaded into the trainer."""
        from overwatch.sdk.exporter.core import ExporterThread

        self._open_rings(hello, shared=False)
        self._start = lambda _: ExporterThread(hello, self.rings, self._account.write)
        return self._start(False)

    @property
    def exporter_pid(self) -> int | None:
        """The exporter's process id while one lives."""
        exporter = self._exporter
        return exporter.pid if exporter is not None and exporter.is_alive else None

    def send(self, frame: Frame) -> None:
        """Hand over one record."""
        self.rings.put(frame)

    def offer(self, record: Entry, *, is_fact: bool) -> bool:
        """Hand over a large record where there is room now; whether it is done with."""
        return self.rings.offer(record, is_fact=is_fact)

    def count_drop(self, reason: str) -> None:
        """Count a record that could not even be made."""
        self.rings.count_drop(reason)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything handed over so far was delivered; whether it was."""
        deadline = time.monotonic() + timeout_s
        if not _waited(lambda: not self.rings.account().waiting, deadline):
            return False
        wanted = {"numbers": self.rings.numbers.ring.published, "facts": self.rings.facts.ring.published}
        lost = self._lost()

        def is_settled() -> bool:
            settled = self._account.read().settled
            return all(settled.get(ring, 0) >= number for ring, number in wanted.items())

        return _waited(is_settled, deadline) and self._lost() == lost

    def close(self, timeout_s: float, *, at_exit: bool = False) -> Outcome:
        """Deliver what there is and end the exporter, within `timeout_s`; what became of everything.

        With `at_exit` this process ends next, and an exporter that can see that outlives it.
        """
        deadline = time.monotonic() + timeout_s
        account = self.rings.close(timeout_s * _ROOM_SHARE)
        self._over.set()
        if self._lock.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            self._lock.release()
        for exporter in self._last_lives(deadline):
            exporter.announce_close(deadline - min(0.1, timeout_s / 10), at_exit=at_exit)
            if at_exit and exporter.pid is not None:
                # It goes on, and has its last account before it ends.
                _waited(lambda: not exporter.is_alive or self._account.read().final, deadline)  # noqa: B023
                exporter.abandon()
            else:
                exporter.finish(deadline - time.monotonic())
                exporter.release()
        progress = self._account.read()
        self._account.close()
        self._take_leave()
        return _outcome(account.accepted, account.dropped, progress)

    def _last_lives(self, deadline: float) -> Iterator[Exporter]:
        """Who is to deliver the rest: the exporter, and one more if that has died of something else."""
        exporter = self._exporter
        if exporter is None:
            return
        yield exporter
        if not self._account.read().final and time.monotonic() + _LIFE_S < deadline:
            with contextlib.suppress(OSError, RuntimeError):
                yield self._start(False)

    def uses(self) -> int:
        """Records handed over so far."""
        return self.rings.account().accepted

    def abandon(self, missed: Callable[[], None]) -> None:
        """Let go of everything in a forked child; `missed` is called for each record handed over later."""
        self._over.set()
        self.rings.abandon(missed)
        self._take_leave()
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.abandon()
            self._account.close()

    def _take_leave(self) -> None:
        if self._greeting is not None:
            self._greeting.close()

    def _lost(self) -> int:
        return sum(self.rings.account().dropped.values()) + sum(self._account.read().dropped.values())

    def _keep(self) -> None:
        """The keeper: waits for the exporter's end and starts another."""
        starts = 0
        while (exporter := self._exporter) is not None:
            began = time.monotonic()
            exporter.watch()
            if self._over.is_set():
                return
            if time.monotonic() - began >= STEADY_S:
                starts = 0
            if starts >= RESTARTS:
                log.warning("telemetry is kept back: its exporter ended %d times in a row", starts + 1)
                return
            if self._over.wait(BACKOFF_S * 2**starts):
                return
            starts += 1
            self._replace(exporter, alone=starts > 1)  # what ends it again may be another run

    def _replace(self, ended: Exporter, *, alone: bool) -> None:
        with self._lock:
            if self._over.is_set():
                return
            try:
                self._exporter = self._start(alone)
            except OSError as error:
                log.warning("the telemetry exporter could not be started again: %s", error)
                return
        ended.release()
        log.warning("the telemetry exporter ended and was started again")


def _waited(is_so: Callable[[], bool], deadline: float) -> bool:
    """Wait until something is so; whether it was in time."""
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _outcome(accepted: int, dropped: Mapping[str, int], progress: Progress) -> Outcome:
    """Everything that was handed over; what is neither delivered nor dropped lies on disk."""
    gone = Counter(dropped)
    gone.update(progress.dropped)
    gone[NOT_KEPT] += progress.at_risk
    kept = accepted - progress.delivered - gone.total()
    if progress.kept is not None and progress.kept < kept:
        gone[LOST] += kept - progress.kept
        kept = progress.kept
    return Outcome(accepted=accepted, delivered=progress.delivered, kept=max(kept, 0), dropped=dict(+gone))
