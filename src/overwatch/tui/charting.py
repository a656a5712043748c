"""What keys do to charts: which one, how much of the run, what lies over it, where values are read.

Owns the user's part of the pages of curves and of the configuration. Must not know drawing or the network.
"""

from dataclasses import replace

from overwatch.snapshot.history import Ask, History
from overwatch.tui import charts
from overwatch.tui.charts import LEAST_WINDOW, OVERLAYS, Charts
from overwatch.tui.context import COMPACT_BELOW
from overwatch.tui.paging import Page, Paging
from overwatch.tui.panels import curves, learning
from overwatch.tui.playback import Transport


class Charting(Paging):
    """The part of a session that is about charts."""

    def __init__(self, transport: Transport | None = None) -> None:
        super().__init__(transport)
        self.charts = Charts()
        self.height = 24

    def asks(self) -> list[tuple[str, Ask]]:
        """What of which run's past the screen needs now."""
        if self.snapshot is None:
            return []
        if self.page is Page.CURVES:
            grid = curves.layout(self.snapshot, self.charts, self.width, self.height)
            return charts.asks(self.snapshot, self.charts, grid.shown, grid.wide)
        if self.page is Page.CONFIG:
            return charts.asks(self.snapshot, self.charts, (), 0, about=True)
        shown = (self.page is None and self.width >= COMPACT_BELOW) or learning.wanted(self.snapshot)
        return (
            charts.asks(self.snapshot, Charts(), learning.worst(self.snapshot), self.width) if shown else []
        )

    def remember(self, history: History) -> None:
        """The past of a run has come."""
        kept = {**self.charts.histories, history.run_id: history}
        shown = None if self.snapshot is None else self.snapshot.run.run_id
        wanted = {shown, history.run_id, *self.charts.marked}
        self.charts = replace(
            self.charts, histories={run: past for run, past in kept.items() if run in wanted}
        )

    def match_curves(self, pattern: str) -> None:
        """Open the page with the numbers that pass; all without a pattern."""
        self.page = Page.CURVES
        self.charts = replace(self.charts, pattern=pattern, picked=0, whole=False)

    def do_match(self, _: int | str) -> None:
        """Ask for the text that names must have."""
        self.ask_command(f"curves {self.charts.pattern}")

    def ask_command(self, text: str) -> None:
        """Ask for a command that is begun already."""
        raise NotImplementedError

    def do_curve(self, by: int | str) -> None:
        """The chart so many further on, or back."""
        grid = None if self.snapshot is None else curves.layout(
            self.snapshot, self.charts, self.width, self.height
        )  # fmt: skip
        if grid is None or not grid.names:
            return
        steps = {"page": grid.many, "-page": -grid.many, "down": grid.across, "up": -grid.across}
        step = steps[by] if isinstance(by, str) else by
        self.charts = replace(self.charts, picked=min(max(0, grid.picked + step), len(grid.names) - 1))

    def do_whole(self, _: int | str) -> None:
        """The chart under the cursor on the whole page, or all again."""
        self.charts = replace(self.charts, whole=not self.charts.whole)

    def do_log(self, _: int | str) -> None:
        """Values on a logarithmic scale, or no longer."""
        self.charts = replace(self.charts, log=not self.charts.log)

    def do_window(self, way: int | str) -> None:
        """Less of the run, or all of it, or an earlier or later part."""
        first, last = self.charts.window
        wide = last - first
        if way == "all":
            self.charts = replace(self.charts, window=(0.0, 1.0))
            return
        if way == "in":
            middle = self.charts.cursor
            wide = max(LEAST_WINDOW, wide / (10 if not self.charts.zoomed else 2))
            first = last - wide if middle is None else middle - wide / 2
        else:
            first += int(way) * wide / 2
        first = min(max(0.0, first), 1.0 - wide)
        self.charts = replace(self.charts, window=(first, first + wide))

    def do_read(self, by: int | str) -> None:
        """The line at which values are read, so many columns further; the first time at the right end."""
        first, last = self.charts.window
        if by == "off":
            self.charts = replace(self.charts, cursor=None)
            return
        here = self.charts.cursor
        at = last if here is None else here + int(by) * (last - first) / 100
        self.charts = replace(self.charts, cursor=min(max(first, at), last))

    def do_overlay(self, _: int | str) -> None:
        """The same number of other ranks over each curve, then of the marked runs, then of nothing."""
        following = OVERLAYS[(OVERLAYS.index(self.charts.overlay) + 1) % len(OVERLAYS)]
        self.charts = replace(self.charts, overlay=following)
        self.notice = f"over each curve: {following}"
        if following == OVERLAYS[2] and not self.charts.marked:
            self.notice = "no run is marked; R lists the runs, m marks one"

    def do_mark_run(self, _: int | str) -> None:
        """Mark the run under the cursor, or no longer: its curves may lie over those of the shown one."""
        listed = self.runs[self.picked] if self.runs else None
        if listed is None or listed.run is None:
            return
        run_id, marked = listed.run.run_id, self.charts.marked
        marked = tuple(one for one in marked if one != run_id) if run_id in marked else (*marked, run_id)
        self.charts = replace(self.charts, marked=marked[-5:], overlay=OVERLAYS[2] if marked else OVERLAYS[0])
        known = ", ".join(self.charts.marked) or "no run"
        self.notice = f"marked: {known}; c shows their curves over those of the shown run"
