"""Many runs in one exporter process: each arrives with its rings, its line and its account.

Rules: each run has threads, queue and destination of its own, so that a collector that is slow delays one
run only; a run that ends, or cannot be read, is forgotten and the others go on; the process ends with its
last run once none can come, and else a while after. With no room for another run no more are taken: the
trainer starts another process. Runs come through a door: of one trainer, or one that any trainer of this
user may connect to, which costs the others nothing whatever it sends. What concerns one run is logged to its
trainer's error stream, the rest to this process's own: a trainer whose stream takes nothing, or is gone,
costs its own lines and holds up no other run; no line reaches a stream that its run has given back. Must not
know what an exporter does.
"""

import contextlib
import logging
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from overwatch.platform import peer_of
from overwatch.sdk.frames import arrival_of
from overwatch.sdk.meeting import Meeting

log: Final = logging.getLogger("overwatch.exporter")

LINGER_S: Final = 2.0
"""How long the process waits for the next run, whose start is then at once."""
ARRIVAL_S: Final = 5.0
"""How long a process that connects may take to send its run."""
_LOOK_S: Final = 0.2
_LONGEST: Final = 1 << 16
_LONGEST_LINE: Final = 2048
"""Bytes of a line of the log: a pipe that is ready takes twice as many without a wait."""
_MOST: Final = 4
_FILES: Final = 32
"""What one run may have open."""


class Visit(NamedTuple):
    """One run, and what it came with."""

    rings: Path
    line: int
    account: int
    handles: list[int]
    """Perhaps a handle on its trainer."""
    pid: int | None
    """The process that brought it, where any may."""


Serve = Callable[[Visit], object]
"""Serves one run until it is over."""
Come = Callable[[], tuple[bytes, list[int], int | None]]
"""What came in, with open files, and from what process; raises `OSError` where nothing came."""


class Listener:
    """Where runs come in.

    They are of one trainer, which sends them through a socket; or, with a `meeting`, of any trainer of this
    user, which connects to a socket that listens there.
    """

    def __init__(self, listener: socket.socket, meeting: Meeting | None = None) -> None:
        self._listener, self._meeting = listener, meeting
        self.fileno, self.close = listener.fileno, listener.close
        if meeting is not None:
            listener.setblocking(False)

    def next(self) -> Come | None:
        """The one that comes; `None` where none ever will. What a process sends is received when called."""
        if self._meeting is None:
            data, handles, *_ = socket.recv_fds(self._listener, _LONGEST, _MOST)
            return (lambda: (data, handles, None)) if data else None
        try:
            line, _ = self._listener.accept()
        except BlockingIOError:  # it has gone again
            return _gone
        except OSError as error:
            log.warning("no more runs are taken: %s", error)
            return None
        return lambda: _received(line)

    def shut(self, *, is_full: bool) -> bool:
        """Take no more; `False` where one came at the last moment and there is room for it.

        The one trainer sees it as soon as the socket is closed; a run that waits at a meeting where it is
        full sees that its connection is closed.
        """
        if self._meeting is None:
            return True
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return self._meeting.leave(lambda: not is_full and bool(poll.poll(0))) or is_full


def _gone() -> tuple[bytes, list[int], int | None]:
    raise ConnectionAbortedError("it has gone again")


def _received(line: socket.socket) -> tuple[bytes, list[int], int | None]:
    with line:
        pid, user = peer_of(line)
        if user != os.geteuid():
            raise PermissionError(f"process {pid} is of user {user}")
        line.settimeout(ARRIVAL_S)
        data, handles, *_ = socket.recv_fds(line, _LONGEST, _MOST)
        return data, handles, pid


def serve_all(listener: Listener, serve: Serve, linger_s: float = LINGER_S) -> None:
    """Serve every run that comes, until none has come or lived for `linger_s` or none can come."""
    living: list[threading.Thread] = []
    with contextlib.closing(listener):
        room, poll = _room(), select.poll()
        poll.register(listener, select.POLLIN)
        while True:
            if poll.poll((_LOOK_S if living else linger_s) * 1000):
                one = _begin(serve, listener.next())
                if one is not None:
                    living.append(one)
                if (one is None or len(living) >= room) and listener.shut(is_full=True):
                    break
            elif not living and listener.shut(is_full=False):
                break
            living = [one for one in living if one.is_alive()]
    for one in living:
        one.join()


def _room() -> int:
    """How many runs this process can serve at once, by the files that it may open."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        soft = most
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft // _FILES, 1)


def _begin(serve: Serve, come: Come | None) -> threading.Thread | None:
    """The thread of one run; `None` where none can come, or there is no thread for it."""
    if come is None:
        return None
    one = threading.Thread(target=_serve, args=(serve, come), name="overwatch-run")
    try:
        one.start()
    except RuntimeError as error:
        log.warning("no thread for one more run: %s", error)
        return None
    return one


def _serve(serve: Serve, come: Come) -> None:
    handles: list[int] = []
    try:
        data, handles, pid = come()
        _visit(serve, data, handles, pid)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("what came is no run: %s", error)
    finally:
        for handle in handles:
            os.close(handle)


def _visit(serve: Serve, data: bytes, handles: list[int], pid: int | None) -> None:
    """Serve one run; of `handles` what it takes is taken out, and closed."""
    arrival = arrival_of(data)
    if len(handles) != 2 + arrival.has_handle + arrival.has_errors:
        raise OSError(f"{len(handles)} open files came with {arrival}")
    with contextlib.ExitStack() as held:
        if arrival.has_errors:
            held.enter_context(logging_to(ErrorStream(handles.pop())))
        line, account, *rest = handles
        rings = Path(os.fsdecode(arrival.rings))
        try:
            serve(Visit(rings, line, account, rest, pid))
        except Exception:
            log.exception("the exporter of one run ended: %s", rings)


class ErrorStream:
    """A trainer's error stream, for as long as its run lasts."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self._lock = threading.Lock()

    def write(self, line: str) -> bool:
        """Write a line where that is possible at once; whether it was."""
        data = line.encode(errors="replace")[:_LONGEST_LINE] + b"\n"
        poll = select.poll()
        with self._lock:
            if self._fd is None:
                return False
            poll.register(self._fd, select.POLLOUT)
            with contextlib.suppress(OSError):
                return poll.poll(0) == [(self._fd, select.POLLOUT)] and os.write(self._fd, data) == len(data)
        return False

    def close(self) -> None:
        """Give it back; waits for no line but the one that is being written."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
            self._fd = None


_of_run: Final[ContextVar[ErrorStream | None]] = ContextVar("overwatch_errors", default=None)


@contextlib.contextmanager
def logging_to(stream: ErrorStream) -> Iterator[None]:
    """What this thread logs, and each that it starts in a copy of its context, goes to a trainer."""
    token = _of_run.set(stream)
    try:
        yield
    finally:
        _of_run.reset(token)
        stream.close()


class TrainerHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the trainer of the run that logs, else to this process's error stream."""

    def createLock(self) -> None:  # noqa: N802 its name in logging
        """None: a stream that takes nothing must not hold up other runs."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        stream = _of_run.get()
        if stream is None or not stream.write(self.format(record)):
            super().emit(record)
