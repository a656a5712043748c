"""Flight board: env rows grouped by lane, worst first, with the reasons in words and a strip of chips.

Below it the census of the seeds, the mix of the recent actions, and the envs at both ends of the fleet. In
its place a heatmap: a row an env or a GPU, a cell a second or more, the shade its anomaly or how busy it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, assert_never

from overwatch.catalog import Stage
from overwatch.catalog.durations import duration
from overwatch.snapshot import Best, BestEpisode, Bound, Group, Snapshot
from overwatch.tui.context import Context, Frame, LaneAt, Place, Target
from overwatch.tui.grammar import BARS, lane_word, number, operation, short, stage_role, status, status_counts
from overwatch.tui.memory import Sample
from overwatch.tui.panels import rows as cols
from overwatch.tui.panels.rows import Fold, Head, Item, More, Row, metric_word, worst_first
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
    left,
    right,
    rule,
    width_of,
)

_APART: Final = 1.0
"""Anomaly from which on a lane's row shows it."""
_OPS: Final = ("WAIT", "GERM", "ADV", "SETA", "FOSS", "PRUNE")
"""The usual operations in the order of a seed's life; others follow."""
_WORST_AT: Final = 53
_MARKS: Final = {"!!": Role.CRIT, "!": Role.WARN}
_START: Final = 17
"""Cells of a row of the heatmap before its first."""
_FULL: Final = 10.0
"""Anomaly of a full cell: a crash."""
_SHADES: Final = {
    "crashed": Role.CRIT, "diverging": Role.CRIT, "stalled": Role.WARN, "degraded": Role.WARN,
}  # fmt: skip


