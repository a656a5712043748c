"""One user at one terminal: the snapshots that came, what is open, and what the application is asked to do.

Holds state and answers questions about it; `actions` change it. Knows nothing of Textual, drawing or the
network, so that it can be tested by pressing keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from overwatch.feeds.live import Listed
from overwatch.snapshot import Env, FeedLine, Finding, Snapshot, View
from overwatch.snapshot.history import Ask, History
from overwatch.tui import charts
from overwatch.tui.charts import Charts
from overwatch.tui.comparison import Comparison
from overwatch.tui.context import COMPACT_BELOW, Page, Place, Ui
from overwatch.tui.keys import Mode, keymap
from overwatch.tui.memory import Hold
from overwatch.tui.panels import curves
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.panels.policy import names
from overwatch.tui.playback import Playback, Transport
from overwatch.tui.prompt import Vocabulary
from overwatch.tui.settings import Settings

ROWS: Final = 256
_ASCENDING_FIRST: Final = ("env", "return", "reward", "fps", "metric")
"""Sorts that begin with the lowest value: the worst return, the slowest env."""


@dataclass(slots=True)
class Requests:
    """What the application has to do; it takes each away when it begins."""

    going: Listed | None = None
    """The run that the user chose."""
    acknowledging: str | None = None
    """The finding that the user knows about."""
    copying: bool = False
    """What is open, or the row under the cursor, into the clipboard."""
    saving: str | None = None
    """The file that a picture of the screen is wanted in."""
    suspending: bool = False
    """The user wants the shell."""
    leaving: bool = False
    replaying: bool = False
    """The user leaves to look at the recording of this run."""


@dataclass(slots=True)
class Board:
    """The order of the board, and the cursor on it."""

    cursor: Place | None = None
    walk: tuple[Place, ...] = ()
    """Places of the cursor in the frame drawn last."""
    row: int = 0
    """Position of the cursor in the walk, for when its env leaves."""
    sort: str = "anomaly"
    descending: bool = True
    filter: str = ""
    hold: Hold = field(default_factory=Hold)

    @property
    def place(self) -> Place | None:
        """What is under the cursor; without one the first row is."""
        return self.cursor if self.cursor is not None else next(iter(self.walk), None)

    def sort_by(self, name: str, *, descending: bool | None = None) -> None:
        """Order the board; without a direction the one in which the worst come first."""
        self.sort = name
        self.descending = name not in _ASCENDING_FIRST if descending is None else descending
        self.hold.release()

    def filter_by(self, text: str) -> None:
        """Show only envs that pass a filter; all without."""
        if text != self.filter:
            self.filter = text
            self.hold.release()

    def drawn(self, walk: tuple[Place, ...]) -> bool:
        """A frame was drawn; true when the cursor had to move, so that it has to be drawn again."""
        self.walk = walk
        if self.cursor is None or not walk:
            return False
        if self.cursor in walk:
            self.row = walk.index(self.cursor)
            return False
        self.row = min(self.row, len(walk) - 1)
        self.cursor = walk[self.row]
        return True


class Session:
    """What one terminal knows and shows."""

    def __init__(self, transport: Transport | None = None, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.transport = transport
        self.snapshot: Snapshot | None = None
        """As it came."""
        self.shown: Snapshot | None = None
        """As it was drawn last."""
        self.width, self.height = COMPACT_BELOW, 24
        self.ui = Ui(keys=keymap(self.settings.keys), facts=True)
        self.board = Board()
        self.requests = Requests()

    @property
    def slots(self) -> bool:
        """Whether the run has slots."""
        return self.snapshot is not None and self.snapshot.run.slots_enabled

    @property
    def envs(self) -> tuple[Env, ...]:
        """As they were drawn last."""
        return () if self.shown is None else self.shown.envs

    @property
    def mode(self) -> Mode:
        """Where keys go."""
        return self.ui.mode(compact=self.width < COMPACT_BELOW)

    @property
    def playback(self) -> Playback | None:
        """The place in the recording, if one is shown."""
        return None if self.transport is None else self.transport.playback

    @property
    def view(self) -> View:
        """What the snapshots have to carry."""
        board = self.board
        return View(
            rows=ROWS,
            env_id=self.ui.env_id,
            sort=board.sort,
            descending=board.descending,
            filter=board.filter,
            grouped=self.width >= COMPACT_BELOW,
        )

    @property
    def feed(self) -> tuple[FeedLine, ...]:
        """The feed's lines that are shown, oldest first; with an env open all of its own."""
        ui = self.ui
        lines = ui.scrollback.lines(ui.toggles, ui.search, facts=bool(ui.facts) and ui.env_id is None)
        return lines if ui.env_id is None else tuple(line for line in lines if line.env_id == ui.env_id)

    @property
    def feed_line(self) -> FeedLine | None:
        """The feed's line under the cursor; without one, the newest."""
        lines = self.feed
        return lines[-1 - (self.ui.line or 0)] if lines else None

    @property
    def finding(self) -> Finding | None:
        """The one that keys are about: under the page's cursor, in the drawer, or of the cursor's env."""
        if self.snapshot is None:
            return None
        findings, ui = self.snapshot.findings, self.ui
        if ui.page is Page.FINDINGS:
            return findings[self.picked] if findings else None
        if ui.alarm is not None:
            return ui.alarm
        env = ui.env_id if ui.env_id is not None else self.board.cursor
        about = (one for one in findings if one.subject.scope == "env" and one.subject.id == str(env))
        return next(about, None)

    @property
    def picked(self) -> int:
        """Where the cursor of the page is: on a line that there still is."""
        return max(0, min(self.ui.picked, self._length() - 1))

    def _length(self) -> int:
        ui = self.ui
        if ui.page is Page.RUNS:
            return len(ui.runs)
        if self.snapshot is None:
            return 0
        if ui.page is Page.CONFIG:
            return 1 << 16
        if ui.page is Page.LOGS:
            return len(ui.logs)
        if ui.page is Page.COMPARE:
            return 0 if ui.beside is None else len(ui.beside.rows)
        return len(self.snapshot.findings if ui.page is Page.FINDINGS else names(self.snapshot))

    @property
    def sorts(self) -> tuple[str, ...]:
        """What the board can be ordered by: only what the run reports."""
        columns = () if self.snapshot is None else self.snapshot.board.columns
        value = "reward" if "return" not in columns and "reward" in columns else "return"
        cycle = ("anomaly", "env", value, "fps", "metric")
        return tuple(name for name in cycle if name in ("anomaly", "env", *columns))

    @property
    def vocabulary(self) -> Vocabulary:
        """What can be named in a prompt."""
        alarms = 0 if self.shown is None else len(on_rail(self.shown))
        runs = tuple(one.run.run_id for one in self.ui.runs if one.run is not None)
        return Vocabulary.of(self.snapshot, replay=self.transport is not None, alarms=alarms, runs=runs)

    def asks(self) -> list[tuple[str, Ask]]:
        """What of which run's past the screen needs now."""
        shown, ui = self.snapshot, self.ui
        if shown is None:
            return []
        if ui.page is Page.CURVES:
            grid = curves.layout(shown, ui.charts, self.width, self.height)
            return charts.asks(shown, ui.charts, grid.shown, grid.wide)
        if ui.page is Page.CONFIG:
            return charts.asks(shown, ui.charts, (), 0, about=True)
        if (ui.page is None and self.width >= COMPACT_BELOW) or curves.replaces_board(shown):
            return charts.asks(shown, Charts(), curves.worst(shown), self.width)
        return []

    def take(self, snapshot: Snapshot) -> None:
        """The next snapshot; a feed line under the cursor stays there."""
        ui = self.ui
        if self.snapshot is not None and snapshot.run.run_id != self.snapshot.run.run_id:
            ui.close()
            ui.folds = {}
            self.board.cursor, self.board.row = None, 0
        self.snapshot = snapshot
        before = len(self.feed) if ui.line is not None else 0
        added = ui.scrollback.take(snapshot)
        ui.heat.take(snapshot)
        ui.history.take(snapshot)
        ui.past.take(snapshot, ui.env_id)
        if ui.line is not None and added:
            ui.line = max(0, min(ui.line + len(self.feed) - before, len(self.feed) - 1))
        if ui.alarm is not None:
            same = (finding for finding in snapshot.findings if finding.id == ui.alarm.id)
            ui.alarm = next(same, ui.alarm)

    def remember(self, history: History) -> None:
        """The past of a run has come."""
        kept = {**self.ui.charts.histories, history.run_id: history}
        shown = None if self.snapshot is None else self.snapshot.run.run_id
        wanted = {shown, history.run_id, *self.ui.charts.marked}
        self.ui.charts.histories = {run: past for run, past in kept.items() if run in wanted}

    def print(self, lines: Iterable[str], now: float) -> None:
        """What the program beside has printed; of a line that was overwritten the last text."""
        texts = (line.rpartition("\r")[2] for line in lines)
        self.ui.console.extend(
            FeedLine(time=now, severity="info", subsystem="console", message=text, kind="log_line")
            for text in texts
            if text.strip()
        )

    def compare_with(self, beside: Comparison | None) -> None:
        """Show this run and another beside one another, first of all."""
        self.ui.beside = beside
        if beside is not None:
            self.ui.page = Page.COMPARE
