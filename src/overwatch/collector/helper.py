"""A process that is asked about bodies under load, so that whoever waits for an answer comes first.

Rules: where few bytes come there is no process; one that is not ready yet, gone, silent or cannot be started
costs nothing but time: there is no answer then, and who asks finds it himself. Must not know what is asked,
nor what an answer says.
"""

import logging
import select
import socket
import subprocess
import sys
import time
from typing import Final

from overwatch.background import give_way
from overwatch.journal import Signal
from overwatch.otlp.__main__ import ANSWER, REQUEST, SIGNALS, VERSION, Asked

COMMAND: Final = (sys.executable, "-m", "overwatch.otlp")
_BUSY_BYTES: Final = 512 << 10
"""Bytes of bodies in a second from which on a process is worth its memory: a thirtieth of a core."""
_IDLE_S: Final = 30.0
"""After so long with fewer the process ends, in seconds."""
_FIRST_S: Final = 1.0
"""So long who asks first waits for a process to get ready, in seconds: one beside busy cores takes longer."""
_AGAIN_S: Final = 60.0
"""Time before another process is tried when one failed, in seconds."""

_log = logging.getLogger("overwatch.collector")


class Helper:
    """Used from one thread. `stop` it."""

    def __init__(
        self, task: str, command: tuple[str, ...] = COMMAND, *, boot_s: float = 30.0, silent_s: float = 30.0
    ) -> None:
        """`task` is what it is for; at most `boot_s` until it is ready, and `silent_s` until it answers."""
        self._task = task
        self._command = command
        self._boot_s = boot_s
        self._silent_s = silent_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_ready = False
        self._started_at = 0.0
        self._second, self._bytes = 0.0, 0
        """When the second began that is counted, monotonic, and the bytes in it."""
        self._busy_at = -_IDLE_S
        """Monotonic, when many bytes came last."""
        self._next_at = 0.0
        """Monotonic, when a process may be started."""
        self.answered = 0
        """Answers that a process gave."""
        self.failures = 0
        """Processes that were given up."""

    @property
    def pid(self) -> int | None:
        """Its process, if there is one."""
        return None if self._process is None else self._process.pid

    def ask(
        self, asked: Asked, signal: Signal, body: bytes, limit: int = 0, *, is_worth_it: bool = False
    ) -> bytes | None:
        """A process's answer; `None` where there is no process, or none `is_worth_it` with so few bytes."""
        now = time.monotonic()
        self._count(len(body), now)
        self._busy_at = now if is_worth_it else self._busy_at
        if now - self._busy_at >= _IDLE_S:
            self.stop()
            return None
        if self._socket is None and now < self._next_at:
            return None
        return self._guarded(REQUEST.pack(asked, SIGNALS.index(signal), limit, len(body)) + body, now)

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        asked, self._socket = self._socket, None
        if asked is not None:
            asked.close()
        if process is not None:
            process.kill()
            process.wait()

    def _count(self, size: int, now: float) -> None:
        if now - self._second >= 1.0:
            self._second, self._bytes = now, 0
        self._bytes += size
        if self._bytes >= _BUSY_BYTES:
            self._busy_at = now

    def _guarded(self, request: bytes, now: float) -> bytes | None:
        """The border to the process: what fails is said once."""
        try:
            asked = self._socket or self._start(now)
            if not self._ready(asked, now):
                return None
            asked.sendall(request)
            answer = _answer(asked)
        except OSError as error:
            self.failures += 1
            self._next_at = now + _AGAIN_S
            self.stop()
            if self.failures == 1:
                _log.warning("no process %s, this one does: %s", self._task, error)
            return None
        self.answered += 1
        return answer

    def _start(self, now: float) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(self._silent_s)
        self._socket, self._started_at, self._is_ready = ours, now, False
        with theirs:
            self._process = subprocess.Popen(self._command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        give_way(self._process.pid)
        return ours

    def _ready(self, asked: socket.socket, now: float) -> bool:
        """Whether it has said that it is. Raises `OSError` when it takes too long."""
        if not self._is_ready:
            poll = select.poll()
            poll.register(asked, select.POLLIN)
            left_s = max(self._started_at + _FIRST_S - now, 0.0)
            if poll.poll(1000 * left_s):
                if (version := _answer(asked)) != VERSION:
                    raise ConnectionError(f"it is of version {version!r}, not {VERSION!r}; restart")
                self._is_ready = True
        if not self._is_ready and now - self._started_at > self._boot_s:
            raise TimeoutError("it does not get ready")
        return self._is_ready


def _answer(source: socket.socket) -> bytes:
    """What it says next. Raises `OSError` when it does not come."""
    (length,) = ANSWER.unpack(_read(source, ANSWER.size))
    return _read(source, length)


def _read(source: socket.socket, size: int) -> bytes:
    """So many bytes. Raises `OSError` when they do not come."""
    found = bytearray()
    while len(found) < size:
        part = source.recv(min(size - len(found), 1 << 20))
        if not part:
            raise ConnectionError("it ended")
        found += part
    return bytes(found)
