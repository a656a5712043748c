"""Pages that list something, under the run's own head. Exactly as many lines as the terminal has."""

from typing import assert_never

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.paging import Page
from overwatch.tui.panels import choices, findings, header, keyline, policy, runs, small, verdict
from overwatch.tui.text import Line, blank


def render(page: Page, snapshot: Snapshot | None, ctx: Context) -> list[Line]:
    """One frame; without a snapshot the list of runs alone."""
    if not small.fits(ctx):
        return [] if snapshot is None else small.render(snapshot, ctx)
    head: list[Line] = []
    if snapshot is not None:
        head = [header.identity(snapshot.run, ctx), *verdict.render(snapshot, ctx)]
    rows = ctx.height - len(head) - 1
    match page:
        case Page.RUNS:
            watched = None if snapshot is None else snapshot.run.run_id
            body = runs.render(ctx.ui.runs, watched, ctx, rows)
        case Page.FINDINGS:
            body = [] if snapshot is None else findings.render(snapshot, ctx, rows)
        case Page.POLICY:
            body = [] if snapshot is None else policy.render(snapshot, ctx.ui.history, ctx, rows)
        case _:
            assert_never(page)
    body = [*body, *[blank(ctx.width)] * (rows - len(body))]
    over = choices.render(ctx)
    if over:
        body[-len(over) :] = over
    return [*head, *body, keyline.render(snapshot, ctx)]
