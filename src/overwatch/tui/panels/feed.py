"""The feed: the newest lines, structured; `key=value` pairs go whole or not at all.

Oldest first and following; with the keys, a cursor that goes back. Beside the drawer: the lines of its env,
newest first.
"""

from overwatch.snapshot import FeedLine, Snapshot
from overwatch.tui.context import Context, Frame, LineAt
from overwatch.tui.grammar import clock, pairs, quoted, severity, short
from overwatch.tui.keys import Mode
from overwatch.tui.memory import TOGGLES
from overwatch.tui.text import Line, Role, Span, blank, clean, cut, fit, left, rule, width_of


def render(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Title (in compact only when it has the keys) and exactly `rows` lines in all but the title."""
    focused = ctx.mode is Mode.FEED
    is_bare = (ctx.compact or (ctx.short and not ctx.beside)) and not (
        focused or ctx.ui.toggles or ctx.ui.search
    )
    lines = [] if is_bare else [_title(snapshot, ctx)]
    if rows < 1:
        return Frame(lines=lines, targets=(None,) * len(lines))
    feed = snapshot.feed
    if ctx.ui.env_id is not None:
        feed = tuple(line for line in feed if line.env_id == ctx.ui.env_id)
    back = min(ctx.ui.line or 0, max(0, len(feed) - 1))
    end = min(len(feed), max(rows, len(feed) - max(0, back - rows // 2)))
    start = max(0, end - rows)
    drawn = [_line(line, ctx) for line in feed[start:end]]
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
    return Frame(lines=lines + drawn + [blank(ctx.width)] * (rows - len(drawn)), targets=targets)


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


def _line(line: FeedLine, ctx: Context) -> Line:
    brief = ctx.compact or ctx.beside
    when = clock(line.time, ctx.zone, millis=not brief)
    word = severity(line.severity)
    by = clean(line.subsystem)
    start = [Span(f" {when} ", Role.MUTED), Span(left(word.text, 4), word.role)]
    if ctx.beside:
        start.append(Span(" "))
    else:
        start.append(Span(f" {cut(by, 12)} " if ctx.compact else f" {left(by, 8)} "))
    # Beside the drawer of their env, lines are without the ids that all of them share.
    own = ctx.beside and ctx.ui.env_id is not None
    words = (
        [clean(word) for word in (line.chip or line.slot, line.message) if word]
        if own
        else _words(line, compact=brief)
    )
    words += [f"{clean(key)}={quoted(value)}" for key, value in line.fields.items()]
    return fit([*start, Span(pairs(words, ctx.width - 1 - width_of(start)))], ctx.width)


def _words(line: FeedLine, *, compact: bool) -> list[str]:
    """Ids and message as words that stay whole."""
    words = [] if line.env_id is None else [f"env={line.env_id}"]
    if line.gpu_id is not None and not (compact and line.slot is not None):
        lane = clean(line.gpu_id)
        words.append(f"gpu={lane[3:] if lane.startswith('gpu') and lane[3:].isdigit() else lane}")
    if line.chip is not None:
        words.append(clean(line.chip))
    elif line.slot is not None:
        words.append(f"slot={clean(line.slot)}")
    if line.seed_id is not None and not compact:
        words.append(f"seed={clean(line.seed_id)}")
    if line.message:
        words.append(clean(line.message))
    return words
