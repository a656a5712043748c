"""The terminal's driver: a mouse that reports clicks and the wheel alone, and an output that may go away.

Textual's own driver asks for every movement as well, in pixels where it can: bytes over a slow line that
no one here reads. It writes in a thread with a bounded queue: where a write fails that thread ends, frames
fill the queue, and the application waits for room for ever. Here what cannot be written is dropped, so that
the application comes to see that there is no terminal. Must not know what a click means.
"""

from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver


class Output:
    """A stream to which nothing is written any more once a write has failed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_gone = False

    def write(self, text: str) -> None:
        """Write it, or drop it."""
        if not self._is_gone:
            try:
                self._stream.write(text)
            except OSError:
                self._is_gone = True

    def flush(self) -> None:
        """Flush what was written."""
        if not self._is_gone:
            try:
                self._stream.flush()
            except OSError:
                self._is_gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class ClickDriver(LinuxDriver):
    """Reports clicks and the wheel while asked to; on every way out the terminal's mouse is its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file: Any = Output(self._file)

    def report_mouse(self, *, on: bool) -> None:
        """Report from now on, or leave the mouse to the terminal."""
        if on == self._mouse:
            return
        if on:
            self._mouse = True
            self._enable_mouse_support()
        else:
            self._disable_mouse_support()
            self._mouse = False

    def _enable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")
            self.flush()

    def _disable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000l\x1b[?1006l")
            self.flush()

    def _enable_mouse_pixels(self) -> None:
        """Cells are enough."""
