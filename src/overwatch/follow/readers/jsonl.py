"""JSON lines: one object a line; nested names are joined by `/`.

Rules: what verl's file logger puts below `data` has the names that it has for other loggers.
"""

import json
from collections.abc import Iterator, Mapping

from overwatch.follow.base import Known, Lines, Logged, flat


class JsonReader:
    """One file."""

    def __init__(self) -> None:
        self.known = Known()
        self._lines = Lines(self.known)

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row an object."""
        for line in self._lines.feed(data):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                self.known.problems["lines that are no JSON"] += 1
                continue
            if not isinstance(found, Mapping):
                self.known.problems["lines that are no JSON object"] += 1
                continue
            inner = found.get("data")
            if isinstance(inner, Mapping):
                found = {**{name: value for name, value in found.items() if name != "data"}, **inner}
            yield Logged(values=flat(found))

    def restart(self) -> None:
        """Lines begin anew."""
        self._lines.restart()

    def end(self) -> None:
        """Nothing follows."""
        self._lines.end()


def looks_like(head: bytes) -> bool:
    """Whether a file begins with an object on one line."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \r\n\t").partition(b"\n")
    if not newline:
        return line[:1] == b"{" and line[1:2] in b' "}'
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
