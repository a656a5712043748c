"""What keys do to the feed: its cursor, its toggles, its search.

Owns the lines this terminal has seen. Must not know the board or drawing.
"""

from overwatch.snapshot import FeedLine
from overwatch.tui.playback import Transport
from overwatch.tui.scrollback import Scrollback
from overwatch.tui.transporting import Transporting


class Feeding(Transporting):
    """The part of a session that is about the feed."""

    def __init__(self, transport: Transport | None = None) -> None:
        super().__init__(transport)
        self.scrollback = Scrollback()
        self._feed_has_keys = False
        self._toggles: frozenset[str] = frozenset()
        self._search = ""
        self._facts = True
        """Only what can be read as it comes: facts and warnings."""
        self._line: int | None = None
        """The line under the cursor, counted back from the newest; `None` follows."""

    @property
    def feed(self) -> tuple[FeedLine, ...]:
        """The lines that are shown, oldest first."""
        return self.scrollback.lines(self._toggles, self._search, facts=self._facts)

    def search_for(self, text: str) -> None:
        """Show only lines with all of these words; all without."""
        self._search, self._line = text, None

    def do_line(self, by: int | str) -> None:
        """The feed's cursor so many lines back; before the newest it follows again."""
        at = (-1 if self._line is None else self._line) + int(by)
        self._line = None if at < 0 or not self.feed else min(at, len(self.feed) - 1)

    def do_toggle(self, kind: int | str) -> None:
        """Only that kind of lines, or no longer."""
        self._toggles = self._toggles ^ {str(kind)}
        self._line = None

    def do_level(self, _: int | str) -> None:
        """Every line, or only facts and warnings again."""
        self._facts, self._line = not self._facts, None

    def do_pause(self, _: int | str) -> None:
        """Stop following at the newest line, or follow again."""
        self._line = None if self._line is not None else 0 if self.feed else None

    def do_rewind(self, _: int | str) -> None:
        """The recording to the moment of the line under the cursor."""
        if self.transport is not None and self.feed:
            self.transport.seek(self.feed[-1 - (self._line or 0)].time)
            self._line = None
