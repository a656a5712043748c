"""Flight board: env rows grouped by lane, worst first, with the reasons in words and a strip of chips."""

from dataclasses import dataclass
from typing import assert_never

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import Bound, Env, Group, Snapshot
from overwatch.tui.context import Context, LaneAt, Place
from overwatch.tui.grammar import (
    ABSENT,
    ChipSize,
    chip,
    lane_word,
    number,
    operation,
    reasons,
    status,
    status_counts,
)
from overwatch.tui.panels import columns as cols
from overwatch.tui.panels.columns import Columns
from overwatch.tui.panels.plan import Fold, Head, Item, More, Plan, Row, Wish, flat, grouped
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, cut, fit, left, right, rule, width_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The board's lines and the envs that the cursor walks over."""

    lines: list[Line]
    walk: tuple[Place, ...]
    cursor: Place | None
    """What the cursor lies on."""


def render(snapshot: Snapshot, ctx: Context, rows: int) -> Drawn:
    """Title (not beside the drawer), head and exactly `rows` lines."""
    columns = cols.layout(snapshot, ctx)
    plan = _plan(snapshot, ctx, rows)
    visible = [place for item in plan.items if (place := _place(item)) is not None]
    cursor = ctx.cursor if ctx.cursor in visible else (visible[0] if visible else None)
    bounds = {lane.gpu_id: lane.bound for lane in snapshot.system.gpus}
    drawing = _Drawing(snapshot=snapshot, ctx=ctx, columns=columns, cursor=cursor, bounds=bounds)
    lines = [] if ctx.beside else [title(snapshot, ctx)]
    lines.append(fit(cols.head(columns), ctx.width))
    lines += [fit(drawing.item(item), ctx.width) for item in plan.items]
    left_over = rows - len(plan.items)
    if not snapshot.envs and snapshot.board.filter is not None and left_over > 0:
        lines.append(fit([Span("  no environment passes the filter; Esc drops it", Role.MUTED)], ctx.width))
        left_over -= 1
    lines += [blank(ctx.width)] * left_over
    return Drawn(lines=lines, walk=plan.walk, cursor=cursor)


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
    cursor: Place | None
    bounds: dict[str, Bound | None]

    def item(self, item: Item) -> list[Span]:
        """One line, not yet of its width."""
        match item:
            case Row(env=env):
                return self._env(env)
            case Head():
                return self._group(item.group, opened=item.opened)
            case Fold():
                return self._fold(item)
            case More(count=count):
                return [Span(f"  +{count} more lanes", Role.MUTED)]
            case _:
                assert_never(item)

    def _env(self, env: Env) -> list[Span]:
        columns = self.columns
        here = env.env_id == self.cursor
        word = status(env.status, compact=columns.status == 4)
        spans = [Span(">" if here else " "), Span(right(str(env.env_id), columns.env)), self._pin(env)]
        if columns.lane:
            spans.append(Span(left(lane_word(env.gpu_id, compact=True), columns.lane) + " ", Role.MUTED))
        calm = Role.MUTED if env.status == "ok" else Role.TEXT
        spans += [
            Span(left(word.text, max(columns.status, len(word.text))), word.role),
            Span(self._score(env.anomaly.score, len(word.text)) + " ", calm),
            Span(left(reasons(env.anomaly.reasons, columns.why), columns.why)),
            *cols.env_values(env, columns, old=self.ctx.fresh.old),
        ]
        if columns.action:
            spans.append(Span(" " + self._action(env.last_action)))
        if columns.chips:
            spans += [Span(" "), *self._chips(env)]
        if here:
            return [Span(span.text, Role.ACCENT) for span in fit(spans, self.ctx.width)]
        return spans

    def _pin(self, env: Env) -> Span:
        """Whether the user marked the env."""
        return Span("*", Role.INFO) if env.env_id in self.ctx.ui.pinned else Span(" ")

    def _score(self, score: float, status_cells: int) -> str:
        """The anomaly; a status that is longer than its column takes the cells before it."""
        room = 5 - max(0, status_cells - self.columns.status)
        return right(number(score, ".1f", min(4, room - 1)), room)

    def _action(self, action: str | None) -> str:
        op, _, where = (clean(action or ABSENT)).partition(" ")
        if self.columns.compact:
            return left(operation(op)[:4], self.columns.action)
        return left(f"{left(operation(op), 5)} {where}" if where else operation(op), self.columns.action)

    def _chips(self, env: Env) -> list[Span]:
        codes = self.snapshot.run.blueprints
        columns = self.columns
        if columns.heads:
            chips = [chip(name, env.slots.get(name), ChipSize.SMALL, codes) for name in columns.heads]
            return [span for one in chips for span in (one, Span(" "))][:-1]
        known = [name for name in self.snapshot.run.slots if name in env.slots]
        names = known + [name for name in env.slots if name not in self.snapshot.run.slots]
        wide = len(names) * (ChipSize.LABELLED.value + 1) - 1
        if columns.chip is ChipSize.LABELLED and wide <= columns.chips:
            chips = [chip(name, env.slots[name], ChipSize.LABELLED, codes) for name in names]
            return list(fit([span for one in chips for span in (one, Span(" "))][:-1], columns.chips))
        return self._dots(env, names)

    def _dots(self, env: Env, names: list[str]) -> list[Span]:
        room = self.columns.chips
        if len(names) > room:
            awake = [name for name in names if parse_stage(env.slots[name].stage) is not Stage.DORMANT]
            names, total = awake[: room - 4], len(names)
            more = [Span(f"+{total - len(names)}", Role.MUTED)]
        else:
            more = []
        dots = [chip(name, env.slots[name], ChipSize.DOT, {}) for name in names]
        return list(fit([*dots, *more], room))

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
        note = " medians" if opened and values else ""
        return self._marked(
            [*fit(spans, columns.prefix), *values, Span(note, Role.MUTED)], group, opened=opened
        )

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
