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

    Tells the session how far it can scroll and where its cursor can go; `context` is asked anew after that.
    """
    ctx = context()
    if session.mode is Mode.HELP:
        session.clamp(help_panel.most_scroll(shown, ctx))
        return Frame(lines=help_panel.render(shown, context()))
    if session.page is not None and (shown is not None or not small.is_bare(ctx)):
        page = listing.render(session.page, shown, ctx)
        return Frame(lines=page.lines, targets=page.targets)
    if shown is None:
        return Frame(lines=welcome.render(waiting(), ctx))
    frame = overview.render(shown, ctx)
    session.clamp(frame.most_scroll)
    if session.drawn(frame.walk, shown) or session.ui.scroll != ctx.ui.scroll:
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
