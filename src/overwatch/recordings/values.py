"""JSON values in a file: one a line, or over many lines, one behind another, as elements of an array.

Most files have one a line, and of these only the ends of lines are looked for. Where a line is no value by
itself, brackets and strings are followed until a line ends outside of all values. Rules: of a file of any
size no more is held than one value; what is damaged is a value of its own that nobody can read, and the next
one begins where a value cannot go on. Must not know what values mean.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

MOST_BYTES: Final = 64 << 20
"""Longest value that is held."""
_CHUNK_BYTES: Final = 1 << 20
_TOKEN: Final = re.compile(
    rb'("[^"\\\n]*(?:\\[^\n][^"\\\n]*)*")'  # a string
    rb'|("[^\n]*\Z)'  # one that may go on behind what was read
    rb'|(")'  # one that a line end cuts off
    rb'|[{}\[\],:\n]|[^\s"{}\[\],:]+'
)
_CUT_OFF: Final = 3
_SEVERAL: Final = re.compile(rb"\}[ \t]*\{")
_NEWLINE, _QUOTE, _COMMA, _COLON, _OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = b'\n",:{}[]'
_DAMAGE: Final = 0
"""In place of a token's first byte: it cannot be here."""
_PAIRS: Final = {_OBJECT_END: _OBJECT, _ARRAY_END: _ARRAY}


class Extent(NamedTuple):
    """Where one value lies."""

    offset: int
    length: int
    is_last: bool = False
    """The file ends with it, and nothing says that it is whole."""
    data: bytes | None = None
    """Where it was at hand."""


class _Window:
    """What was read of a file and is not done with."""

    def __init__(self, read: Callable[[int, int], bytes], offset: int) -> None:
        self._read = read
        self.data, self.at, self.base = b"", 0, offset
        """Bytes, how many of them are done with, and where they begin in the file."""
        self.is_whole = False
        """Nothing is behind it."""

    @property
    def offset(self) -> int:
        """Where what is not done with begins in the file."""
        return self.base + self.at

    def more(self) -> None:
        """Let go of what is done with, and read on."""
        self.data, self.base, self.at = self.data[self.at :], self.offset, 0
        chunk = self._read(self.base + len(self.data), _CHUNK_BYTES)
        self.data += chunk
        self.is_whole = not chunk

    def line_end(self) -> int | None:
        """Where the line ends; `None` where the file, or all that may be held, ends before it."""
        looked_at = 0
        while (end := self.data.find(b"\n", self.at + looked_at)) < 0:
            looked_at = len(self.data) - self.at
            if self.is_whole or looked_at > MOST_BYTES:
                return None
            self.more()
        return end

    def skip_line(self) -> int:
        """Pass over the line, however long; how many bytes it has."""
        begun = self.offset
        while (end := self.data.find(b"\n", self.at)) < 0 and not self.is_whole:
            self.at = len(self.data)
            self.more()
        self.at = len(self.data) if end < 0 else end
        length = self.offset - begun
        self.at += end >= 0
        return length


def values(read: Callable[[int, int], bytes], offset: int) -> Iterator[Extent]:
    """Every value from an offset on; `read` gives bytes by offset and length, fewer at the end."""
    window = _Window(read, offset)
    while True:
        yield from _lines(window)
        if window.is_whole and window.at == len(window.data):
            return
        yield from _tokens(window)


def _lines(window: _Window) -> Iterator[Extent]:
    """Lines that are values by themselves, or nothing that could be one; up to the end, or another line."""
    while True:
        begun, end = window.offset, window.line_end()
        line = window.data[window.at : end]
        if _is_more(line, is_cut=end is None and not window.is_whole):
            return
        if end is None and not window.is_whole:
            yield Extent(begun, window.skip_line())
            continue
        window.at += len(line) + (end is not None)
        text = line.rstrip(b"\r")
        if text.strip():
            yield Extent(begun, len(text), is_last=end is None, data=text)
        if end is None:
            return


