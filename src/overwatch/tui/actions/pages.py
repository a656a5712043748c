"""What keys do to pages, charts, help and a recording: open them, move in them, choose; and the ways out.

What is chosen becomes a request to the application. Without a recording what is about one does nothing. Must
not know drawing or the network.
"""

from overwatch.feeds.live import Listed
from overwatch.tui.actions import board
from overwatch.tui.charts import LEAST_WINDOW, OVERLAYS
from overwatch.tui.context import Page, SlotOf
from overwatch.tui.keys import Arg, Mode
from overwatch.tui.panels import curves
from overwatch.tui.panels.help import TOPICS
from overwatch.tui.playback import named, next_mark, next_speed, when
from overwatch.tui.session import Session


def toggle(session: Session, name: str) -> None:
    """Open a page, or close it."""
    ui, wanted = session.ui, Page(name)
    if wanted is Page.COMPARE and ui.beside is None:
        ui.notice = "nothing to compare with; start as overwatch tui --compare THIS OTHER"
        return
    ui.page = None if ui.page is wanted else wanted
    here = (i for i, one in enumerate(ui.runs) if one.run and _is_watched(session, one))
    ui.picked = next(here, 0) if ui.page is Page.RUNS else 0


def pick(session: Session, by: int) -> None:
    """The cursor of the page."""
    session.ui.picked = session.picked + by
    session.ui.picked = session.picked


def click_line(session: Session, place: int) -> None:
    """The page's cursor onto a line; what is under it is chosen."""
    if place == session.picked:
        choose(session)
    else:
        session.ui.picked = place


def choose(session: Session) -> None:
    """The run under the cursor from now on, or what the finding under it is about."""
    ui = session.ui
    if ui.page is Page.RUNS and ui.runs:
        _go(session, ui.runs[session.picked])
    elif ui.page is Page.FINDINGS and (finding := session.finding) is not None:
        ui.page = None
        board.open_finding(session, finding)


def _go(session: Session, listed: Listed) -> None:
    if listed.run is None:
        session.ui.notice = f"{listed.collector} does not answer: {listed.reason}"
        return
    session.ui.page, session.requests.going = None, listed


def _is_watched(session: Session, listed: Listed) -> bool:
    shown = session.snapshot
    return shown is not None and listed.run is not None and listed.run.run_id == shown.run.run_id


def watch(session: Session, run_id: str) -> bool:
    """Go to a run by its id; whether there is one."""
    found = next((one for one in session.ui.runs if one.run and one.run.run_id == run_id), None)
    if found is not None:
        _go(session, found)
    return found is not None


def next_run(session: Session, by: int) -> None:
    """The run after the watched one in the list, round at its end."""
    known = [one for one in session.ui.runs if one.run]
    if len(known) < 2:
        session.ui.notice = "there is no other run"
        return
    here = next((i for i, one in enumerate(known) if _is_watched(session, one)), -1)
    _go(session, known[(here + by) % len(known)])


def acknowledge(session: Session) -> None:
    """Acknowledge the finding that the keys are about; where there is none, list them to choose from."""
    ui, finding, snapshot = session.ui, session.finding, session.snapshot
    if session.transport is not None:
        ui.notice = "this is a recording; only a live finding can be acknowledged"
    elif finding is None and ui.page is None and snapshot is not None and snapshot.findings:
        toggle(session, Page.FINDINGS.value)
    elif finding is None:
        ui.notice = "there is nothing to acknowledge"
    elif finding.acknowledged:
        ui.notice = f"{finding.code} is acknowledged already"
    else:
        session.requests.acknowledging = finding.id
        ui.notice = f"{finding.code}: acknowledging"


def home(session: Session) -> None:
    """The overview, with the cursor on the worst env."""
    ui = session.ui
    ui.close()
    session.board.cursor, session.board.row = None, 0
    ui.helping = ui.feed_has_keys = False
    ui.page = None


def show_help(session: Session) -> None:
    """Help, or back from it."""
    session.ui.helping = not session.ui.helping
    session.ui.scroll = session.ui.topic = 0


def topic(session: Session, by: int) -> None:
    """The next page of help, or the one before; round at the ends."""
    session.ui.topic, session.ui.scroll = (session.ui.topic + by) % len(TOPICS), 0


