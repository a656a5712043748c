"""The one widget: lines on a terminal, of which only the cells that changed are written again.

A Line API widget: `render_line` hands out strips that are made once for each changed line. Must not know
snapshots or panels.
"""

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
