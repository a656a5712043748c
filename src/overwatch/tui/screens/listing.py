"""Pages that list something, under the run's own head. Exactly as many lines as the terminal has."""

from typing import Final, assert_never

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context, Page
from overwatch.tui.panels import (
    beside,
    choices,
    configured,
    curves,
    findings,
    header,
    keyline,
    logs,
    picking,
    policy,
    runs,
    small,
    transport,
    verdict,
)
from overwatch.tui.text import Line, blank

_AT_ANY_SIZE: Final = (Page.CURVES, Page.CONFIG)
_LEAST: Final = 8
"""Lines below which those have no room either."""


def render(page: Page, snapshot: Snapshot | None, ctx: Context) -> picking.Page:
    """One frame; without a snapshot the list of runs alone."""
    if small.is_bare(ctx) and (page not in _AT_ANY_SIZE or ctx.height <= _LEAST):
        return picking.Page(lines=[] if snapshot is None else small.render(snapshot, ctx))
    head: list[Line] = []
    if snapshot is not None and not small.fits(ctx):
        head = [small.identity(snapshot.run, ctx), *verdict.render(snapshot, ctx)]
    elif snapshot is not None:
        head = [header.identity(snapshot.run, ctx)]
        if page is Page.COMPARE and ctx.playback is not None:
            head.append(transport.render(ctx.playback, ctx))
        head += verdict.render(snapshot, ctx)
    rows = ctx.height - len(head) - 1
    drawn = _page(page, snapshot, ctx, rows)
    body = [*drawn.lines, *[blank(ctx.width)] * (rows - len(drawn.lines))]
    over = choices.render(ctx)
    if over:
        body[-len(over) :] = over
    lines = [*head, *body, keyline.render(snapshot, ctx)]
    return picking.Page(lines=lines, targets=(*[None] * len(head), *drawn.targets))


def _page(page: Page, snapshot: Snapshot | None, ctx: Context, rows: int) -> picking.Page:
    if page is Page.RUNS:
        return runs.render(ctx.ui.runs, None if snapshot is None else snapshot.run.run_id, ctx, rows)
    if snapshot is None:
        return picking.Page(lines=[])
    match page:
        case Page.FINDINGS:
            return findings.render(snapshot, ctx, rows)
        case Page.POLICY:
            return policy.render(snapshot, ctx.ui.history, ctx, rows)
        case Page.COMPARE:
            both = ctx.ui.beside
            return picking.Page(lines=[]) if both is None else beside.render(both, snapshot, ctx, rows)
        case Page.CURVES:
            return picking.Page(lines=curves.render(snapshot, ctx, rows))
        case Page.CONFIG:
            return picking.Page(lines=configured.render(snapshot, ctx, rows))
        case Page.LOGS:
            return logs.render(ctx, rows)
        case _:
            assert_never(page)
