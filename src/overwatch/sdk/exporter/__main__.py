"""`python -m overwatch.sdk.exporter`: started by the SDK, reads the rings of its trainer's runs.

Standard input is the socket through which they come: of one trainer, or, with the folder and the name of a
meeting, where all that have it in common come: see `hub`.

Rules: Ctrl-C and termination are the trainer's to handle; this process ends when the trainer asks for it or
is gone, within the deadline that it gave, even if the collector never answers.
"""

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from overwatch.events import RunFinished
from overwatch.sdk.ending import Ending, corrected, of_wait
from overwatch.sdk.exporter.core import Exporter, ShutdownSignal, open_spool
from overwatch.sdk.exporter.hub import Listener, TrainerHandler, Visit, serve_all
from overwatch.sdk.exporter.orphan_recovery import OrphanRecovery
from overwatch.sdk.exporter.parent import Parent
from overwatch.sdk.exporter.queues import LOST
from overwatch.sdk.frames import Hello, Progress, close_of, progress_of
from overwatch.sdk.greeting import GreetingError, forget_hello, read_hello
from overwatch.sdk.meeting import Meeting
from overwatch.sdk.rings.file import RingError
from overwatch.sdk.rings.ringset import remove
from overwatch.sdk.rings.source import RingSource

log: Final = logging.getLogger("overwatch.exporter")

ORPHAN_S: Final = 5.0
"""How long the rest may take when the trainer went without a word, and its process until it is gone."""
_READ: Final = 1 << 16


def main(where: Sequence[str]) -> int:
    """Run until the trainer is done; the exit code."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    logging.basicConfig(format="overwatch: %(message)s", handlers=[TrainerHandler()], level=logging.WARNING)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        listener = socket.socket(fileno=0)
        at = Listener(listener, Meeting(Path(where[0]), where[1]) if where else None)
    except (OSError, IndexError):
        log.error("this process is started by overwatch.sdk, not by hand")  # noqa: TRY400 one line for a person
        return 2
    serve_all(at, serve)
    return 0


def serve(visit: Visit) -> None:
    """Export one run until its trainer is done."""
    account, rings = Account(visit.account), visit.rings
    with contextlib.ExitStack() as held:  # another exporter can follow this one in the same process
        try:
            hello = greeting_of(visit)
            source = RingSource(rings, alone=True)
            held.callback(source.close)
            spool = open_spool(hello, rings)
            held.callback(spool.close)
        except (OSError, RingError, GreetingError) as error:
            log.error("telemetry cannot be read: %s", error)  # noqa: TRY400 one line for a person
            return
        if not spool.books.accepted:
            account.go_on()
        exporter = Exporter(hello, source, spool, account.write, OrphanRecovery(hello).begin)
        exporter.run(Input(visit.line, Parent(hello.pid, *visit.handles), is_daemon=hello.is_daemon))
        if exporter.is_emptied:
            remove(rings)
            forget_hello(rings)


def greeting_of(visit: Visit) -> Hello:
    """The greeting of the process that brought the run; raises `OSError` or `GreetingError`."""
    hello = read_hello(visit.rings)
    if visit.pid not in (None, hello.pid):
        raise GreetingError(f"process {visit.pid} brought the run of process {hello.pid}")
    return hello


class Account:
    """What became of the records of one run, in a file that its trainer holds and can read at any time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._length = os.fstat(self._fd).st_size
        self._before = Progress()

    def go_on(self) -> None:
        """Add to what the exporter before this one reported: nothing else remembers it."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            before = progress_of(os.pread(self._fd, self._length, 0))
            lost = Progress(dropped={LOST: before.at_risk} if before.at_risk else {})
            self._before = _added(before, lost)

    def write(self, progress: Progress) -> None:
        """Replace the account; padded, so that no rest of a longer one is read."""
        data = msgspec.json.encode(_added(self._before, progress))
        self._length = max(self._length, len(data))
        with contextlib.suppress(OSError):  # a disk without room: the trainer reads an older account
            os.pwrite(self._fd, data.ljust(self._length), 0)


def _added(before: Progress, since: Progress) -> Progress:
    dropped = {
        reason: before.dropped.get(reason, 0) + since.dropped.get(reason, 0)
        for reason in (*before.dropped, *since.dropped)
    }
    return msgspec.structs.replace(since, delivered=before.delivered + since.delivered, dropped=dropped)


class Input(ShutdownSignal):
    """The trainer's end: a close on its line, nothing more there, or a process that is gone."""

    def __init__(self, fd: int, trainer: Parent, *, is_daemon: bool) -> None:
        self._fd = fd
        self._is_daemon = is_daemon
        self._trainer = trainer
        self._received = b""
        self._is_closed = False
        self._poll = select.poll()
        for one in (fd, self._trainer.handle):
            if one is not None:
                self._poll.register(one, select.POLLIN)

    def wait(self, timeout_s: float) -> float | None:
        """Wait so long; when to be done (monotonic seconds), `None` while the trainer goes on."""
        ready = {fd for fd, _ in self._poll.poll(timeout_s * 1000)}
        if self._fd not in ready:
            is_gone = ready or (self._trainer.handle is None and self._trainer.wait(0.0))
            return time.monotonic() + ORPHAN_S if is_gone else None
        data = os.read(self._fd, _READ)
        self._received += data
        with contextlib.suppress(msgspec.MsgspecError):
            close = close_of(self._received)
            self._is_closed, self.is_exit = True, close.at_exit
            return close.deadline
        return None if data else time.monotonic() + ORPHAN_S

    def end(self, known: RunFinished | None) -> RunFinished | None:
        """The end that the trainer did not send, or the one that its exit status puts right."""
        is_seen = self.is_exit and self._trainer.handle is not None
        if self._is_closed and not is_seen:
            return None
        if not self._trainer.wait(None if self._is_closed else ORPHAN_S):
            return None  # it lives, and has only let go of its exporter
        status = self._trainer.status
        if known is None:
            found: Ending | None = of_wait(status, self._trainer.out_of_memory, is_daemon=self._is_daemon)
        else:
            found = corrected(known.outcome, status)
        return found and RunFinished(at=time.time_ns(), outcome=found.outcome, reason=found.reason)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
