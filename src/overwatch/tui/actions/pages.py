"""What keys do to pages and help: open them, move in them, choose what is under the cursor; and the ways out.

What is chosen becomes a request to the application. Must not know drawing or the network.
"""

from overwatch.feeds.live import Listed
from overwatch.tui.actions import board, recording
from overwatch.tui.context import Page, SlotOf
from overwatch.tui.keys import Mode
from overwatch.tui.panels.help import TOPICS
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
    if recording.cancel_seek(session):
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
