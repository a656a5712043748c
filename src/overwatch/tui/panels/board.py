"""Flight board: env rows grouped by lane, worst first, with the reasons in words and a strip of chips.

Below it the census of the seeds, the mix of the recent actions, and the envs at both ends of the fleet.
"""

from dataclasses import dataclass
from typing import Final, assert_never

from overwatch.catalog import Stage
from overwatch.snapshot import Best, Bound, Group, Snapshot
from overwatch.tui.context import Context, LaneAt, Place, Target
from overwatch.tui.grammar import lane_word, number, operation, short, stage_role, status_counts
from overwatch.tui.panels import rows as cols
from overwatch.tui.panels.plan import Fold, Head, Item, More, Plan, Row, Wish, flat, grouped
from overwatch.tui.panels.rows import Columns, metric_word
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, cut, fit, left, right, rule, width_of

_APART: Final = 1.0
"""Anomaly from which on a lane's row shows it."""
_OPS: Final = ("WAIT", "GERM", "ADV", "SETA", "FOSS", "PRUNE")
"""The usual operations in the order of a seed's life; others follow."""
_WORST_AT: Final = 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The board's lines and the envs that the cursor walks over."""

    lines: list[Line]
    walk: tuple[Place, ...]
    cursor: Place | None
    """What the cursor lies on."""
    targets: tuple[Target | None, ...] = ()
    """What a click on each line means."""


def render(snapshot: Snapshot, ctx: Context, rows: int) -> Drawn:
    """Title (not beside the drawer), head and exactly `rows` lines."""
    columns = cols.layout(snapshot, ctx)
    plan = _plan(snapshot, ctx, rows)
    visible = [place for item in plan.items if (place := _place(item)) is not None]
    cursor = ctx.cursor if ctx.cursor in visible else (visible[0] if visible else None)
    bounds = {lane.gpu_id: lane.bound for lane in snapshot.system.gpus}
    run = snapshot.run
    alike = cols.Rows(
        columns=columns, width=ctx.width, codes=run.blueprints, slots=run.slots, old=ctx.fresh.old
    )
    drawing = _Drawing(
        snapshot=snapshot, ctx=ctx, columns=columns, rows=cols.shared("board", alike), cursor=cursor,
        bounds=bounds,
    )  # fmt: skip
    lines = [] if ctx.beside else [title(snapshot, ctx)]
    lines.append(fit(cols.head(columns), ctx.width))
    targets = [*[None] * len(lines), *map(_target, plan.items), *[None] * (rows - len(plan.items))]
    lines += [drawing.item(item) for item in plan.items]
    left_over = rows - len(plan.items)
    if not snapshot.envs and snapshot.board.filter is not None and left_over > 0:
        lines.append(fit([Span("  no environment passes the filter; Esc drops it", Role.MUTED)], ctx.width))
        left_over -= 1
    lines += [blank(ctx.width)] * left_over
    return Drawn(lines=lines, walk=plan.walk, cursor=cursor, targets=tuple(targets))


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


