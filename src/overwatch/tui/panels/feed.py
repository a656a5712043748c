"""The feed: the newest lines, structured; `key=value` pairs go whole or not at all.

Oldest first and following; with the keys, a cursor that goes back. Beside the drawer: the lines of its env,
newest first.
"""

from dataclasses import dataclass
from datetime import tzinfo
from typing import NamedTuple

from overwatch.snapshot import FeedLine, Snapshot
from overwatch.tui.cache import kept
from overwatch.tui.context import Context, LineAt
from overwatch.tui.feed_lines import TOGGLES
from overwatch.tui.grammar import clock, pairs, quoted, severity, short
from overwatch.tui.keys import Mode
from overwatch.tui.text import Line, Role, Span, blank, clean, cut, fit, left, rule, width_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The feed's lines, and what a click on each means."""

    lines: list[Line]
    targets: tuple[LineAt | None, ...]


def render(snapshot: Snapshot, ctx: Context, rows: int) -> Drawn:
    """Title (in compact only when it has the keys) and exactly `rows` lines in all but the title."""
    focused = ctx.mode is Mode.FEED
    lines = (
        []
        if (ctx.compact or (ctx.short and not ctx.beside)) and not _chosen(ctx)
        else [_title(snapshot, ctx)]
    )
    if rows < 1:
        return Drawn(lines=lines, targets=(None,) * len(lines))
    feed = snapshot.feed
    if ctx.ui.env_id is not None:
        feed = tuple(line for line in feed if line.env_id == ctx.ui.env_id)
    back = min(ctx.ui.line or 0, max(0, len(feed) - 1))
    end = min(len(feed), max(rows, len(feed) - max(0, back - rows // 2)))
    start = max(0, end - rows)
    own = ctx.beside and ctx.ui.env_id is not None
    shape = _Shape(width=ctx.width, compact=ctx.compact, beside=ctx.beside, own=own, zone=ctx.zone)
    drawn = [_line((line.time, line.message, line.env_id), line, shape) for line in feed[start:end]]
    if focused and ctx.ui.line is not None and drawn:
        here = len(feed) - 1 - back - start
        drawn[here] = tuple(Span(span.text, Role.ACCENT) for span in drawn[here])
    backs = [LineAt(len(feed) - 1 - place) for place in range(start, end)]
    if ctx.beside:
        drawn.reverse()
        backs.reverse()
    targets = (*[None] * len(lines), *backs, *[None] * (rows - len(backs)))
    if not drawn and (ctx.ui.toggles or ctx.ui.search):
        drawn = [fit([Span("  no line passes; Esc shows all again", Role.MUTED)], ctx.width)]
    return Drawn(lines=lines + drawn + [blank(ctx.width)] * (rows - len(drawn)), targets=targets)


def _chosen(ctx: Context) -> bool:
    return ctx.mode is Mode.FEED or bool(ctx.ui.toggles or ctx.ui.search)


def _title(snapshot: Snapshot, ctx: Context) -> Line:
    if ctx.beside:
        name = "FEED" if ctx.ui.env_id is None else f"FEED env={ctx.ui.env_id}"
        return rule(name, [Span("focus", Role.ACCENT)] if ctx.mode is Mode.FEED else [], ctx.width)
    return rule("FEED", _note(snapshot, ctx), ctx.width)


def _note(snapshot: Snapshot, ctx: Context) -> list[Span]:
    ui = ctx.ui
    known = {"seeds": snapshot.run.slots_enabled, "log": ctx.mode is Mode.FEED or "log" in ui.toggles}
    words = [name for name in TOGGLES if known.get(name, True)]
    spans = []
    for word in ("all", *words):
        active = not ui.toggles if word == "all" else word in ui.toggles
        role = Role.ACCENT if active and ui.toggles else Role.TEXT if active else Role.MUTED
        spans += [Span(f"[{word}]" if active else word, role), Span(" ")]
    if ui.search:
        spans += [Span("· search ", Role.MUTED), Span(cut(clean(ui.search), 24), Role.ACCENT), Span(" ")]
    state = "following" if ui.line is None else f"{ui.line:,} newer below"
    rate = "" if snapshot.feed_rate is None else f" · {short(snapshot.feed_rate)}/s"
    focus = [Span("focus", Role.ACCENT), Span(" · ", Role.MUTED)] if ctx.mode is Mode.FEED else []
    level = {None: "", True: "facts and warnings, v all · ", False: "every line, v fewer · "}[ui.facts]
    if ui.toggles or ui.search:
        level = ""
    return [*focus, *spans, Span(f"· {level}{state}{rate}", Role.MUTED)]


class _Shape(NamedTuple):
    """What a line's place asks of it."""

    width: int
    compact: bool
    beside: bool
    own: bool
    """All lines are of one env."""
    zone: tzinfo | None


@kept
def _line(_: tuple[float, str, int | None], line: FeedLine, shape: _Shape) -> Line:
    brief = shape.compact or shape.beside
    when = clock(line.time, shape.zone, millis=not brief)
    word = severity(line.severity)
    by = clean(line.subsystem)
    start = [Span(f" {when} ", Role.MUTED), Span(left(word.text, 4), word.role)]
    if shape.beside:
        start.append(Span(" "))
    else:
        start.append(Span(f" {cut(by, 12)} " if shape.compact else f" {left(by, 8)} "))
    room = shape.width - 1 - width_of(start)
    words = _own_words(line) if shape.own else _words(line, compact=brief)
    return fit([*start, Span(pairs(words, room))], shape.width)


def _own_words(line: FeedLine) -> list[str]:
    """Beside the drawer of its env: without the ids that all lines share."""
    words = [clean(word) for word in (line.slot, line.message) if word]
    return words + [f"{clean(key)}={quoted(value)}" for key, value in line.fields.items()]


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
