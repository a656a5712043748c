"""A real pseudo-terminal: a command runs in it, a test types and reads."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEADLINE_S = 30.0
_ON_ITS_WAY_S = 5.0
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", b"\x1b[?1000l"
ALT_ON, ALT_OFF, CURSOR_ON = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def _without_size() -> dict[str, str]:
    """The environment without a size of a screen, which would win over the terminal's own."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


class Terminal:
    """The master side of a pty in which a command runs."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], size: tuple[int, int] = (120, 40)
    ) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.written = b""
        self.process = subprocess.Popen(
            list(command),
            cwd=ROOT, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env={**_without_size(), "TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
        )  # fmt: skip

    def read(self, wait_s: float = 0.1) -> None:
        """Take what was written."""
        waiting = select.poll()
        waiting.register(self.master, select.POLLIN)
        if waiting.poll(wait_s * 1000):
            with contextlib.suppress(OSError):
                self.written += os.read(self.master, 1 << 16)

    def until(self, *words: str, since: int = 0) -> int:
        """Read until all words were written after `since`; returns where the output ends now."""
        deadline = time.monotonic() + DEADLINE_S
        while not all(word in self.text(since) for word in words):
            assert time.monotonic() < deadline, f"{words} not in {self.text(since)[-3000:]!r}"
            self.read()
        return len(self.written)

    def text(self, since: int = 0) -> str:
        """What was written, without the terminal's own sequences."""
        shown = re.sub(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]", b"", self.written[since:])
        return shown.decode("utf-8", "replace")

    def press(self, keys: str) -> int:
        """Type; returns where the output ends now."""
        here = len(self.written)
        os.write(self.master, keys.encode())
        return here

    def exit_code(self) -> int:
        """Wait for the end, reading on."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "still running"
            self.read()
        here = -1
        while here < len(self.written):
            here = len(self.written)
            self.read()
        return self.process.returncode

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(end)


@contextlib.contextmanager
def running(command: Sequence[str], size: tuple[int, int] = (120, 40), **env: str) -> Iterator[Terminal]:
    """The command in a terminal of its own; whatever is left of it at the end is ended."""
    terminal = Terminal(command, env, size)
    try:
        yield terminal
    finally:
        terminal.close()


def in_order(terminal: Terminal) -> bool:
    """Whether the terminal is as it was, when what is still on its way to the reader has come."""
    deadline = time.monotonic() + _ON_ITS_WAY_S
    while not _is_in_order(terminal):
        if time.monotonic() >= deadline:
            return False
        terminal.read()
    return True


def _is_in_order(terminal: Terminal) -> bool:
    """Main screen, cursor, mouse, echo, line mode."""
    shown = terminal.written
    screens = shown.rfind(ALT_OFF) > shown.rfind(ALT_ON) >= 0
    mouse = shown.rfind(MOUSE_OFF) >= shown.rfind(MOUSE_ON)
    return screens and mouse and CURSOR_ON in shown and termios.tcgetattr(terminal.slave) == terminal.before
