"""The terminal as Textual has it: the one widget, and a driver for a mouse and an output that may go away.

The widget is lines, of which only the cells that changed are written again: `render_line` hands out strips
that are made once for each changed line. The driver reports clicks and the wheel alone: Textual's own asks
for every movement as well, in pixels where it can, bytes over a slow line that nothing here reads. That one
writes in a thread with a bounded queue: where a write fails the thread ends, frames fill the queue, and the
application waits for room for ever. Here what cannot be written is dropped, so that the application comes to
see that there is no terminal. Must not know snapshots, panels or what a click means.
"""

from collections.abc import Callable
from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from overwatch.tui.text import Line, cells, width_of
from overwatch.tui.theme import Look


class Canvas(Widget):
    """Shows lines that are exactly as wide as itself."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; background: transparent; }"

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._lines: list[Line] = []
        self._strips: list[Strip] = []

    @property
    def look(self) -> Look:
        """How lines look; another look draws all of them again."""
        return self._look

    @look.setter
    def look(self, look: Look) -> None:
        if look != self._look:
            self._look = look
            self._strips = [self._strip(line) for line in self._lines]
            self.refresh()

    @property
    def lines(self) -> list[Line]:
        """What is shown."""
        return self._lines

    def show(self, lines: list[Line]) -> int:
        """Show these lines; returns how many cells have to be written again."""
        dirty: list[Region] = []
        if len(lines) != len(self._lines):
            self._lines, self._strips = list(lines), [self._strip(line) for line in lines]
            self.refresh()
            return sum(map(width_of, lines))
        for y, line in enumerate(lines):
            if line != self._lines[y]:
                dirty.append(_changed(self._lines[y], line, y))
                self._lines[y] = line
                self._strips[y] = self._strip(line)
        if dirty:
            self.refresh(*dirty)
        return sum(region.area for region in dirty)

    def _strip(self, line: Line) -> Strip:
        return Strip(self._look.segments(line), width_of(line))

    def render_line(self, y: int) -> Strip:
        """One line of the widget, as Textual asks for it."""
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width)


def _changed(old: Line, new: Line, y: int) -> Region:
    """The cells between the first and the last span that differ."""
    least = min(len(old), len(new))
    start = 0
    while start < least and old[start] == new[start]:
        start += 1
    end = 0
    while end < least - start and old[-1 - end] == new[-1 - end]:
        end += 1
    before = sum(cells(span.text) for span in new[:start])
    after = sum(cells(span.text) for span in new[len(new) - end :])
    width = max(width_of(new), width_of(old))
    return Region(before, y, max(1, width - before - after), 1)


class Output:
    """A stream to which nothing is written any more once a write has failed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_gone = False

    def write(self, text: str) -> None:
        """Write it, or drop it."""
        self._do(self._stream.write, text)

    def flush(self) -> None:
        """Flush what was written."""
        self._do(self._stream.flush)

    def _do(self, what: Callable[..., object], *inputs: str) -> None:
        if not self._is_gone:
            try:
                what(*inputs)
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
        self._ask("\x1b[?1000h\x1b[?1006h")

    def _disable_mouse_support(self) -> None:
        self._ask("\x1b[?1000l\x1b[?1006l")

    def _ask(self, sequence: str) -> None:
        if self._mouse:
            self.write(sequence)
            self.flush()

    def _enable_mouse_pixels(self) -> None:
        """Cells are enough."""
