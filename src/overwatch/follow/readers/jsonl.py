"""JSON lines: one object a line; nested names are joined by `/`.

Rules: what verl's file logger puts below `data` has the names that it has for other loggers.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from overwatch.follow.base import Known, Lines, Logged, flat


class JsonReader:
    """One file."""

    def __init__(self) -> None:
        self.known = Known()
        self._lines = Lines(self.known)

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row an object."""
        for line in self._lines.feed(data):
            if line.strip():
                yield from self._row(line, "lines that are no JSON")

    def restart(self) -> None:
        """Lines begin anew."""
        self._lines.restart()

    def end(self) -> list[Logged]:
        """An object that is closed is whole without a line feed."""
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


def _parsed(line: str) -> Any:
    """What a line holds; `None` where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def looks_like(head: bytes) -> bool:
    """Whether a file begins with an object on one line."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \r\n\t").partition(b"\n")
    if not newline:
        return line[:1] == b"{" and line[1:2] in b' "}'
    return isinstance(_parsed(line.decode("utf-8", "replace")), dict)
