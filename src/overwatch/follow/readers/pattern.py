r"""Lines of text by a regular expression: `step=(?P<step>\d+) loss=(?P<loss>\S+)`.

Rules: the names of its groups are the names of the numbers; a group `name` beside a group `value` takes every
pair on a line. A line that does not match is no row. A traceback that ends the text is how the program ended.
"""

import re
from collections.abc import Iterator
from typing import Final

from overwatch.follow.base import Known, Lines, Logged, number

_TRACEBACK: Final = "Traceback (most recent call last)"
_STOPS: Final = ("KeyboardInterrupt", "SystemExit")


class PatternReader:
    """One text."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.known = Known()
        self._lines = Lines(self.known)
        self._pattern = pattern
        self._is_pairs = {"name", "value"} <= set(pattern.groupindex)
        self._is_traceback = False

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row a line that matches and has a number."""
        for line in self._lines.feed(data):
            self._note(line)
            values = {name: value for name, value in self._pairs(line) if isinstance(value, float)}
            if values:
                yield Logged(values=values)

    def restart(self) -> None:
        """Lines begin anew."""
        self._lines.restart()

    def end(self) -> None:
        """Nothing follows."""
        self._lines.end()

    def _pairs(self, line: str) -> Iterator[tuple[str, float | str | None]]:
        if self._is_pairs:
            for found in self._pattern.finditer(line):
                yield found["name"].strip(), number(found["value"] or "")
            return
        match = self._pattern.search(line)
        for name, word in (match.groupdict() if match else {}).items():
            yield name, number(word or "")

    def _note(self, line: str) -> None:
        """Of a traceback the first line that is not indented has the exception; what follows undoes it."""
        if line.startswith(_TRACEBACK):
            self._is_traceback, self.known.ending = True, None
        elif not line[0].isspace():
            outcome = "interrupted" if line.startswith(_STOPS) else "failed"
            self.known.ending = (outcome, line[:500]) if self._is_traceback else None
            self._is_traceback = False


def parse_pattern(text: str) -> re.Pattern[str]:
    """A pattern that names something; raises `ValueError`."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    if not pattern.groupindex:
        raise ValueError(f"{text!r} names no number; write groups like (?P<loss>\\S+)")
    return pattern
