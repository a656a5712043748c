"""A session at a terminal of a given size: snapshots and keys in, lines out. No Textual, no clock."""

from dataclasses import replace
from datetime import UTC

import msgspec

from overwatch.snapshot import Snapshot
from overwatch.tui.commands import press
from overwatch.tui.context import Context, Frame, Place, freshness, freshness_of
from overwatch.tui.panels.small import Waiting
from overwatch.tui.playback import Mark, Playback, Transport
from overwatch.tui.screen import draw
from overwatch.tui.session import Session
from overwatch.tui.settings import Settings
from overwatch.tui.text import plain


class Deck:
    """A transport that records its commands."""

    def __init__(self, marks: tuple[Mark, ...] = ()) -> None:
        self.reported: list[tuple[str, float]] = []
        self.playback = Playback(time=50.0, first=0.0, last=100.0, playing=False, marks=marks)

    def play(self, *, playing: bool) -> None:
        """Play on, or pause."""
        self.reported.append(("play", playing))
        self.playback = replace(self.playback, playing=playing)

    def step(self, by: int) -> None:
        """Seconds on, or back."""
        self.reported.append(("step", by))

    def seek(self, time: float) -> None:
        """Go to a time."""
        self.reported.append(("seek", time))

    def search(self, kind: str, what: str) -> None:
        """Go to something by its name."""
        self.reported.append((f"{kind} {what}", 0.0))

    def cancel(self) -> None:
        """Stay."""
        self.reported.append(("cancel", 0.0))

    def set_speed(self, speed: float) -> None:
        """Play so fast."""
        self.reported.append(("speed", speed))
        self.playback = replace(self.playback, speed=speed)


class Terminal:
    """What the application does with a session, without the application."""

    def __init__(
        self, snapshot: Snapshot, width: int = 120, height: int = 40, transport: Transport | None = None,
        settings: Settings | None = None,
    ) -> None:  # fmt: skip
        self.session = Session(transport, settings)
        self.session.width, self.session.height = width, height
        self.width, self.height = width, height
        self.now = 100.0
        self.lines: list[str] = []
        self.cursor: Place | None = None
        self.frame = Frame(lines=[])
        self.take(snapshot)

    def take(self, snapshot: Snapshot) -> None:
        """The next snapshot."""
        self.session.take(snapshot)
        self.paint()

    def press(self, *keys: str) -> None:
        """Keys by Textual's names; single characters type themselves."""
        for key in keys:
            names = {"/": "slash", " ": "space", "=": "equals_sign", ">": "greater_than_sign"}
            press(self.session, names.get(key, key), key if len(key) == 1 else None, self.now)
            self.paint()

    def type(self, text: str) -> None:
        """Every character."""
        self.press(*text)

    def paint(self) -> None:
        """Draw, as often as the cursor asks for it."""
        session = self.session
        raw = session.snapshot
        assert raw is not None
        shown = msgspec.structs.replace(session.board.hold.apply(raw, self.now), feed=session.feed)
        frame = draw(session, shown, lambda: self._context(shown), lambda: Waiting(collector="", state=""))
        self.cursor, self.frame = frame.cursor, frame
        self.lines = [plain(line) for line in frame.lines]

    def _context(self, shown: Snapshot) -> Context:
        playback = self.session.playback
        busy = playback is not None and playback.busy
        fresh = freshness_of(shown, playback) if busy else freshness(shown.link, 0.0)
        return Context(
            width=self.width, height=self.height, fresh=fresh, cursor=self.session.board.cursor, zone=UTC,
            ui=self.session.ui, playback=playback,
        )  # fmt: skip

    @property
    def screen(self) -> str:
        """All lines."""
        return "\n".join(self.lines)

    @property
    def under_cursor(self) -> str:
        """The board's line that begins with the cursor."""
        return next(line for line in self.lines if line.startswith(">"))
