"""Pages that list something: runs, findings, the log, the configuration, two runs beside one another.

A list shows the lines around the one under the cursor, and below it the whole of that one. Must not know
where lines come from.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from overwatch.analyse.effect import change
from overwatch.catalog.durations import duration
from overwatch.feeds.live import Listed
from overwatch.snapshot import FeedLine, Finding, RunLine, Snapshot
from overwatch.tui.comparison import Comparison, Row
from overwatch.tui.context import HALTED, Context, Frame, PickAt
from overwatch.tui.curve import dotted, scale
from overwatch.tui.grammar import ABSENT, age, clock, number, quoted, severity, sparkline
from overwatch.tui.panels.alarms import advice, subject
from overwatch.tui.text import (
    Line,
    Role,
    Span,
    blank,
    cells,
    clean,
    cut,
    cut_middle,
    fit,
    labelled,
    left,
    right,
    rule,
    wrapped,
)

_RUN_ID = 24
_BEFORE = 33
"""Cells before the message."""
_SUBSYSTEM: Final = 12
_LOG_DETAIL: Final = 6
"""Lines for the one under the cursor."""

_LABEL: Final = 18
_VALUE: Final = 9
_BARS: Final = 16
_ROLES: Final = {"worse": Role.CRIT, "better": Role.OK, "higher": Role.WARN, "lower": Role.WARN}

_NO_LOG: Final = (
    "no line of the trainer's own log has come",
    "overwatch.sdk.logs has a handler for logging and a processor for structlog;",
    "overwatch watch -- python train.py takes the console too",
)


def window(picked: int, count: int, room: int) -> range:
    """Which of `count` lines are shown in `room`: the picked one in the middle where that can be."""
    first = max(0, min(picked - room // 2, count - room))
    return range(first, min(count, first + room))


def targets_of(above: int, shown: range) -> tuple[PickAt | None, ...]:
    """What clicks mean under so many lines of head."""
    return (*[None] * above, *map(PickAt, shown))


def marked(line: Sequence[Span], width: int, *, here: bool) -> Line:
    """A line of the list, behind the mark of the cursor."""
    drawn = fit([Span(">" if here else " "), *line], width)
    return tuple(Span(span.text, Role.ACCENT) for span in drawn) if here else drawn


def runs(listed: tuple[Listed, ...], watched: str | None, ctx: Context, rows: int) -> Frame:
    """Title, head, and at most `rows - 2` runs; the one under the cursor is always among them."""
    count = sum(one.run is not None for one in listed)
    kinds = "" if ctx.compact else f"{'task':20} {'algo':8} "
    head = f"    {'run':{_RUN_ID}} {kinds}{'state':12} {'update':>8} {'env':>7}  verdict"
    lines = [
        rule("RUNS", [Span(f"{count} run{'' if count == 1 else 's'}", Role.MUTED)], ctx.width),
        fit([Span(head, Role.MUTED)], ctx.width),
    ]
    room = max(0, rows - len(lines))
    if not listed:
        lines.append(fit([Span("  asking the collector", Role.MUTED)], ctx.width))
        return Frame(lines=lines[:rows])
    many = len({one.collector for one in listed}) > 1
    shown = window(ctx.ui.picked, len(listed), room)
    places = targets_of(len(lines), shown)
    for place in shown:
        one = listed[place]
        collector = clean(one.collector)
        if one.run is None:
            start = Span(f"   {left(cut_middle(collector, _RUN_ID), _RUN_ID)} ")
            line = [start, Span(cut(clean(one.reason or "no answer"), 60), Role.CRIT)]
        else:
            line = _run(one.run, watched, ctx) + ([Span(f"  {collector}", Role.MUTED)] if many else [])
        lines.append(marked(line, ctx.width, here=place == ctx.ui.picked))
    return Frame(lines=lines, targets=places)


def _run(run: RunLine, watched: str | None, ctx: Context) -> list[Span]:
    here = "* " if run.run_id == watched else "  "
    spans = [Span(f" {here}{left(cut_middle(clean(run.run_id), _RUN_ID), _RUN_ID)} ", Role.TITLE)]
    if not ctx.compact:
        task, algo = clean(run.task or ABSENT), clean(run.algo or ABSENT)
        spans.append(Span(f"{left(cut_middle(task, 20), 20)} {left(algo, 8)} "))
    state = clean(run.outcome or run.state).upper().replace("_", " ")
    if run.data_age_s is not None and run.state not in HALTED:
        is_over = run.state == "ended"
        state += f" {duration(run.data_age_s, coarse=True) if is_over else age(run.data_age_s)}"
    spans.append(Span(left(state, 12) + " "))
    update = ABSENT if run.update is None else number(run.update, ",.0f", 8)
    envs = ABSENT if run.n_envs is None else number(run.n_envs, ",.0f", 7)
    spans.append(Span(f"{right(update, 8)} {right(envs, 7)}  "))
    archived = [Span("  archived", Role.MUTED)] if run.archived else []
    return [*spans, severity(run.severity), *archived, Span(f"  {clean(run.text)}")]


def findings(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Title, a line a finding, and below the whole of the one under the cursor; exactly what fits `rows`."""
    found = snapshot.findings
    open_ones = sum(one.cleared_at is None for one in found)
    acked = sum(one.acknowledged for one in found)
    note = [Span(f"{open_ones} open, {acked} acknowledged · a acknowledges", Role.MUTED)]
    lines = [rule("FINDINGS", note, ctx.width)]
    if not found:
        lines.append(fit([Span("  nothing is wrong", Role.MUTED)], ctx.width))
        return Frame(lines=lines[:rows])
    about = _about(found[ctx.ui.picked], ctx)
    shown = window(ctx.ui.picked, len(found), max(1, rows - 1 - len(about)))
    for place in shown:
        row = _finding(snapshot, found[place], ctx)
        lines.append(marked(row, ctx.width, here=place == ctx.ui.picked))
    return Frame(lines=[*lines, *about][:rows], targets=targets_of(1, shown))


