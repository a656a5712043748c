"""Why something of a machine cannot be read: each thing once, for the log and for the run's feed.

Rules: "cannot be read" has a reason and a fix; "is not there" is no trouble. Must not know what is read.
"""

import threading
from dataclasses import dataclass
from typing import Final

from overwatch.extras import Extra

MOST: Final = 64
"""Things that are remembered; more of them are one fault with a changing text."""
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that has no readings."""

    text: str
    trouble: bool = True
    """Whether it is there and cannot be read."""


class Unread:
    """Notes so far; safe from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: set[str] = set()
        self._fresh: list[Note] = []

    def note(self, what: str, why: object, fix: str = "") -> None:
        """Keep that `what` cannot be read, with the first reason that is given for it."""
        text = f"{what} cannot be read: {_reason(why)}" + (f"; {fix}" if fix else "")
        self._keep(what, Note(text=text))

    def lacks(self, extra: Extra) -> None:
        """Keep that something is there and the packages that read it are not."""
        self._keep(extra.name, Note(text=extra.need))

    def missing(self, what: str) -> None:
        """Keep that something is not there: a fact about a machine, and no trouble."""
        self._keep(what, Note(text=what, trouble=False))

    def _keep(self, what: str, note: Note) -> None:
        with self._guard:
            if what not in self._known and len(self._known) < MOST:
                self._known.add(what)
                self._fresh.append(note)

    def take(self) -> tuple[Note, ...]:
        """Notes since this was last called."""
        with self._guard:
            fresh, self._fresh = self._fresh, []
        return tuple(fresh)


def _reason(why: object) -> str:
    """A reason as one line: an error by its kind and text."""
    text = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return " ".join(text.split())[:_LONGEST]