def back(session: Session) -> None:
    """Out of what was opened last."""
    ui = session.ui
    if cancel_seek(session):
        ui.notice = "seek cancelled"
    elif ui.helping:
        ui.helping, ui.scroll = False, 0
    elif ui.page is not None:
        ui.page = None
    elif session.mode is Mode.FEED and (ui.search or ui.toggles):
        ui.toggles, ui.search, ui.line = frozenset(), "", None
    elif session.mode is Mode.FEED:
        ui.feed_has_keys, ui.line = False, None
    elif isinstance(ui.inspected, SlotOf):
        ui.inspected = None
    elif ui.opened:
        ui.close()
    elif ui.heat_of is not None:
        ui.heat_of = None
    elif session.board.filter:
        session.board.filter_by("")


def suspend(session: Session) -> None:
    """To the shell, until the user comes back."""
    session.requests.suspending = True


def leave(session: Session) -> None:
    """Quit."""
    session.requests.leaving = True


def match(session: Session, pattern: str) -> None:
    """Open the page with the numbers that pass; all without a pattern."""
    session.ui.page = Page.CURVES
    charts = session.ui.charts
    charts.pattern, charts.picked, charts.whole = pattern, 0, False


def pick_chart(session: Session, arg: Arg) -> None:
    """The chart so many further on, or a row or a page of them."""
    charts = session.ui.charts
    grid = None if session.snapshot is None else curves.layout(
        session.snapshot, charts, session.width, session.height
    )  # fmt: skip
    if grid is None or not grid.names:
        return
    steps = {"page": grid.many, "-page": -grid.many, "down": grid.across, "up": -grid.across}
    charts.picked = min(max(0, grid.picked + steps.get(arg.of, arg.by)), len(grid.names) - 1)


def chart_whole(session: Session) -> None:
    """The chart under the cursor on the whole page, or all again."""
    session.ui.charts.whole = not session.ui.charts.whole


def chart_log(session: Session) -> None:
    """Values on a logarithmic scale, or no longer."""
    session.ui.charts.log = not session.ui.charts.log


def chart_window(session: Session, way: Arg) -> None:
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


def chart_read(session: Session, arg: Arg) -> None:
    """The line at which values are read, so many columns further; the first time at the right end."""
    charts = session.ui.charts
    if arg.of == "off":
        charts.cursor = None
        return
    first, last = charts.window
    at = last if charts.cursor is None else charts.cursor + arg.by * (last - first) / 100
    charts.cursor = min(max(first, at), last)


def chart_overlay(session: Session) -> None:
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


def replay(session: Session) -> None:
    """Leave the live run for its recording, where one is known."""
    if not session.ui.recorded:
        session.ui.notice = "this machine has no recording of it; press r where its collector runs"
        return
    session.requests.replaying = session.requests.leaving = True


def play(session: Session) -> None:
    """Play or pause."""
    if session.transport is not None:
        session.transport.play(playing=not session.transport.playback.playing)


def step(session: Session, by: int) -> None:
    """Seconds on or back."""
    if session.transport is not None:
        session.transport.step(by)


def seek(session: Session, text: str) -> None:
    """Go to a time, an update, a finding or an event; raises `ValueError` for what is none."""
    transport = session.transport
    if transport is None:
        return
    wanted = named(text)
    if wanted is None:
        transport.seek(when(text, transport.playback))
        return
    kind, what = wanted
    if kind == "update" and not what.isdecimal():
        raise ValueError(f"an update is a number, not {what!r}; e.g. seek update 312")
    transport.search(kind, what)


def cancel_seek(session: Session) -> bool:
    """Give up the step or seek that is under way; whether there was one."""
    if session.transport is None or not session.transport.playback.busy:
        return False
    session.transport.cancel()
    return True


def set_speed(session: Session, text: str) -> None:
    """Play at a speed as a person writes it, `8` or `0.5x`; raises `ValueError` for what is none."""
    if session.transport is not None:
        try:
            speed = float(text.removesuffix("x"))
        except ValueError:
            raise ValueError(f"{text!r} is no speed; write 0.1 to 1000") from None
        session.transport.set_speed(speed)


def faster(session: Session, way: int) -> None:
    """The next speed."""
    if session.transport is not None:
        session.transport.set_speed(next_speed(session.transport.playback.speed, way))


def mark(session: Session, way: int) -> None:
    """To the alarm before or after this moment."""
    if session.transport is None:
        return
    time = next_mark(session.transport.playback, way)
    surveyed = session.transport.playback.surveyed
    if time is None and way > 0 and not surveyed:
        session.transport.search("alarm", "")
    elif time is None:
        session.ui.notice = "no alarm there" if surveyed else "no alarm found there so far"
    else:
        session.transport.seek(time)