def _plan(snapshot: Snapshot, ctx: Context, rows: int) -> Plan:
    groups = snapshot.board.groups
    wish = Wish(
        lines=rows, cursor=ctx.cursor, worst_first=snapshot.board.sort == "anomaly", folds=ctx.ui.folds
    )
    if ctx.compact or not groups:
        total = sum(group.n_envs for group in groups) if groups else len(snapshot.envs)
        return flat(snapshot.envs, total, wish)
    return grouped(groups, snapshot.envs, wish)


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
    chosen = [Span("none", Role.MUTED)]
    if board.filter:
        chosen = [Span(cut(clean(board.filter), room), Role.ACCENT)]
    note = [Span(f"sort {sort} · filter ", Role.MUTED), *chosen, Span(" · ", Role.MUTED), Span(envs)]
    return rule("FLIGHT BOARD", note, ctx.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """What every line of the board needs."""

    snapshot: Snapshot
    ctx: Context
    columns: Columns
    rows: cols.Rows
    cursor: Place | None
    bounds: dict[str, Bound | None]

    def item(self, item: Item) -> Line:
        """One line."""
        match item:
            case Row(env=env):
                pinned = env.env_id in self.ctx.ui.pinned
                return cols.line(env.env_id, env, self.rows, env.env_id == self.cursor, pinned)
            case Head():
                return fit(self._group(item.group, opened=item.opened), self.ctx.width)
            case Fold():
                return fit(self._fold(item), self.ctx.width)
            case More(count=count):
                return fit([Span(f"  +{count} more lanes", Role.MUTED)], self.ctx.width)
            case _:
                assert_never(item)

    def _group(self, group: Group, *, opened: bool) -> list[Span]:
        columns = self.columns
        bound = self.bounds.get(group.gpu_id or "")
        name = "all" if group.gpu_id is None else lane_word(group.gpu_id, compact=False)
        state = cut(f"{clean(bound.state)} {clean(bound.mark)}".rstrip(), 16) if bound else ""
        role = {"!!": Role.CRIT, "!": Role.WARN}.get(bound.mark if bound else "", Role.TEXT)
        spans = [
            Span("▾ " if opened else "▸ ", Role.MUTED),
            Span(left(cut(name, 10), max(6, min(len(name), 10) + 2)), Role.TITLE),
            Span(state, role),
            Span(self._count(group, state)),
            Span(status_counts(group.counts, "  "), Role.MUTED),
        ]
        if self.ctx.beside:
            return self._marked(spans, group, opened=opened)
        values = cols.group_values(group, columns, old=self.ctx.fresh.old)
        room = self.ctx.width - columns.prefix - width_of(values) - 1
        note = "; ".join([*(["medians"] if opened and values else []), *self._apart(group)])
        about = Span(f" {cut(note, room)}" if note and room > 3 else "", Role.MUTED)
        return self._marked([*fit(spans, columns.prefix), *values, about], group, opened=opened)

    def _apart(self, group: Group) -> list[str]:
        """How far the lane is from the others, and why, where it is."""
        if group.anomaly is None or group.anomaly.score < _APART:
            return []
        reason = "".join(f", {clean(one)}" for one in group.anomaly.reasons[:1])
        return [f"anom {number(group.anomaly.score, '.1f', 4)}{reason}"]

    def _count(self, group: Group, state: str) -> str:
        """How many envs, right-aligned after the state as long as both have room."""
        beside = self.ctx.beside
        count = f"{group.n_envs:,}"
        room = 12 + self.columns.env - beside - cells(state)
        return right(count, max(room, len(count) + 1)) + (" env  " if beside else " env   ")

    def _marked(self, spans: list[Span], group: Group, *, opened: bool) -> list[Span]:
        """A closed lane under the cursor."""
        if opened or self.cursor != LaneAt(group.gpu_id):
            return spans
        line = fit(spans, self.ctx.width)
        return [Span(">", Role.ACCENT), *(Span(span.text, Role.ACCENT) for span in _without_first(line))]

    def _fold(self, fold: Fold) -> list[Span]:
        columns = self.columns
        word = " more OK" if fold.all_ok else " more"
        if columns.compact:
            spans = [Span(right(f"{fold.count:,}", columns.env) + word, Role.MUTED)]
        else:
            spans = [Span(right(f"{fold.count:,}", columns.env + 2) + word, Role.MUTED)]
        group = fold.group
        if group is None or self.ctx.beside:
            return spans
        values = cols.group_values(group, columns, old=self.ctx.fresh.old)
        muted = [Span(span.text, Role.MUTED) for span in values]
        return [*fit(spans, columns.prefix), *muted, Span(self._range(group), Role.MUTED)]

    def _range(self, group: Group) -> str:
        """What the lane's returns lie between, where there is room and it is known."""
        if group.p10_return is None or group.p90_return is None or self.columns.value != "return":
            return ""
        low, high = number(group.p10_return, "+.2f", 8), number(group.p90_return, "+.2f", 8)
        text = f" return {low} to {high}, p10 to p90"
        room = (
            self.ctx.width - self.columns.prefix - width_of(cols.group_values(group, self.columns, old=False))
        )
        return text if len(text) <= room else ""


def _without_first(line: Line) -> list[Span]:
    """The line without its first cell."""
    first, *rest = line
    return [Span(first.text[1:], first.role), *rest]


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
    if not names:
        return []
    start, gap = ("", " ") if compact else ("actions  ", "  ")
    called = {name: clean(name) for name in names}
    words = [f"{called[name][:4] if compact else called[name]} {shares[name]:.0%}" for name in names]
    if compact:
        words = [word.removesuffix("%") for word in words]
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


def _named(ends: tuple[Best, ...], snapshot: Snapshot) -> str:
    words = []
    for end in ends:
        name = metric_word(snapshot) if end.field == "metric" else clean(end.field)
        spec = ".2f" if end.field == "metric" else "+.2f"
        words.append(f"env {end.env_id} {name} {number(end.value, spec, 8)}")
    return " · ".join(words)
