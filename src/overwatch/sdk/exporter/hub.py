"""Many runs in one exporter process: each arrives with its rings, its line and its account.

Rules: each run has threads, queue and destination of its own, so that a collector that is slow delays one
run only; a run that ends, or cannot be read, is forgotten and the others go on; the process ends with its
last run once none can come, and else a while after. With no room for another run no more are taken: the
trainer starts another process. Runs come through a door: of one trainer, or one that any trainer of this
user may connect to, which costs the others nothing whatever it sends. Must not know what an exporter does.
"""

import contextlib
import logging
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from overwatch.platform import peer_of
from overwatch.sdk.exporter.errors import ErrorStream, logging_to
from overwatch.sdk.frames import arrival_of
from overwatch.sdk.meeting import Meeting

log: Final = logging.getLogger("overwatch.exporter")

LINGER_S: Final = 2.0
"""How long the process waits for the next run, whose start is then at once."""
ARRIVAL_S: Final = 5.0
"""How long a process that connects may take to send its run."""
_LOOK_S: Final = 0.2
_LONGEST: Final = 1 << 16
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


class Door(Protocol):
    """Where runs come in."""

    def fileno(self) -> int:
        """Readable when one comes."""

    def next(self) -> Come | None:
        """The one that comes; `None` where none ever will."""

    def shut(self, *, is_full: bool) -> bool:
        """Take no more; `False` where one came at the last moment and there is room for it."""

    def close(self) -> None:
        """Let go of it."""


class PrivateDoor:
    """The door of one trainer: a socket that its runs are sent through."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self.fileno, self.close = door.fileno, door.close

    def next(self) -> Come | None:
        """The run that was sent; `None` once the trainer has let go."""
        data, handles, *_ = socket.recv_fds(self._door, _LONGEST, _MOST)
        return (lambda: (data, handles, None)) if data else None

    def shut(self, *, is_full: bool) -> bool:  # noqa: ARG002 nothing comes at the last moment
        """The trainer sees it as soon as it is closed."""
        return True


class SharedDoor:
    """A door that any trainer of this user may connect to: a socket that listens at a meeting."""

    def __init__(self, door: socket.socket, meeting: Meeting) -> None:
        self._door, self._meeting = door, meeting
        self.fileno, self.close = door.fileno, door.close
        door.setblocking(False)

    def next(self) -> Come | None:
        """A process that connects; the answer, when it is called, receives what it sends."""
        try:
            line, _ = self._door.accept()
        except BlockingIOError:  # it has gone again
            return _gone
        except OSError as error:
            log.warning("no more runs are taken: %s", error)
            return None
        return lambda: _received(line)

    def shut(self, *, is_full: bool) -> bool:
        """Leave the meeting; a run that waits where it is full sees that its connection is closed."""
        poll = select.poll()
        poll.register(self._door, select.POLLIN)
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


def serve_all(door: Door, serve: Serve, linger_s: float = LINGER_S) -> None:
    """Serve every run that comes, until none has come or lived for `linger_s` or none can come."""
    living: list[threading.Thread] = []
    with contextlib.closing(door):
        room, poll = _room(), select.poll()
        poll.register(door, select.POLLIN)
        while True:
            if poll.poll((_LOOK_S if living else linger_s) * 1000):
                one = _begin(serve, door.next())
                if one is not None:
                    living.append(one)
                if (one is None or len(living) >= room) and door.shut(is_full=True):
                    break
            elif not living and door.shut(is_full=False):
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
