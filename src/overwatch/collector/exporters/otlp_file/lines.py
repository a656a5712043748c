"""Bodies as lines of OTLP/JSON, under load by a process of its own: whoever waits for an answer comes first.

Rules: the line is the same whoever made it. Where few bytes come they are written here, without a process;
one that is gone, silent or cannot be started costs nothing but time: the line is made here instead. So it is
where much waits already: the process has a lower priority, and may not get its turn. Must not know what
becomes of lines.
"""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from overwatch.journal import Signal
from overwatch.otlp import jsonl
from overwatch.otlp.__main__ import ANSWER, REQUEST, SIGNALS

COMMAND: Final = (sys.executable, "-m", "overwatch.otlp")
_BUSY_BYTES: Final = 512 << 10
"""Bytes of bodies in a second from which on a process is worth its memory: a thirtieth of a core."""
_IDLE_S: Final = 30.0
"""After so long with fewer the process ends, in seconds."""
_AGAIN_S: Final = 60.0
"""Time before another process is tried when one failed, in seconds."""

_log = logging.getLogger("overwatch.collector")


class Lines:
    """Used from one thread. `stop` it."""

    def __init__(
        self,
        late: Callable[[], bool] = lambda: False,
        command: tuple[str, ...] = COMMAND,
        silent_s: float = 30.0,
    ) -> None:
        """`late` says whether too much waits for lines; `silent_s` is the longest time for an answer."""
        self._late = late
        self._command = command
        self._silent_s = silent_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._second, self._bytes = 0.0, 0
        """When the second began that is counted, monotonic, and the bytes in it."""
        self._is_late = False
        """Too much waits, looked at once a second."""
        self._busy_at = -_IDLE_S
        """Monotonic, when many bytes came last."""
        self._next_at = 0.0
        """Monotonic, when a process may be started."""
        self.answered = 0
        """Lines that a process made."""
        self.failures = 0
        """Processes that were given up."""

    def to_json(self, signal: Signal, body: bytes) -> bytes:
        """As `jsonl.to_json`."""
        now = time.monotonic()
        self._count(len(body), now)
        if now - self._busy_at < _IDLE_S and not self._is_late:
            line = self._asked(signal, body, now)
            if line is not None:
                self.answered += 1
                return line
        elif self._socket is not None and not self._is_late:
            self.stop()
        return jsonl.to_json(signal, body)

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
            self._is_late = self._late()
        self._bytes += size
        if self._bytes >= _BUSY_BYTES:
            self._busy_at = now

    def _asked(self, signal: Signal, body: bytes, now: float) -> bytes | None:
        """A process's line; `None` where there is no process. The border to it: what fails is said once."""
        if self._socket is None and now < self._next_at:
            return None
        try:
            asked = self._socket or self._start()
            asked.sendall(REQUEST.pack(SIGNALS.index(signal), len(body)) + body)
            (length,) = ANSWER.unpack(_read(asked, ANSWER.size))
            return _read(asked, length)
        except OSError as error:
            self.failures += 1
            self._next_at = now + _AGAIN_S
            self.stop()
            if self.failures == 1:
                _log.warning("no process writes OTLP/JSON, this one does: %s", error)
            return None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(self._silent_s)
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(self._command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        return ours


def _read(source: socket.socket, size: int) -> bytes:
    """So many bytes. Raises `OSError` when they do not come."""
    found = bytearray()
    while len(found) < size:
        part = source.recv(min(size - len(found), 1 << 20))
        if not part:
            raise ConnectionError("it ended")
        found += part
    return bytes(found)
