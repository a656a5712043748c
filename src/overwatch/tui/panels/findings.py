"""The list of all findings of a run: open, acknowledged and just cleared ones, in the snapshot's order.

Below it what the one under the cursor says, with its runbook: what it means, how to confirm it, what to do.
"""

from overwatch.catalog.durations import duration
from overwatch.catalog.runbooks import runbook
from overwatch.snapshot import Finding, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import severity
from overwatch.tui.panels import picking
from overwatch.tui.panels.alarms import subject
from overwatch.tui.text import Line, Role, Span, clean, cut, cut_middle, fit, left, right, rule, wrapped

_BEFORE = 33
"""Cells before the message."""


def render(snapshot: Snapshot, ctx: Context, rows: int) -> picking.Page:
    """Title, a line a finding, and below what the one under the cursor says; exactly what fits `rows`."""
    found = snapshot.findings
    open_ones = sum(one.cleared_at is None for one in found)
    acked = sum(one.acknowledged for one in found)
    note = [Span(f"{open_ones} open, {acked} acknowledged · a acknowledges", Role.MUTED)]
    lines = [rule("FINDINGS", note, ctx.width)]
    if not found:
        lines.append(fit([Span("  nothing is wrong", Role.MUTED)], ctx.width))
        return picking.Page(lines=lines[:rows])
    about = _text(found[ctx.ui.picked], ctx)
    shown = picking.window(ctx.ui.picked, len(found), max(1, rows - 1 - len(about)))
    for place in shown:
        row = _row(snapshot, found[place], ctx)
        lines.append(picking.marked(row, ctx.width, here=place == ctx.ui.picked))
    return picking.Page(lines=[*lines, *about][:rows], targets=picking.targets(1, shown))


def _row(snapshot: Snapshot, finding: Finding, ctx: Context) -> list[Span]:
    ago = max(0.0, snapshot.time + ctx.waited_s - finding.since)
    state = "acked" if finding.acknowledged else "cleared" if finding.cleared_at is not None else ""
    return [
        Span(" "),
        severity(finding.severity),
        Span(f" {left(cut_middle(subject(finding.subject), 10), 10)} {right(duration(ago), 6)} "),
        Span(left(state, 8), Role.MUTED),
        Span(cut(clean(finding.message), ctx.width - _BEFORE - 1)),
    ]


def _text(finding: Finding, ctx: Context) -> list[Line]:
    """Code, next step and evidence of one finding."""
    parts = [("next", finding.hint)]
    parts += [("because", " · ".join(finding.factors))]
    parts += [("also", f"{finding.symptoms:,} symptoms counted under it")] if finding.symptoms else []
    known = runbook(finding.code)
    if known is not None:
        parts += [("means", known.means), ("confirm", known.confirm), ("do", known.act)]
    lines = [rule(clean(finding.code).upper(), [], ctx.width)]
    for label, text in parts:
        for place, row in enumerate(wrapped(clean(text), max(8, ctx.width - 12)) if text else []):
            lines.append(
                fit([Span(left(f" {label}" if place == 0 else "", 10), Role.MUTED), Span(row)], ctx.width)
            )
    return lines[: max(8, ctx.height // 2)]
