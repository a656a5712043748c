"""What readers give: rows of named values, and what could not be read.

Rules: what is no row is counted by its reason and never ends the reading. Must not know formats.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

MOST_BYTES: Final = 16 << 20
"""Of one line or record; a longer one is passed over."""
_NUMBER: Final = re.compile(
    r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE
)
"""How programs spell a number as text; `float` would take `1_0` too."""


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """What a program wrote at once."""

    values: dict[str, Any]
    """Numbers, and whatever else stood there, by the program's own names."""
    step: float | None = None
    """Where the format has a place for it."""
    at: float | None = None
    """Unix seconds, where the format has a place for it."""


class Known(msgspec.Struct, kw_only=True):
    """What a reader found besides rows."""

    problems: Counter[str] = msgspec.field(default_factory=Counter)
    """How many parts could not be used, by the reason."""
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """The run's settings."""
    ending: tuple[str, str | None] | None = None
    """Outcome and reason, where the program left them."""
    is_over: bool = False
    """The program wrote that it ended, and writes no more."""


class Reader(Protocol):
    """Rows out of the bytes of one file; bytes come in their order, cut anywhere."""

    known: Known

    def feed(self, data: bytes) -> Iterator[Logged]:
        """The rows that are whole with these bytes; the rest waits for more."""

    def restart(self) -> None:
        """The file begins anew: what waits is no part of it."""

    def end(self) -> list[Logged]:
        """No more bytes come: rows that are whole without a line feed; the rest is counted as cut off."""


class Source(Protocol):
    """What rows come from: a file, or standard input."""

    path: Path
    reader: Reader | None
    waiting: deque[Logged]
    """Rows that were read, and not yet taken."""

    def look(self) -> bool:
        """Read on where no row waits; whether one does then."""

    def take(self) -> Logged:
        """The oldest row that waits."""

    def end(self) -> None:
        """It is not read on; rows may wait."""

    def remarks(self) -> Iterator[str]:
        """What could not be used, in a line each."""


class Lines:
    """Lines of text, ended by a line feed, a carriage return, or both."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._rest = b""
        self._is_too_long = False

    def feed(self, data: bytes) -> list[str]:
        """Whole lines, with their ends; a line feed that comes behind its carriage return is a blank one."""
        *whole, rest = _ENDED.split(self._rest + data)
        if self._is_too_long and whole:
            del whole[0]
            self._is_too_long = False
        if len(rest) > MOST_BYTES or self._is_too_long:
            self._known.problems[f"lines of more than {MOST_BYTES >> 20} MiB"] += not self._is_too_long
            rest, self._is_too_long = b"", True
        self._rest = rest
        return [line.decode("utf-8-sig", "replace").strip("\0") for line in whole]

    def restart(self) -> None:
        """Forget the rest."""
        self._rest, self._is_too_long = b"", False

    def end(self) -> str:
        """Return the last line, which has no end; empty where there is none."""
        rest, self._rest = self._rest, b""
        return rest.decode("utf-8-sig", "replace").strip("\0")


_ENDED: Final = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")
CUT: Final = "rows without an end of line at the end: left out, as they may be half written"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their path: `{"a": {"b": 1}}` is `{"a/b": 1}`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}/"))
        else:
            found[f"{prefix}{name}"] = number(value) if isinstance(value, str) else value
    return found


def number(text: str) -> float | str | None:
    """A cell: a number, else its text; `None` where it is empty."""
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else text or None
