"""The feed: the newest lines, structured; `key=value` pairs go whole or not at all."""

from overwatch.snapshot import FeedLine, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import clock, pairs, quoted, severity, short
from overwatch.tui.text import Line, Role, Span, blank, clean, cut, fit, left, rule, width_of


def render(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Title (not in compact) and exactly `rows` lines, oldest first."""
    lines = [] if ctx.compact else [rule("FEED", _note(snapshot), ctx.width)]
    shown = snapshot.feed[-rows:] if rows else ()
    lines += [_line(line, ctx) for line in shown]
    return lines + [blank(ctx.width)] * (rows - len(shown))


def _note(snapshot: Snapshot) -> list[Span]:
    rate = "" if snapshot.feed_rate is None else f" · {short(snapshot.feed_rate)}/s"
    return [Span(f"following{rate}", Role.MUTED)]


def _line(line: FeedLine, ctx: Context) -> Line:
    when = clock(line.time, ctx.zone, millis=not ctx.compact)
    word = severity(line.severity)
    by = clean(line.subsystem)
    start = [
        Span(f" {when} ", Role.MUTED),
        Span(left(word.text, 4), word.role),
        Span(f" {cut(by, 12)} " if ctx.compact else f" {left(by, 8)} "),
    ]
    room = ctx.width - 1 - width_of(start)
    return fit([*start, Span(pairs(_words(line, compact=ctx.compact), room))], ctx.width)


def _words(line: FeedLine, *, compact: bool) -> list[str]:
    """The line as words that stay whole: ids, message, fields."""
    words = [] if line.env_id is None else [f"env={line.env_id}"]
    if line.gpu_id is not None and not (compact and line.slot is not None):
        lane = clean(line.gpu_id)
        words.append(f"gpu={lane[3:] if lane.startswith('gpu') and lane[3:].isdigit() else lane}")
    if line.slot is not None:
        words.append(f"slot={clean(line.slot)}")
    if line.seed_id is not None and not compact:
        words.append(f"seed={clean(line.seed_id)}")
    if line.message:
        words.append(clean(line.message))
    return words + [f"{clean(key)}={quoted(value)}" for key, value in line.fields.items()]
