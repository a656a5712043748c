"""JSON lines: one object a line, or the objects of an array; nested names are joined by `/`.

Rules: an array is read element by element, wherever its lines end, and never held whole; what
verl's file logger puts below `data` has the names that it has for other loggers.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from overwatch.follow.base import MOST_BYTES, Known, Lines, Logged, flat

_BLANK: Final = b"\xef\xbb\xbf \r\n\t"
"""What may precede the first value."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*+(?:["\n]|(\\?\Z))|[{}\[\]]')
"""A bracket, or a text; group 1 matches where the text goes on in later bytes."""
_DEEPER: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


class JsonReader:
    """One file."""

    def __init__(self) -> None:
        self.known = Known()
        self._lines = Lines(self.known)
        self._array: _Array | None = None
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row an object."""
        if not self._is_begun and (first := data.lstrip(_BLANK)):
            self._is_begun = True
            if first.startswith(b"["):
                data, self._array = first, _Array(self.known)
        if self._array is not None:
            for element in self._array.feed(data):
                yield from self._row(element.decode("utf-8", "replace"), "array elements that are no JSON")
            if not self._array.is_over:
                return
            data, self._array = self._array.rest, None
        for line in self._lines.feed(data):
            if line.strip():
                yield from self._row(line, "lines that are no JSON")

    def restart(self) -> None:
        """The first value decides again."""
        self._lines.restart()
        self._array, self._is_begun = None, False

    def end(self) -> list[Logged]:
        """An object that is closed is whole without a line feed."""
        if self._array is not None:
            self.known.problems["arrays cut off at the end"] += 1
            self._array = None
        rest = self._lines.end()
        return list(self._row(rest, "lines cut off at the end")) if rest.strip() else []

    def _row(self, line: str, problem: str) -> Iterator[Logged]:
        found = _parsed(line)
        if isinstance(found, Mapping):
            inner = found.get("data")
            if isinstance(inner, Mapping):
                found = {**{name: value for name, value in found.items() if name != "data"}, **inner}
            yield Logged(values=flat(found))
        else:
            self.known.problems[problem if found is None else "lines that are no JSON object"] += 1


class _Array:
    """The elements of a JSON array out of bytes that are cut anywhere."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.rest = b""
        """Of the element that is open; behind the array, what follows it."""
        self.is_over = False
        self._seen = 0
        """Bytes of the rest that were looked at."""
        self._depth = 0
        self._is_too_long = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Objects and arrays that are whole with these bytes; what else an array holds is counted."""
        self.rest += data
        begin = 0
        while not self.is_over and (token := _TOKEN.search(self.rest, self._seen)):
            if token[1] is not None:
                break
            self._seen, change = token.end(), _DEEPER.get(token[0], 0)
            self._depth += change
            if change and self._depth == (2 if change > 0 else 0):
                between = self.rest[begin : token.start()].strip(b", \r\n\t")
                if between not in (b"", b"["):
                    self._known.problems["array elements that are no JSON object"] += 1
                begin = token.start()
                self.is_over = change < 0
            elif change < 0 and self._depth == 1:
                if not self._is_too_long:
                    yield self.rest[begin : token.end()]
                begin, self._is_too_long = token.end(), False
            elif change and self._depth == 1:
                begin = token.end()
        self._drop(len(self.rest) if token is None else self._seen, begin)

    def _drop(self, seen: int, begin: int) -> None:
        """Forget what was yielded, and an element that is longer than any may be."""
        if self.is_over:
            self.rest = self.rest[self._seen :]
        elif len(self.rest) - begin <= MOST_BYTES:
            self.rest, self._seen = self.rest[begin:], seen - begin
        else:
            self._known.problems[f"elements of more than {MOST_BYTES >> 20} MiB"] += not self._is_too_long
            # A text that is open stays open.
            self.rest, self._seen, self._is_too_long = b'"' if seen < len(self.rest) else b"", 0, True


def _parsed(line: str) -> Any:
    """What a line holds; `None` where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def looks_like(head: bytes) -> bool:
    """Whether a file begins with an object on one line, or with an array of objects."""
    head = head.lstrip(_BLANK)
    if head.startswith(b"["):
        return head[1:].lstrip(_BLANK).startswith(b"{")
    line, newline, _ = head.partition(b"\n")
    if not newline:
        return line[:1] == b"{" and line[1:2] in b' "}'
    return isinstance(_parsed(line.decode("utf-8", "replace")), dict)
