"""What keys do to charts: which one, how much of the run, what lies over it, where values are read.

Must not know drawing or the network.
"""

from overwatch.tui.charts import LEAST_WINDOW, OVERLAYS
from overwatch.tui.context import Page
from overwatch.tui.keys import Arg
from overwatch.tui.panels import curves
from overwatch.tui.session import Session


def match(session: Session, pattern: str) -> None:
    """Open the page with the numbers that pass; all without a pattern."""
    session.ui.page = Page.CURVES
    charts = session.ui.charts
    charts.pattern, charts.picked, charts.whole = pattern, 0, False


def pick(session: Session, arg: Arg) -> None:
    """The chart so many further on, or a row or a page of them."""
    charts = session.ui.charts
    grid = None if session.snapshot is None else curves.layout(
        session.snapshot, charts, session.width, session.height
    )  # fmt: skip
    if grid is None or not grid.names:
        return
    steps = {"page": grid.many, "-page": -grid.many, "down": grid.across, "up": -grid.across}
    charts.picked = min(max(0, grid.picked + steps.get(arg.of, arg.by)), len(grid.names) - 1)


def whole(session: Session) -> None:
    """The chart under the cursor on the whole page, or all again."""
    session.ui.charts.whole = not session.ui.charts.whole


def log(session: Session) -> None:
    """Values on a logarithmic scale, or no longer."""
    session.ui.charts.log = not session.ui.charts.log


def window(session: Session, way: Arg) -> None:
    """Less of the run, or all of it, or an earlier or later part."""
    charts = session.ui.charts
    first, last = charts.window
    wide = last - first
    if way.of == "all":
        charts.window = (0.0, 1.0)
        return
    if way.of == "in":
        middle = charts.cursor
        wide = max(LEAST_WINDOW, wide / (10 if not charts.zoomed else 2))
        first = last - wide if middle is None else middle - wide / 2
    else:
        first += way.by * wide / 2
    first = min(max(0.0, first), 1.0 - wide)
    charts.window = (first, first + wide)


def read(session: Session, arg: Arg) -> None:
    """The line at which values are read, so many columns further; the first time at the right end."""
    charts = session.ui.charts
    if arg.of == "off":
        charts.cursor = None
        return
    first, last = charts.window
    at = last if charts.cursor is None else charts.cursor + arg.by * (last - first) / 100
    charts.cursor = min(max(first, at), last)


def overlay(session: Session) -> None:
    """The same number of other ranks over each curve, then of the marked runs, then of nothing."""
    charts = session.ui.charts
    charts.overlay = OVERLAYS[(OVERLAYS.index(charts.overlay) + 1) % len(OVERLAYS)]
    session.ui.notice = f"over each curve: {charts.overlay}"
    if charts.overlay == OVERLAYS[2] and not charts.marked:
        session.ui.notice = "no run is marked; R lists the runs, m marks one"


def mark_run(session: Session) -> None:
    """Mark the run under the cursor, or no longer: its curves may lie over those of the shown one."""
    ui, charts = session.ui, session.ui.charts
    listed = ui.runs[session.picked] if ui.runs else None
    if listed is None or listed.run is None:
        return
    run_id, marked = listed.run.run_id, charts.marked
    marked = tuple(one for one in marked if one != run_id) if run_id in marked else (*marked, run_id)
    charts.marked, charts.overlay = marked[-5:], OVERLAYS[2] if marked else OVERLAYS[0]
    known = ", ".join(charts.marked) or "no run"
    ui.notice = f"marked: {known}; c shows their curves over those of the shown run"
