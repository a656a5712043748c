"""What keys do to the pages that list something: the runs of all collectors, and all findings of a run.

Owns which page is open and where its cursor is; what is chosen is told to whoever can do it. Must not know
drawing or the network.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final

from overwatch.feeds.towers import Listed
from overwatch.snapshot import FeedLine, Finding
from overwatch.tui import moments
from overwatch.tui.beside import Beside
from overwatch.tui.boarding import Boarding
from overwatch.tui.history import History
from overwatch.tui.panels.policy import names
from overwatch.tui.playback import Transport

CONSOLE: Final = 1000
"""Lines of a program's console that are kept."""


class Page(Enum):
    """A page that lists something."""

    RUNS = "runs"
    FINDINGS = "findings"
    POLICY = "policy"
    COMPARE = "compare"
    CURVES = "curves"
    CONFIG = "config"
    LOGS = "logs"


class Paging(Boarding):
    """The part of a session that is about pages."""

    def __init__(self, transport: Transport | None = None) -> None:
        super().__init__(transport)
        self.runs: tuple[Listed, ...] = ()
        """As they were told last."""
        self.history = History()
        self.page: Page | None = None
        """What is open."""
        self.going: Listed | None = None
        """The run that the user chose, until the feed goes there."""
        self.acknowledging: str | None = None
        """The finding that the user knows about, until the collector is told."""
        self._picked = 0
        self._console = deque[FeedLine](maxlen=CONSOLE)
        self.beside: Beside | None = None
        """This run and another, where they are compared."""

    @property
    def picked(self) -> int:
        """Where the cursor of the page is."""
        return max(0, min(self._picked, self._length() - 1))

    def _length(self) -> int:
        if self.page is Page.RUNS:
            return len(self.runs)
        if self.snapshot is None:
            return 0
        if self.page is Page.CONFIG:
            return 1 << 16
        if self.page is Page.LOGS:
            return len(self.logs)
        if self.page is Page.COMPARE:
            return 0 if self.beside is None else len(self.beside.rows)
        return len(self.snapshot.findings if self.page is Page.FINDINGS else names(self.snapshot))

    @property
    def logs(self) -> tuple[FeedLine, ...]:
        """The lines of the trainer's own log and console, newest first."""
        lines = (*self.scrollback.lines(frozenset({"log"})), *self._console)
        return tuple(sorted(lines, key=lambda line: line.time)[::-1])

    def print(self, lines: Iterable[str], now: float) -> None:
        """What the program beside has printed; of a line that was overwritten the last text."""
        texts = (line.rpartition("\r")[2] for line in lines)
        self._console.extend(
            FeedLine(time=now, severity="info", subsystem="console", message=text, kind="log_line")
            for text in texts
            if text.strip()
        )

    def do_page(self, name: int | str) -> None:
        """Open a page, or close it."""
        wanted = Page(name)
        if wanted is Page.COMPARE and self.beside is None:
            self.notice = "nothing to compare with; start as overwatch tui --compare THIS OTHER"
            return
        self.page = None if self.page is wanted else wanted
        here = (i for i, one in enumerate(self.runs) if one.run and self._watches(one))
        self._picked = next(here, 0) if self.page is Page.RUNS else 0

    def compare_with(self, beside: Beside | None) -> None:
        """Show this run and another beside one another, first of all."""
        self.beside = beside
        if beside is not None:
            self.page = Page.COMPARE

    def _watches(self, listed: Listed) -> bool:
        shown = self.snapshot
        return shown is not None and listed.run is not None and listed.run.run_id == shown.run.run_id

    def do_pick(self, by: int | str) -> None:
        """The cursor of the page."""
        self._picked = min(max(0, self.picked + int(by)), max(0, self._length() - 1))

    def point_at_pick(self, place: int) -> None:
        """The page's cursor onto a line; what is under it is chosen."""
        if place == self.picked:
            self.do_choose(0)
        else:
            self._picked = place

    def do_choose(self, _: int | str) -> None:
        """The run under the cursor from now on, or what the finding under it is about."""
        if self.page is Page.RUNS and self.runs:
            self._choose(self.runs[self.picked])
        elif self.page is Page.FINDINGS and (finding := self._finding()) is not None:
            self.page = None
            self.open_finding(finding)

    def _choose(self, listed: Listed) -> None:
        if listed.run is None:
            self.notice = f"{listed.collector} does not answer: {listed.reason}"
            return
        self.page, self.going = None, listed

    def watch(self, run_id: str) -> bool:
        """Go to a run by its id; whether there is one."""
        found = next((one for one in self.runs if one.run and one.run.run_id == run_id), None)
        if found is not None:
            self._choose(found)
        return found is not None

    def do_next_run(self, by: int | str) -> None:
        """The run after the watched one in the list, round at its end."""
        known = [one for one in self.runs if one.run]
        if len(known) < 2:
            self.notice = "there is no other run"
            return
        here = next((i for i, one in enumerate(known) if self._watches(one)), -1)
        self._choose(known[(here + int(by)) % len(known)])

    def _finding(self) -> Finding | None:
        """The one that the keys are about: under the page's cursor, in the drawer, or of the cursor's env."""
        if self.snapshot is None:
            return None
        findings = self.snapshot.findings
        if self.page is Page.FINDINGS:
            return findings[self.picked] if findings else None
        if self._alarm is not None:
            return self._alarm
        env = self._env_id if self._env_id is not None else self.cursor
        about = (one for one in findings if one.subject.scope == "env" and one.subject.id == str(env))
        return next(about, None)

    def do_moment(self, _: int | str) -> None:
        """The feed where that finding began; a recording goes there too."""
        finding = self._finding()
        if finding is None:
            self.notice = "there is no finding about what is under the cursor; A lists them all"
            return
        self.page = None
        self._close()
        self._toggles, self._search, self._feed_has_keys, self._line = frozenset(), "", True, None
        self._facts = False
        if self.transport is not None:
            self.transport.seek(finding.since)
            return
        self._line = moments.line_of(finding, self.feed)
        if self._line is None:
            self.notice = "the feed here does not go back to when this began; r opens the recording"

    def do_cause(self, _: int | str) -> None:
        """The finding that the feed's line belongs to."""
        if self.snapshot is None or not self.feed:
            return
        finding = moments.finding_of(self.feed[-1 - (self._line or 0)], self.snapshot.findings)
        if finding is None:
            self.notice = "this line belongs to no finding"
            return
        self._close_but_size()
        self._alarm, self._feed_has_keys = finding, False

    def do_ack(self, _: int | str) -> None:
        """Acknowledge that finding; where none is meant, list them to choose from."""
        finding = self._finding()
        if self.transport is not None:
            self.notice = "this is a recording; only a live finding can be acknowledged"
        elif finding is None and self.page is None and self.snapshot is not None and self.snapshot.findings:
            self.do_page(Page.FINDINGS.value)
        elif finding is None:
            self.notice = "there is nothing to acknowledge"
        elif finding.acknowledged:
            self.notice = f"{finding.code} is acknowledged already"
        else:
            self.acknowledging = finding.id
            self.notice = f"{finding.code}: acknowledging"
