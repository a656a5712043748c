"""The first screen: every panel, and who gets how many rows.

The same lines are the live screen, `--format text` and the SVG: what a test compares is what is seen.
"""

from dataclasses import dataclass

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.panels import alarms, board, feed, header, keyline, pulse, rollups, small, system, verdict
from overwatch.tui.text import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is on the screen, and where the cursor can go."""

    lines: list[Line]
    walk: tuple[int, ...] = ()
    """Env ids in the order in which the cursor visits them."""
    cursor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Most rows of the panels that give their rest to the board."""

    lanes: int
    alarms: int
    feed: int


def shares(height: int) -> Shares:
    """The height table."""
    if height < 30:
        return Shares(lanes=2, alarms=2, feed=2)
    if height < 40:
        return Shares(lanes=3, alarms=3, feed=3)
    if height < 60:
        return Shares(lanes=4, alarms=4, feed=5 if height < 50 else 6)
    return Shares(lanes=8, alarms=6, feed=10)


def render(snapshot: Snapshot, ctx: Context) -> Frame:
    """Exactly `ctx.height` lines of exactly `ctx.width` cells."""
    if not small.fits(ctx):
        return Frame(lines=small.render(snapshot, ctx))
    share = shares(ctx.height)
    above = [
        *header.render(snapshot, ctx),
        *verdict.render(snapshot, ctx),
        *pulse.render(snapshot, ctx),
        *system.render(snapshot, ctx, share.lanes),
        *alarms.render(snapshot, ctx, share.alarms),
    ]
    below = [*rollups.render(snapshot, ctx), *feed.render(snapshot, ctx, share.feed), keyline.render(ctx)]
    drawn = board.render(snapshot, ctx, ctx.height - len(above) - len(below) - 2)
    return Frame(lines=[*above, *drawn.lines, *below], walk=drawn.walk, cursor=drawn.cursor)