def _finding(snapshot: Snapshot, finding: Finding, ctx: Context) -> list[Span]:
    ago = max(0.0, snapshot.time + ctx.waited_s - finding.since)
    state = "acked" if finding.acknowledged else "cleared" if finding.cleared_at is not None else ""
    return [
        Span(" "),
        severity(finding.severity),
        Span(f" {left(cut_middle(subject(finding.subject), 10), 10)} {right(duration(ago), 6)} "),
        Span(left(state, 8), Role.MUTED),
        Span(cut(clean(finding.message), ctx.width - _BEFORE - 1)),
    ]


def _about(finding: Finding, ctx: Context) -> list[Line]:
    """Code, next step and evidence of one finding."""
    rows = ((f" {label}", text) for label, text in advice(finding))
    lines = [rule(clean(finding.code).upper(), [], ctx.width), *labelled(rows, 10, ctx.width, 2)]
    return lines[: max(8, ctx.height // 2)]


def logs(ctx: Context, rows: int) -> Frame:
    """Exactly `rows` lines."""
    lines = ctx.ui.logs
    note = f"{len(lines):,} lines, newest first" if lines else "none"
    drawn = [rule("LOG", [Span(note, Role.MUTED)], ctx.width)]
    if not lines:
        drawn += [fit([Span(f"  {text}", Role.MUTED)], ctx.width) for text in _NO_LOG]
        return Frame(lines=[*drawn, *[blank(ctx.width)] * rows][:rows])
    shown = window(ctx.ui.picked, len(lines), max(1, rows - 2 - _LOG_DETAIL))
    drawn += [marked(_log(lines[place], ctx), ctx.width, here=place == ctx.ui.picked) for place in shown]
    drawn += [blank(ctx.width)] * (rows - _LOG_DETAIL - 1 - len(drawn))
    drawn += _log_whole(lines[min(ctx.ui.picked, len(lines) - 1)], ctx)
    drawn += [blank(ctx.width)] * (rows - len(drawn))
    return Frame(lines=drawn[:rows], targets=targets_of(1, shown))


def _log(line: FeedLine, ctx: Context) -> list[Span]:
    word = severity(line.severity)
    return [
        Span(f"{clock(line.time, ctx.zone, millis=not ctx.compact)} ", Role.MUTED),
        Span(left(word.text, 5), word.role),
        Span(f"{left(cut(clean(line.subsystem), _SUBSYSTEM), _SUBSYSTEM)} ", Role.MUTED),
        Span(clean(line.message)),
    ]


def _log_whole(line: FeedLine, ctx: Context) -> list[Line]:
    """All of a line, with its fields."""
    fields = "  ".join(f"{clean(key)}={quoted(value)}" for key, value in line.fields.items())
    texts = [
        *wrapped(clean(line.message), ctx.width - 2),
        *(wrapped(fields, ctx.width - 2) if fields else ()),
    ]
    head = rule(f"{severity(line.severity).text} {clean(line.subsystem)}", [], ctx.width)
    return [head, *(fit([Span(f" {text}")], ctx.width) for text in texts[:_LOG_DETAIL])]


def configuration(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines, scrolled by the page's cursor."""
    lines = _configuration(snapshot, ctx)
    at = max(0, min(ctx.ui.picked, len(lines) - rows + 1))
    shown = lines[at : at + rows - 1]
    more = len(lines) - at - len(shown)
    head = rule("CONFIGURATION", [Span(f"{more} more lines: j", Role.MUTED)] if more > 0 else [], ctx.width)
    return [head, *shown, *[blank(ctx.width)] * (rows - 1 - len(shown))][:rows]


def _configuration(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """All lines."""
    history = ctx.ui.charts.of(snapshot)
    about = None if history is None else history.about
    if about is None:
        return [fit([Span("  waiting for what the collector has of it", Role.MUTED)], ctx.width)]
    none = {"settings": "none was sent; overwatch.run(config={...}) sends them"}
    return [
        *_settings(about.revision or {"revision": "none was sent"}, ctx),
        *_settings(about.environment, ctx),
        rule("SETTINGS", [Span(f"{len(about.config)}", Role.MUTED)], ctx.width),
        *_settings(dict(sorted(about.config.items())) or none, ctx),
    ]


def _settings(rows: Mapping[str, str], ctx: Context) -> list[Line]:
    wide = min(32, max((cells(clean(name)) for name in rows), default=0) + 2)
    texts = ((" " + left(clean(name), wide), clean(value) or " ") for name, value in rows.items())
    return labelled(texts, wide + 1, ctx.width, 1)


def comparison(shown: Comparison, snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Exactly `rows` lines, of both runs at the update where the first one's replay stands."""
    update = float(snapshot.run.update or 0)
    at = [Span(f"both at update {update:,.0f}", Role.MUTED)]
    lines = [rule("COMPARE", at, ctx.width), fit([Span(f" {clean(shown.headline)}")], ctx.width)]
    lines += [_compared_verdict(shown, side, update, ctx) for side in (0, 1)]
    lines.append(fit([Span(_compared_head(ctx), Role.MUTED)], ctx.width))
    above = len(lines)
    tall = max(4, min(12, rows // 3))
    seen = window(ctx.ui.picked, len(shown.rows), max(1, rows - above - tall - 1))
    for place in seen:
        line = _compared(shown.rows[place], update, ctx)
        lines.append(marked(line, ctx.width, here=place == ctx.ui.picked))
    lines += [blank(ctx.width)] * (rows - tall - 1 - len(lines))
    if shown.rows:
        lines += _both_curves(shown.rows[min(ctx.ui.picked, len(shown.rows) - 1)], update, ctx, tall)
    return Frame(lines=lines[:rows], targets=targets_of(above, seen))


def _compared_verdict(shown: Comparison, side: int, update: float, ctx: Context) -> Line:
    """A run's name, and its verdict when it was at this update."""
    newest = shown.verdict_at(side, update)
    name = left(cut_middle(clean(shown.names[side]), _LABEL), _LABEL)
    start = [Span(f" {'AB'[side]} "), Span(f"{name} ", Role.TITLE)]
    if newest is None:
        return fit([*start, Span("nothing was received from it yet", Role.MUTED)], ctx.width)
    room = ctx.width - _LABEL - 10
    return fit([*start, severity(newest.severity), Span(f" {cut(clean(newest.text), room)}")], ctx.width)


def _compared_head(ctx: Context) -> str:
    bars = "" if ctx.compact else f" {'A':{_BARS}}  {'B':{_BARS}} "
    values = f"{'A':>{_VALUE}} {'B':>{_VALUE}} {'change':>8}"
    return f"  {'number':{_LABEL}} {values} {bars} {'at the end':11} parted"


def _compared(row: Row, update: float, ctx: Context) -> list[Span]:
    seen = [side.upto(update) for side in row.sides]
    now = [values[-1] if values and math.isfinite(values[-1]) else None for values in seen]
    words = [ABSENT if value is None else number(value, row.fmt, _VALUE) for value in now]
    spans = [
        Span(f" {left(cut_middle(clean(row.label), _LABEL), _LABEL)} "),
        Span(f"{right(words[0], _VALUE)} {right(words[1], _VALUE)} {right(change(*now), 8)} "),
    ]
    if not ctx.compact:
        ends = scale([*seen[0][-_BARS:], *seen[1][-_BARS:]])
        for values in seen:
            known = [value if math.isfinite(value) else None for value in values[-_BARS:]]
            spans += [Span(" "), *sparkline(known, _BARS, ends), Span(" ")]
    parted = "" if row.parted is None else f"{row.parted:,.0f}"
    spans += [
        Span(f" {left(clean(row.verdict), 11)}", _ROLES.get(row.verdict, Role.MUTED)),
        Span(f" {parted}"),
    ]
    return spans


def _both_curves(row: Row, update: float, ctx: Context, rows: int) -> list[Line]:
    """A title, and `rows` lines: A's curve at the left, B's at the right, on one scale."""
    seen = [side.upto(update) for side in row.sides]
    wide = max(4, (ctx.width - 13) // 2)
    ends = scale([*seen[0], *seen[1]])
    first, second = (dotted(_stretched(values, 2 * wide), wide, rows, ends) for values in seen)
    both = ([*one, Span(" │ ", Role.MUTED), *other[2:]] for one, other in zip(first, second, strict=True))
    title = rule(clean(row.label).upper(), [Span("A left, B right, one scale", Role.MUTED)], ctx.width)
    return [title, *(fit(spans, ctx.width) for spans in both)]


def _stretched(values: Sequence[float], dots: int) -> list[float]:
    """All values over so many dots: repeated while there are few, every so many where there are more."""
    return [values[dot * len(values) // dots] for dot in range(dots if values else 0)]
