"""What keys do to the feed: its cursor, its toggles, its search, and from a line to its finding and back.

Must not know the board or drawing.
"""

from overwatch.tui import feed_lines
from overwatch.tui.actions import board
from overwatch.tui.session import Session


def search(session: Session, text: str) -> None:
    """Show only lines with all of these words; all without."""
    session.ui.search, session.ui.line = text, None


def line(session: Session, by: int) -> None:
    """The feed's cursor so many lines back; before the newest it follows again."""
    ui, count = session.ui, len(session.feed)
    at = (-1 if ui.line is None else ui.line) + by
    ui.line = None if at < 0 or not count else min(at, count - 1)


def click_line(session: Session, back: int) -> None:
    """The keys to the feed, its cursor onto a line; the line under it opens."""
    if session.ui.feed_has_keys and session.ui.line == back:
        open_line(session)
    else:
        session.ui.feed_has_keys, session.ui.line = True, back


def open_line(session: Session) -> None:
    """The env of the feed's line into the drawer."""
    shown = session.feed_line
    if shown is None:
        return
    if shown.env_id is None:
        session.ui.notice = "this line is about no single environment"
    else:
        board.open_env(session, shown.env_id)
        session.ui.feed_has_keys = False


def toggle(session: Session, kind: str) -> None:
    """Only that kind of lines, or no longer."""
    session.ui.toggles ^= {kind}
    session.ui.line = None


def level(session: Session) -> None:
    """Every line, or only facts and warnings again."""
    session.ui.facts, session.ui.line = not session.ui.facts, None


def pause(session: Session) -> None:
    """Stop following at the newest line, or follow again."""
    session.ui.line = None if session.ui.line is not None else 0 if session.feed else None


def rewind(session: Session) -> None:
    """The recording to the moment of the line under the cursor."""
    shown = session.feed_line
    if session.transport is not None and shown is not None:
        session.transport.seek(shown.time)
        session.ui.line = None


def moment(session: Session) -> None:
    """The feed where the finding began that the keys are about; a recording goes there too."""
    ui, finding = session.ui, session.finding
    if finding is None:
        ui.notice = "there is no finding about what is under the cursor; A lists them all"
        return
    ui.page = None
    ui.close()
    ui.toggles, ui.search, ui.feed_has_keys, ui.facts = frozenset(), "", True, False
    if session.transport is not None:
        session.transport.seek(finding.since)
        return
    ui.line = feed_lines.line_of(finding, session.feed)
    if ui.line is None:
        ui.notice = "the feed here does not go back to when this began; r opens the recording"


def cause(session: Session) -> None:
    """The finding that the feed's line belongs to."""
    shown = session.feed_line
    if session.snapshot is None or shown is None:
        return
    finding = feed_lines.finding_of(shown, session.snapshot.findings)
    if finding is None:
        session.ui.notice = "this line belongs to no finding"
        return
    session.ui.clear_drawer()
    session.ui.alarm, session.ui.feed_has_keys = finding, False
