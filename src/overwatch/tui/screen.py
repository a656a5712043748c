"""What a session shows: help, a page, the overview, or that it waits; and which panel has how many rows.

The same lines are the live screen, `--format text` and the SVG: what a test compares is what is seen. A page
has exactly as many lines as the terminal. Must not know Textual or time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context, Frame, Page
from overwatch.tui.keys import Mode
from overwatch.tui.panels import alarms, board, curves, drawer, feed, header, lists, policy, small, system
from overwatch.tui.panels import help as help_panel
from overwatch.tui.session import Session
from overwatch.tui.text import Line, Span, blank

LEAST_BOARD = 4
_AT_ANY_SIZE: Final = (Page.CURVES, Page.CONFIG)
_LEAST: Final = 8
"""Lines below which those have no room either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Most rows of the panels that give their rest to the board."""

    lanes: int
    alarms: int
    feed: int
    services: int = 1


def shares(height: int) -> Shares:
    """The height table."""
    if height < 30:
        return Shares(lanes=2, alarms=2, feed=2)
    if height < 40:
        return Shares(lanes=3, alarms=3, feed=3, services=2)
    if height < 60:
        return Shares(lanes=4, alarms=4, feed=5 if height < 50 else 6, services=5)
    return Shares(lanes=8, alarms=6, feed=10, services=8)


def overview(snapshot: Snapshot, ctx: Context) -> Frame:
    """Exactly `ctx.height` lines of exactly `ctx.width` cells; choices lie over what is above the prompt."""
    frame, over = _frame(snapshot, ctx), help_panel.choices(ctx)
    if not over:
        return frame
    return replace(frame, lines=[*frame.lines[: -1 - len(over)], *over, frame.lines[-1]])


def _frame(snapshot: Snapshot, ctx: Context) -> Frame:
    if not small.fits(ctx):
        return Frame(lines=small.render(snapshot, ctx))
    if ctx.ui.opened and (ctx.compact or ctx.ui.full):
        return _with_full_drawer(snapshot, ctx)
    share = shares(ctx.height)
    top = [
        *header.render(snapshot, ctx),
        *header.verdict(snapshot, ctx),
        *policy.pulse(snapshot, ctx),
        *curves.parting(snapshot, ctx),
        *system.render(snapshot, ctx, share.lanes),
    ]
    rail = alarms.render(snapshot, ctx, share.alarms)
    if ctx.short:
        share = replace(share, feed=max(1, share.feed - rail.targets[1:].count(None)))
    rows = ctx.height - len(top) - len(rail.lines) - 1
    # The board and the feed with their titles, and a row of the fleet, come first.
    spare = rows - LEAST_BOARD - share.feed - 3
    beside = system.services(snapshot, ctx, max(0, min(share.services, spare)))
    top, rows = [*top, *beside], rows - len(beside)
    if ctx.ui.opened:
        drawn = _with_drawer(snapshot, ctx, rows)
    elif ctx.ui.heat_of is None and curves.fit_beside_board(snapshot, ctx):
        drawn = _with_charts(snapshot, ctx, rows, share)
    else:
        drawn = _board_and_feed(snapshot, ctx, rows, share)
    lines = [*top, *rail.lines, *drawn.lines, help_panel.key_line(snapshot, ctx)]
    return replace(drawn, lines=lines, targets=(*[None] * len(top), *rail.targets, *drawn.targets))


def _board_and_feed(snapshot: Snapshot, ctx: Context, rows: int, share: Shares) -> Frame:
    """`rows` lines: board, rollups, and the feed, which has half of them while it has the keys."""
    fleet = board.rollups(snapshot, ctx)
    of_what = snapshot.system.gpus if ctx.ui.heat_of == "gpu" else snapshot.envs
    if ctx.ui.heat_of is not None and of_what:
        drawn = board.heatmap(snapshot, ctx, rows - len(fleet))
        return replace(drawn, lines=[*drawn.lines, *fleet])
    if curves.replaces_board(snapshot):
        below = feed.render(snapshot, ctx, share.feed)
        lines = curves.in_place_of_board(snapshot, ctx, rows - len(below.lines))
        return Frame(lines=[*lines, *below.lines], targets=(*[None] * len(lines), *below.targets))
    requested = share.feed
    if ctx.mode is Mode.FEED:
        requested = max(requested, min((rows - len(fleet)) // 2, rows - len(fleet) - 2 - LEAST_BOARD))
    below = feed.render(snapshot, ctx, requested)
    drawn = board.render(snapshot, ctx, rows - len(fleet) - len(below.lines) - 2)
    return _over(drawn, fleet, below)


def _over(drawn: Frame, between: list[Line], below: Frame) -> Frame:
    """The board, some lines, and the feed below one another."""
    targets = (*drawn.targets, *[None] * len(between), *below.targets)
    return replace(drawn, lines=[*drawn.lines, *between, *below.lines], targets=targets)


def _beside(drawn: Frame, lines: list[Line], width: int) -> Frame:
    """What is `width` cells wide with other lines at its right."""
    both = [(*one, Span(" "), *other) for one, other in zip(drawn.lines, lines, strict=True)]
    return replace(drawn, lines=both, edge=width)


def _with_charts(snapshot: Snapshot, ctx: Context, rows: int, share: Shares) -> Frame:
    """Board and feed as wide as they need to be, and at their right the past of what matters most."""
    wide = curves.board_width(snapshot, ctx)
    charts = curves.beside_board(snapshot, replace(ctx, width=ctx.width - wide - 1), rows)
    return _beside(_board_and_feed(snapshot, replace(ctx, width=wide), rows, share), charts, wide)


def _with_drawer(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """`rows` lines: the board's title, then board and feed beside the box."""
    box = drawer.box(snapshot, ctx, rows - 1)
    beside = replace(ctx, width=ctx.width - drawer.width(ctx) - 1, beside=True)
    fleet = board.rollups(snapshot, beside)
    title_and_lines = max(4, min(12, (rows - len(fleet)) // 3))
    below = feed.render(snapshot, beside, title_and_lines - 1)
    drawn = board.render(snapshot, beside, rows - 1 - len(fleet) - len(below.lines) - 1)
    both = _beside(_over(drawn, fleet, below), box.lines, beside.width)
    lines, targets = [board.title(snapshot, ctx), *both.lines], (None, *both.targets)
    return replace(both, lines=lines, targets=targets, most_scroll=box.most_scroll)


def _with_full_drawer(snapshot: Snapshot, ctx: Context) -> Frame:
    """The drawer under verdict and pulse; the cursor's walk stays that of the board behind it."""
    head = [header.identity(snapshot.run, ctx)] if ctx.compact else header.render(snapshot, ctx)
    above = [*head, *header.verdict(snapshot, ctx), *policy.pulse(snapshot, ctx)]
    rows = ctx.height - len(above) - 1
    drawn = drawer.full(snapshot, ctx, rows)
    behind = board.render(snapshot, ctx, rows)
    lines = [*above, *drawn.lines, help_panel.key_line(snapshot, ctx)]
    return replace(drawn, lines=lines, walk=behind.walk, cursor=behind.cursor)


def page(page: Page, snapshot: Snapshot | None, ctx: Context) -> Frame:
    """One frame; without a snapshot the list of runs alone."""
    if small.is_bare(ctx) and (page not in _AT_ANY_SIZE or ctx.height <= _LEAST):
        return Frame(lines=[] if snapshot is None else small.render(snapshot, ctx))
    head: list[Line] = []
    if snapshot is not None:
        head = [header.identity(snapshot.run, ctx) if small.fits(ctx) else small.identity(snapshot.run, ctx)]
        if page is Page.COMPARE and ctx.playback is not None and small.fits(ctx):
            head.append(header.transport(ctx.playback, ctx))
        head += header.verdict(snapshot, ctx)
    rows = ctx.height - len(head) - 1
    drawn = _listed(page, snapshot, ctx, rows)
    body = [*drawn.lines, *[blank(ctx.width)] * (rows - len(drawn.lines))]
    over = help_panel.choices(ctx)
    if over:
        body[-len(over) :] = over
    lines = [*head, *body, help_panel.key_line(snapshot, ctx)]
    return Frame(lines=lines, targets=(*[None] * len(head), *drawn.targets))


def _listed(page: Page, snapshot: Snapshot | None, ctx: Context, rows: int) -> Frame:
    if page is Page.RUNS:
        return lists.runs(ctx.ui.runs, None if snapshot is None else snapshot.run.run_id, ctx, rows)
    if snapshot is None:
        return Frame(lines=[])
    match page:
        case Page.FINDINGS:
            return lists.findings(snapshot, ctx, rows)
        case Page.POLICY:
            return policy.page(snapshot, ctx.ui.history, ctx, rows)
        case Page.COMPARE:
            both = ctx.ui.beside
            return Frame(lines=[]) if both is None else lists.comparison(both, snapshot, ctx, rows)
        case Page.CURVES:
            return Frame(lines=curves.render(snapshot, ctx, rows))
        case Page.CONFIG:
            return Frame(lines=lists.configuration(snapshot, ctx, rows))
        case Page.LOGS:
            return lists.logs(ctx, rows)
        case _:
            assert_never(page)


def draw(
    session: Session,
    shown: Snapshot | None,
    context: Callable[[], Context],
    waiting: Callable[[], small.Waiting],
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
        return page(session.ui.page, shown, ctx)
    if shown is None:
        return Frame(lines=small.welcome(waiting(), ctx))
    frame = overview(shown, ctx)
    session.shown, wanted = shown, session.ui.scroll
    session.ui.scroll = min(wanted, frame.most_scroll)
    if session.board.drawn(frame.walk) or session.ui.scroll != wanted:
        frame = overview(shown, context())
    return frame


def copied(shown: Snapshot, ctx: Context) -> str:
    """What is open as plain text, else the row under the cursor."""
    if ctx.ui.opened:
        return drawer.written(shown, ctx)
    cursor = overview(shown, ctx).cursor
    if isinstance(cursor, int):
        return drawer.written(shown, replace(ctx, ui=replace(ctx.ui, env_id=cursor)))
    return shown.verdict.text
