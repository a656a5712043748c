"""The first screen: every panel, and who gets how many rows; with the drawer open, what makes way for it.

The same lines are the live screen, `--format text` and the SVG: what a test compares is what is seen.
"""

from dataclasses import dataclass, replace

from overwatch.snapshot import Snapshot
from overwatch.tui.context import AlarmAt, Context, Place, Target
from overwatch.tui.keys import Mode
from overwatch.tui.panels import (
    alarms,
    board,
    choices,
    drawer,
    feed,
    header,
    heatmap,
    keyline,
    learning,
    parting,
    pulse,
    rollups,
    services,
    small,
    system,
    verdict,
    wide,
)
from overwatch.tui.text import Line, Span

LEAST_BOARD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is on the screen, and where the cursor can go."""

    lines: list[Line]
    walk: tuple[Place, ...] = ()
    """Places in the order in which the cursor visits them."""
    cursor: Place | None = None
    most_scroll: int = 0
    """How far the drawer's text can be scrolled."""
    targets: tuple[Target | None, ...] = ()
    """What a click on each line means, from the first on."""
    edge: int | None = None
    """The cell from which on a click is in the drawer and means none of these; absent without one beside."""

    def target(self, x: int, y: int) -> Target | None:
        """What is under a cell."""
        if not 0 <= y < len(self.targets) or self.beyond(x):
            return None
        return self.targets[y]

    def beyond(self, x: int) -> bool:
        """Whether a cell is in the drawer that stands beside the board."""
        return self.edge is not None and x >= self.edge


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


def render(snapshot: Snapshot, ctx: Context) -> Frame:
    """Exactly `ctx.height` lines of exactly `ctx.width` cells; choices lie over what is above the prompt."""
    frame, over = _frame(snapshot, ctx), choices.render(ctx)
    if not over:
        return frame
    return replace(frame, lines=[*frame.lines[: -1 - len(over)], *over, frame.lines[-1]])


def _frame(snapshot: Snapshot, ctx: Context) -> Frame:
    if not small.fits(ctx):
        return Frame(lines=small.render(snapshot, ctx))
    if ctx.ui.opened and (ctx.compact or ctx.ui.full):
        return _full(snapshot, ctx)
    share = shares(ctx.height)
    top = [
        *header.render(snapshot, ctx),
        *verdict.render(snapshot, ctx),
        *pulse.render(snapshot, ctx),
        *parting.strip(snapshot, ctx),
        *system.render(snapshot, ctx, share.lanes),
    ]
    rail = alarms.render(snapshot, ctx, share.alarms)
    named = len(rail.lines) - rail.num_rows - 1
    if ctx.short:
        share = replace(share, feed=max(1, share.feed - named))
    rows = ctx.height - len(top) - len(rail.lines) - 1
    # The board and the feed with their titles, and a row of the fleet, come first.
    spare = rows - LEAST_BOARD - share.feed - 3
    beside = services.render(snapshot, ctx, max(0, min(share.services, spare)))
    top, rows = [*top, *beside], rows - len(beside)
    if ctx.ui.opened:
        drawn = _with_drawer(snapshot, ctx, rows)
    elif ctx.ui.heat_of is None and wide.fits(snapshot, ctx):
        drawn = _with_charts(snapshot, ctx, rows, share)
    else:
        drawn = _board_and_feed(snapshot, ctx, rows, share)
    lines = [*top, *rail.lines, *drawn.lines, keyline.render(snapshot, ctx)]
    numbers = (AlarmAt(number) for number in range(1, rail.num_rows + 1))
    above = (*[None] * (len(top) + 1), *numbers, *[None] * named)
    return replace(drawn, lines=lines, targets=(*above, *drawn.targets))


def _board_and_feed(snapshot: Snapshot, ctx: Context, rows: int, share: Shares) -> Frame:
    """`rows` lines: board, rollups, and the feed, which has half of them while it has the keys."""
    fleet = rollups.render(snapshot, ctx)
    lanes = ctx.ui.heat_of == "gpu"
    if ctx.ui.heat_of is not None and (snapshot.system.gpus if lanes else snapshot.envs):
        drawn = (heatmap.lanes if lanes else heatmap.render)(snapshot, ctx.ui.heat, ctx, rows - len(fleet))
        return Frame(
            lines=[*drawn.lines, *fleet], walk=drawn.walk, cursor=drawn.cursor, targets=drawn.targets
        )
    if learning.wanted(snapshot):
        said = feed.render(snapshot, ctx, share.feed)
        lines = learning.render(snapshot, ctx, rows - len(said.lines))
        targets = (*[None] * len(lines), *said.targets)
        return Frame(lines=[*lines, *said.lines], targets=targets)
    asked = share.feed
    if ctx.mode is Mode.FEED:
        asked = max(asked, min((rows - len(fleet)) // 2, rows - len(fleet) - 2 - LEAST_BOARD))
    said = feed.render(snapshot, ctx, asked)
    drawn = board.render(snapshot, ctx, rows - len(fleet) - len(said.lines) - 2)
    return Frame(
        lines=[*drawn.lines, *fleet, *said.lines], walk=drawn.walk, cursor=drawn.cursor,
        targets=(*drawn.targets, *[None] * len(fleet), *said.targets),
    )  # fmt: skip


def _with_charts(snapshot: Snapshot, ctx: Context, rows: int, share: Shares) -> Frame:
    """Board and feed as wide as they need to be, and at their right the past of what matters most."""
    left = replace(ctx, width=wide.board_width(snapshot, ctx))
    drawn = _board_and_feed(snapshot, left, rows, share)
    charts = wide.render(snapshot, replace(ctx, width=ctx.width - left.width - 1), rows)
    lines = [(*one, Span(" "), *other) for one, other in zip(drawn.lines, charts, strict=True)]
    return replace(drawn, lines=lines, edge=left.width)


def _with_drawer(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """`rows` lines: the board's title, then board and feed beside the box."""
    box = drawer.box(snapshot, ctx, rows - 1)
    beside = replace(ctx, width=ctx.width - drawer.width(ctx) - 1, beside=True)
    fleet = rollups.render(snapshot, beside)
    title_and_lines = max(4, min(12, (rows - len(fleet)) // 3))
    said = feed.render(snapshot, beside, title_and_lines - 1)
    drawn = board.render(snapshot, beside, rows - 1 - len(fleet) - len(said.lines) - 1)
    left = [*drawn.lines, *fleet, *said.lines]
    lines = [board.title(snapshot, ctx)]
    lines += [(*one, Span(" "), *other) for one, other in zip(left, box.lines, strict=True)]
    return Frame(
        lines=lines, walk=drawn.walk, cursor=drawn.cursor, most_scroll=box.most_scroll, edge=beside.width,
        targets=(None, *drawn.targets, *[None] * len(fleet), *said.targets),
    )  # fmt: skip


def _full(snapshot: Snapshot, ctx: Context) -> Frame:
    """The drawer under verdict and pulse; the cursor's walk stays that of the board behind it."""
    head = [header.identity(snapshot.run, ctx)] if ctx.compact else header.render(snapshot, ctx)
    above = [*head, *verdict.render(snapshot, ctx), *pulse.render(snapshot, ctx)]
    rows = ctx.height - len(above) - 1
    drawn = drawer.full(snapshot, ctx, rows)
    behind = board.render(snapshot, ctx, rows)
    return Frame(
        lines=[*above, *drawn.lines, keyline.render(snapshot, ctx)],
        walk=behind.walk,
        cursor=behind.cursor,
        most_scroll=drawn.most_scroll,
    )
