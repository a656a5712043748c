"""Whatever a session shows: help, a page, the overview, or that it waits. The one place that chooses.

Must not know Textual or time.
"""

from collections.abc import Callable
from dataclasses import replace

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.keys import Mode
from overwatch.tui.panels import drawer, small, welcome
from overwatch.tui.panels import help as help_panel
from overwatch.tui.screens import listing, overview
from overwatch.tui.screens.overview import Frame
from overwatch.tui.session import Session


def draw(
    session: Session,
    shown: Snapshot | None,
    context: Callable[[], Context],
    waiting: Callable[[], welcome.Waiting],
) -> Frame:
    """The frame of this moment; `shown` is the snapshot with what this terminal adds.

    Sets how far the session can scroll and where its cursor can go; `context` is asked anew after that.
    """
    ctx = context()
    if session.mode is Mode.HELP:
        session.ui.scroll = min(session.ui.scroll, help_panel.most_scroll(shown, ctx))
        return Frame(lines=help_panel.render(shown, context()))
    if session.ui.page is not None and (shown is not None or not small.is_bare(ctx)):
        session.ui.picked = session.picked
        page = listing.render(session.ui.page, shown, ctx)
        return Frame(lines=page.lines, targets=page.targets)
    if shown is None:
        return Frame(lines=welcome.render(waiting(), ctx))
    frame = overview.render(shown, ctx)
    session.shown, wanted = shown, session.ui.scroll
    session.ui.scroll = min(wanted, frame.most_scroll)
    if session.board.drawn(frame.walk) or session.ui.scroll != wanted:
        frame = overview.render(shown, context())
    return frame


def copied(shown: Snapshot, ctx: Context) -> str:
    """What is open as plain text, else the row under the cursor."""
    if ctx.ui.opened:
        return drawer.written(shown, ctx)
    frame = overview.render(shown, ctx)
    if isinstance(frame.cursor, int):
        row = replace(ctx, ui=replace(ctx.ui, env_id=frame.cursor))
        return drawer.written(shown, row)
    return shown.verdict.text