def render(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Title (not beside the drawer), head and exactly `rows` lines."""
    columns, plan = cols.layout(snapshot, ctx), cols.plan(snapshot, ctx, rows)
    visible = [place for item in plan.items if (place := _place(item)) is not None]
    cursor = ctx.cursor if ctx.cursor in visible else (visible[0] if visible else None)
    bounds = {lane.gpu_id: lane.bound for lane in snapshot.system.gpus}
    drawing = _Drawing(snapshot=snapshot, ctx=ctx, columns=columns, cursor=cursor, bounds=bounds)
    lines = [] if ctx.beside else [title(snapshot, ctx)]
    lines.append(fit(cols.head(columns), ctx.width))
    targets = (*[None] * len(lines), *map(_target, plan.items), *[None] * (rows - len(plan.items)))
    lines += [drawing.item(item) for item in plan.items]
    left_over = rows - len(plan.items)
    if not snapshot.envs and snapshot.board.filter is not None and left_over > 0:
        lines.append(fit([Span("  no environment passes the filter; Esc drops it", Role.MUTED)], ctx.width))
        left_over -= 1
    lines += [blank(ctx.width)] * left_over
    return Frame(lines=lines, walk=plan.walk, cursor=cursor, targets=targets)


def _target(item: Item) -> Target | None:
    """What a click on this line means: where the cursor can lie, and open lanes."""
    return LaneAt(item.group.gpu_id) if isinstance(item, Head) else _place(item)


def _place(item: Item) -> Place | None:
    """Where the cursor can lie on this line."""
    match item:
        case Row(env=env):
            return env.env_id
        case Head(group=group, opened=opened):
            return None if opened else LaneAt(group.gpu_id)
        case Fold() | More():
            return None
        case _:
            assert_never(item)


def title(snapshot: Snapshot, ctx: Context) -> Line:
    """The line over the board: sort, filter and what passes it."""
    board = snapshot.board
    arrow = "v" if board.direction == "desc" else "^"
    total = snapshot.run.n_envs
    counts = status_counts(board.counts) or "none"
    envs = f"{total:,} env: {counts}" if total is not None else status_counts(board.counts) or "no env yet"
    if board.matched is not None:
        envs = f"{board.matched:,} of {'?' if total is None else f'{total:,}'} env: {counts}"
    sort = f"{clean(board.sort)} {arrow}{' · held' if board.held else ''}"
    if ctx.compact and board.filter:
        envs = envs.partition(":")[0]
        room = max(6, ctx.width - len(f"─ BOARD {envs} ─ {sort} ·  ─"))
        active = Span(cut(clean(board.filter), room), Role.ACCENT)
        return rule(f"BOARD {envs}", [Span(f"{sort} · ", Role.MUTED), active], ctx.width)
    if ctx.compact:
        return rule(f"BOARD {envs}", [Span(sort, Role.MUTED)], ctx.width)
    room = max(8, ctx.width - len(f"─ FLIGHT BOARD  sort {sort} · filter  · {envs} ─") - 3)
    chosen = Span("none", Role.MUTED)
    if board.filter:
        chosen = Span(cut(clean(board.filter), room), Role.ACCENT)
    note = [Span(f"sort {sort} · filter ", Role.MUTED), chosen, Span(" · ", Role.MUTED), Span(envs)]
    return rule("FLIGHT BOARD", note, ctx.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """What every line of the board needs."""

    snapshot: Snapshot
    ctx: Context
    columns: cols.Columns
    cursor: Place | None
    bounds: dict[str, Bound | None]

    def item(self, item: Item) -> Line:
        """One line."""
        match item:
            case Row(env=env):
                return cols.line(env, self.columns, self.snapshot, self.ctx, here=env.env_id == self.cursor)
            case Head(group=group, opened=opened):
                return self._group(group, opened=opened)
            case Fold():
                return fit(self._fold(item), self.ctx.width)
            case More(count=count):
                return fit([Span(f"  +{count} more lanes", Role.MUTED)], self.ctx.width)
            case _:
                assert_never(item)

    def _group(self, group: Group, *, opened: bool) -> Line:
        """A lane's own line; a closed one can lie under the cursor."""
        columns, beside = self.columns, self.ctx.beside
        bound = self.bounds.get(group.gpu_id or "")
        name = "all" if group.gpu_id is None else lane_word(group.gpu_id, compact=False)
        state = cut(f"{clean(bound.state)} {clean(bound.mark)}".rstrip(), 16) if bound else ""
        count = f"{group.n_envs:,}"
        room = max(12 + columns.env - beside - cells(state), len(count) + 1)
        spans = [
            Span("▾ " if opened else "▸ ", Role.MUTED),
            Span(left(cut(name, 10), max(6, min(len(name), 10) + 2)), Role.TITLE),
            Span(state, _MARKS.get(bound.mark if bound else "", Role.TEXT)),
            Span(right(count, room) + (" env  " if beside else " env   ")),
            Span(status_counts(group.counts, "  "), Role.MUTED),
        ]
        if not beside:
            values = cols.group_values(group, columns, old=self.ctx.fresh.old)
            room = self.ctx.width - columns.prefix - width_of(values) - 1
            note = "; ".join([*(["medians"] if opened and values else []), *_apart(group)])
            about = Span(f" {cut(note, room)}" if note and room > 3 else "", Role.MUTED)
            spans = [*fit(spans, columns.prefix), *values, about]
        line = fit(spans, self.ctx.width)
        if opened or self.cursor != LaneAt(group.gpu_id):
            return line
        first, *rest = line
        accented = (Span(span.text, Role.ACCENT) for span in (Span(first.text[1:]), *rest))
        return (Span(">", Role.ACCENT), *accented)

    def _fold(self, fold: Fold) -> list[Span]:
        """How many envs are not shown; of a lane also their medians and what its returns lie between."""
        columns, group = self.columns, fold.group
        count = right(f"{fold.count:,}", columns.env + (0 if columns.compact else 2))
        spans = [Span(count + (" more OK" if fold.all_ok else " more"), Role.MUTED)]
        if group is None or self.ctx.beside:
            return spans
        values = cols.group_values(group, columns, old=self.ctx.fresh.old)
        text = ""
        if group.p10_return is not None and group.p90_return is not None and columns.value == "return":
            low, high = number(group.p10_return, "+.2f", 8), number(group.p90_return, "+.2f", 8)
            text = f" return {low} to {high}, p10 to p90"
        room = self.ctx.width - columns.prefix - width_of(values)
        words = [*(span.text for span in values), text if len(text) <= room else ""]
        return [*fit(spans, columns.prefix), *(Span(word, Role.MUTED) for word in words)]


def _apart(group: Group) -> list[str]:
    """How far the lane is from the others, and why, where it is."""
    if group.anomaly is None or group.anomaly.score < _APART:
        return []
    reason = "".join(f", {clean(one)}" for one in group.anomaly.reasons[:1])
    return [f"anom {number(group.anomaly.score, '.1f', 4)}{reason}"]


def rollups(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """The census and, in the standard layout, best and worst; what nothing filled is left out."""
    lines = []
    if ctx.beside:
        alone = _census(snapshot, compact=False)[2:]
        return [fit([Span(" "), *alone], ctx.width)] if alone else []
    census = _census(snapshot, compact=ctx.compact)
    room = ctx.width - 2 - sum(len(span.text) for span in census) - (4 if census else 0)
    actions = _actions(snapshot, room, compact=ctx.compact)
    if census or actions:
        between = [Span("  " if ctx.compact else "    ")] if census and actions else []
        lines.append(fit([Span(" "), *census, *between, *actions], ctx.width))
    ends = snapshot.aggregates
    if (ends.best or ends.worst) and not ctx.compact and not ctx.short:
        lines.append(_ends(snapshot, ctx.width))
    if any("best" in one.values for one in ends.episodes) and not ctx.compact and not ctx.short:
        lines.append(_scoreboard(snapshot, ctx.width))
    return lines


def _census(snapshot: Snapshot, *, compact: bool) -> list[Span]:
    counts = snapshot.aggregates.seed_census
    if not counts or not snapshot.run.slots_enabled:
        return []
    spans = [] if compact else [Span("seeds", Role.MUTED), Span("  ")]
    for stage in (*(stage for stage in Stage if stage is not Stage.UNKNOWN), Stage.UNKNOWN):
        if stage.value in counts:
            spans += [Span(stage.glyph, stage_role(stage)), Span("" if compact else " ")]
            spans += [Span(short(counts[stage.value])), Span(" " if compact else "  ")]
    return spans[:-1]


def _actions(snapshot: Snapshot, room: int, *, compact: bool) -> list[Span]:
    """The usual operations, then others, as many as fit whole."""
    shares = {operation(name): share for name, share in snapshot.aggregates.actions.items()}
    names = [*(name for name in _OPS if name in shares), *(name for name in shares if name not in _OPS)]
    start, gap = ("", " ") if compact else ("actions  ", "  ")
    words = [f"{clean(name)} {shares[name]:.0%}" for name in names]
    if compact:
        words = [f"{clean(name)[:4]} {shares[name]:.0%}".removesuffix("%") for name in names]
    kept = 0
    while kept < len(words) and len(start + gap.join(words[: kept + 1])) + compact <= room:
        kept += 1
    if not kept:
        return []
    text = gap.join(words[:kept]) + ("%" if compact else "")
    return [Span(start, Role.MUTED), Span(text)] if start else [Span(text)]


def _ends(snapshot: Snapshot, width: int) -> Line:
    best = [Span(" "), Span("best", Role.MUTED), Span("  " + _named(snapshot.aggregates.best, snapshot))]
    worst = [Span("worst", Role.MUTED), Span("  " + _named(snapshot.aggregates.worst, snapshot))]
    at = min(max(_WORST_AT, sum(len(span.text) for span in best) + 2), width // 2 + 12)
    return fit((*fit(best, at), *worst), width)


def _scoreboard(snapshot: Snapshot, width: int) -> Line:
    """The best episodes, as many as fit whole, and the mean of the bests of all."""
    ends = snapshot.aggregates
    mean = "" if ends.mean_best is None else f"  mean {number(ends.mean_best, '.2f', 6)}"
    words: list[str] = []
    for one in ends.episodes:
        longer = [*words, _episode(one)]
        if cells(" · ".join(longer)) + len(mean) > width - 14:
            break
        words = longer
    return fit([Span(" episodes  ", Role.MUTED), Span(" · ".join(words)), Span(mean, Role.MUTED)], width)


def _episode(one: BestEpisode) -> str:
    """`env 3 #12 0.94 @41 ×1.8 2 fossils`."""
    values = one.values
    parts = [f"env {one.env_id} #{one.number}"]
    if "best" in values:
        parts.append(number(values["best"], ".2f", 8))
    if "best_step" in values:
        parts.append(f"@{values['best_step']:.0f}")
    if "growth_ratio" in values:
        parts.append(f"×{number(values['growth_ratio'], '.1f', 6)}")
    if "fossils" in values:
        parts.append(f"{values['fossils']:.0f} fossils")
    return " ".join(parts)


def _named(ends: tuple[Best, ...], snapshot: Snapshot) -> str:
    words = []
    for end in ends:
        name = metric_word(snapshot) if end.field == "metric" else clean(end.field)
        spec = ".2f" if end.field == "metric" else "+.2f"
        words.append(f"env {end.env_id} {name} {number(end.value, spec, 8)}")
    return " · ".join(words)


def heatmap(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Exactly `rows` lines with title and axis; the places of the cursor, and where it is."""
    make = _heat_of_lanes if ctx.ui.heat_of == "gpu" else _heat_of_envs
    wide = max(10, ctx.width - _START - 1)
    drawn = make(snapshot, ctx, max(0, rows - 2), wide)
    lines = [*drawn.lines, *[blank(ctx.width)] * (rows - 1 - len(drawn.lines))]
    ago = left(f"{'':{_START}}{duration(wide * ctx.ui.heat_step)} ago", ctx.width - 5)
    lines.append(fit([Span(ago, Role.MUTED), Span("now", Role.MUTED)], ctx.width))
    return replace(drawn, lines=lines[:rows], targets=(*drawn.targets, *[None] * rows)[:rows])


def _heat_of_lanes(snapshot: Snapshot, ctx: Context, room: int, wide: int) -> Frame:
    """The shade is the least utilization of each while, the colour what held them back."""
    step = ctx.ui.heat_step
    note = f"least utilization, one cell {step}s, newest right · +/- zoom · G board"
    lines = [rule("HEATMAP GPU", [Span(note, Role.MUTED)], ctx.width)]
    gpus = snapshot.system.gpus
    for lane in gpus[:room]:
        bound = "" if lane.bound is None else lane.bound.state
        head = Span(f" {left(cut_middle(clean(lane.gpu_id), 6), 7)}{left(clean(bound), _START - 9)} ")
        samples = ctx.ui.heat.of(lane.gpu_id, int(snapshot.time), wide, step)
        shades = (
            _shade(sample, 1.0, Role.TEXT if sample is None else _MARKS.get(sample.status, Role.TEXT))
            for sample in samples
        )
        lines.append(fit([head, *_drawn(shades)], ctx.width))
    if len(gpus) > room and len(lines) > 1:
        lines[-1] = fit([Span(f"  +{len(gpus) - room + 1} more lanes", Role.MUTED)], ctx.width)
    return Frame(lines=lines)


def _heat_of_envs(snapshot: Snapshot, ctx: Context, room: int, wide: int) -> Frame:
    """The shade is the anomaly; worst envs first."""
    step = ctx.ui.heat_step
    note = f"anomaly, one cell {step}s, newest right · +/- zoom · H board"
    lines = [rule("HEATMAP", [Span(note, Role.MUTED)], ctx.width)]
    envs = worst_first(snapshot.envs) if snapshot.board.sort == "anomaly" else list(snapshot.envs)
    walk: tuple[Place, ...] = tuple(env.env_id for env in envs)
    cursor = ctx.cursor if ctx.cursor in walk else next(iter(walk), None)
    at = walk.index(cursor) if cursor is not None else 0
    first = max(0, min(at - room + 1, len(walk) - room)) if at >= room else 0
    shown = envs[first : first + room]
    for env in shown:
        mark = ">" if env.env_id == cursor else " "
        lane = "" if env.gpu_id is None else lane_word(env.gpu_id, compact=True)
        word = status(env.status, compact=True)
        head = [
            Span(f"{mark}{right(str(env.env_id), 5)} {left(lane, 4)} "),
            Span(left(word.text, 4), word.role),
        ]
        samples = ctx.ui.heat.of(env.env_id, int(snapshot.time), wide, step)
        shades = (
            _shade(sample, _FULL, Role.TEXT if sample is None else _SHADES.get(sample.status, Role.MUTED))
            for sample in samples
        )
        lines.append(fit([*head, Span(" "), *_drawn(shades)], ctx.width))
    targets = (None, *(env.env_id for env in shown))
    return Frame(lines=lines, walk=walk, cursor=cursor, targets=targets)


def _shade(sample: Sample | None, full: float, role: Role) -> tuple[str, Role]:
    """A cell as high as its share of what fills it."""
    if sample is None:
        return " ", Role.MUTED
    return BARS[min(len(BARS) - 1, max(0, int(sample.score / full * len(BARS))))], role


def _drawn(shades: Iterable[tuple[str, Role]]) -> list[Span]:
    """Cells of one colour together."""
    return [Span("".join(bar for bar, _ in run), role) for role, run in groupby(shades, lambda one: one[1])]