def _is_more(line: bytes, *, is_cut: bool) -> bool:
    """Whether a line may hold a part of a value, or several."""
    text = line.strip()
    if not text.startswith(b"{"):
        return text.startswith(b"[")
    return is_cut or not text.endswith(b"}") or _SEVERAL.search(text) is not None


def _tokens(window: _Window) -> Iterator[Extent]:
    """Values wherever they begin and end, up to the end of a line outside of all of them."""
    scan = _Scan()
    while True:
        for found in _TOKEN.finditer(window.data, window.at):
            window.at, kind = found.start(), window.data[found.start()]
            if kind == _QUOTE and found.lastindex != 1:
                is_open = found.lastindex != _CUT_OFF and len(found.group()) <= MOST_BYTES
                if is_open and not window.is_whole:
                    break
                kind = _DAMAGE
            extent = scan.take(kind, window.offset)
            window.at = found.end()
            if extent is not None:
                yield extent
            if scan.is_over:
                return
        else:
            window.at = len(window.data)
        if window.is_whole:
            yield from scan.rest(window.offset)
            return
        window.more()


class _Scan:
    """Where in a value the scan is."""

    def __init__(self) -> None:
        self.is_over = False
        """A line ended outside of all values."""
        self._open = bytearray()
        """Brackets of the value that are open..."""
        self._start = 0
        """...where it began..."""
        self._before = 0
        """...and the token before."""
        self._is_spread: bool | None = None
        """Its first line is a bracket alone; `None` until that is known."""
        self._line = -1
        """Where the line began."""
        self._arrays = 0
        """Arrays around values that are open."""
        self._damaged: int | None = None
        """Where something began that is no value."""

    def take(self, kind: int, at: int) -> Extent | None:
        """Take the next token, by its first byte; returns the value that ends with it, or before it."""
        if not self._open:
            return self._outside(kind, at)
        self._is_spread = kind == _NEWLINE if self._is_spread is None else self._is_spread
        if kind == _NEWLINE:
            self._line = at + 1
            return None
        # A line that was cut off goes on, to a parser, with an object of the next.
        is_next = kind == _OBJECT and at == self._line and not self._is_spread
        if is_next or not self._fits(kind):
            self._open.clear()
            self._damaged = self._start
            return self._outside(kind if kind == _OBJECT else _DAMAGE, at)
        if kind in (_OBJECT, _ARRAY):
            self._open.append(kind)
        elif kind in _PAIRS:
            self._open.pop()
        self._before = kind
        return None if self._open else Extent(self._start, at + 1 - self._start)

    def _fits(self, kind: int) -> bool:
        inside, before = self._open[-1], self._before
        if kind in _PAIRS:
            return _PAIRS[kind] == inside
        if kind not in (_OBJECT, _ARRAY, _QUOTE):
            return kind != _DAMAGE
        if inside == _ARRAY:
            return before in (_ARRAY, _COMMA)
        return before == _COLON or (kind == _QUOTE and before in (_OBJECT, _COMMA))

    def _outside(self, kind: int, at: int) -> Extent | None:
        """The same outside of all values."""
        if kind == _COMMA or (kind == _ARRAY and self._damaged is None):
            self._arrays += kind == _ARRAY
            return None
        if kind not in (_OBJECT, _ARRAY_END, _NEWLINE):
            self._damaged = at if self._damaged is None else self._damaged
            return None
        damaged, self._damaged = self._damaged, None
        if kind == _OBJECT:
            self._open.append(kind)
            self._start, self._before, self._is_spread = at, kind, None
        elif kind == _ARRAY_END:
            self._arrays = max(0, self._arrays - 1)
        self.is_over = kind == _NEWLINE and not self._arrays
        return None if damaged is None else Extent(damaged, at - damaged)

    def rest(self, at: int) -> Iterator[Extent]:
        """What the end of the file cuts off."""
        start = self._start if self._open else self._damaged
        if start is not None:
            yield Extent(start, at - start, is_last=True)
