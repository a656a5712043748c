"""The drawer: a box at the right of the board, or the full screen, around an env's or a finding's detail."""

from dataclasses import dataclass

from overwatch.catalog.durations import duration
from overwatch.snapshot import Snapshot
from overwatch.tui.context import COMPACT_BELOW, Context
from overwatch.tui.grammar import clock, lane_word, status
from overwatch.tui.panels import alarm, detail, inspecting
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, cut, fit, plain, rule

_WIDTH = 62


def width(ctx: Context) -> int:
    """Cells of the box; wider terminals share what they gain between board and box."""
    return _WIDTH + (ctx.width - COMPACT_BELOW) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The drawer's lines and how far its text can be scrolled."""

    lines: list[Line]
    most_scroll: int


def box(snapshot: Snapshot, ctx: Context, rows: int) -> Drawn:
    """Exactly `rows` lines of the box's width."""
    wide = width(ctx)
    inner = wide - 3
    snapshot = _at(snapshot, ctx)
    content = _content(snapshot, inner, ctx)
    shown, most = _window(content, rows - 2, ctx, inner)
    name = cut(_heading(snapshot, ctx), wide - 5)
    top = f"┌ {name} " + "─" * (wide - 4 - cells(name)) + "┐"
    edge = Span("│", Role.MUTED)
    lines: list[Line] = [
        fit([Span("┌ ", Role.MUTED), Span(name, Role.TITLE), Span(top[len(name) + 2 :], Role.MUTED)], wide)
    ]
    lines += [(edge, Span(" "), *line, edge) for line in shown]
    lines.append((Span("└" + "─" * (wide - 2) + "┘", Role.MUTED),))
    return Drawn(lines=lines, most_scroll=most)


def full(snapshot: Snapshot, ctx: Context, rows: int) -> Drawn:
    """Title and exactly `rows - 1` lines, over the whole width."""
    snapshot = _at(snapshot, ctx)
    title = rule(_heading(snapshot, ctx, bound=True), [Span("Esc back", Role.MUTED)], ctx.width)
    content = _content(snapshot, ctx.width, ctx)
    shown, most = _window(content, rows - 1, ctx, ctx.width)
    return Drawn(lines=[title, *shown], most_scroll=most)


def written(snapshot: Snapshot, ctx: Context) -> str:
    """All of it as plain text, for the clipboard."""
    snapshot = _at(snapshot, ctx)
    lines = _content(snapshot, max(_WIDTH, ctx.width), ctx)
    return "\n".join([_heading(snapshot, ctx), *(plain(line).rstrip() for line in lines)])


def _at(snapshot: Snapshot, ctx: Context) -> Snapshot:
    """The snapshot, with how the open env was where that is asked for."""
    moment = ctx.ui.past.shown
    return snapshot if moment is None else moment.of(snapshot)


def _content(snapshot: Snapshot, inner: int, ctx: Context) -> list[Line]:
    if ctx.ui.inspected is not None:
        return inspecting.content(snapshot, ctx.ui.inspected, inner, ctx)
    if ctx.ui.alarm is not None:
        return alarm.content(snapshot, ctx.ui.alarm, inner, ctx)
    if ctx.ui.env_id is None:
        return []
    make = detail.wide if inner == ctx.width else detail.narrow
    return make(snapshot, ctx.ui.env_id, inner, ctx)


def _window(content: list[Line], rows: int, ctx: Context, inner: int) -> tuple[list[Line], int]:
    """The lines in sight; where some are not, the last one says so."""
    over = len(content) - rows
    if over <= 0:
        return [*content, *[blank(inner)] * -over], 0
    most = over + 1
    at = min(ctx.ui.scroll, most)
    shown = content[at : at + rows - 1]
    below = len(content) - at - len(shown)
    key = "j" if inner == ctx.width else "PgDn"
    note = f"{below} more lines: {key}" if below else "the end"
    shown += [blank(inner)] * (rows - 1 - len(shown))
    return [*shown, fit([Span(f" {note}" if inner == ctx.width else note, Role.MUTED)], inner)], most


def _heading(snapshot: Snapshot, ctx: Context, *, bound: bool = False) -> str:
    if ctx.ui.inspected is not None:
        return inspecting.heading(ctx.ui.inspected)
    if ctx.ui.alarm is not None:
        return alarm.heading(ctx.ui.alarm)
    env_id = ctx.ui.env_id
    if env_id is None:
        return ""
    env, known = detail.env_of(snapshot, env_id), detail.detail_of(snapshot, env_id)
    words = [f"env {env_id}"]
    if (moment := ctx.ui.past.shown) is not None:
        ago = duration(max(0.0, snapshot.time - moment.time))
        words.append(f"{clock(moment.time, ctx.zone, millis=False)}, {ago} ago")
    if env is not None:
        lane = [] if env.gpu_id is None else [lane_word(env.gpu_id, compact=False)]
        if bound and lane and known.bound is not None:
            lane[0] += f" {clean(known.bound.state)}"
        words += [*lane, f"{status(env.status, compact=False).text} {env.anomaly.score:.1f}"]
    if known.rank is not None and known.num_envs is not None:
        words.append(f"{_ordinal(known.rank)} of {known.num_envs:,}")
    return " · ".join(words)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
