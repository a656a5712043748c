"""Rows of the flight board: which lines there are, in which columns, what gives way, and each env in them.

Never sorts: groups and rows keep the snapshot's order. By anomaly, envs that are not OK come before the
others. What does not fit folds into one line per lane; the row under the cursor is always among the lines.
Columns depend on the terminal and on what the run reports, never on the values of the moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import Env, Group, Run, Slot, Snapshot
from overwatch.tui.context import Context, LaneAt, Place
from overwatch.tui.grammar import (
    ABSENT,
    ChipSize,
    chip,
    lane_word,
    no_zero,
    number,
    operation,
    reasons,
    status,
)
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, fit, left, right
from overwatch.tui.text import head as head_of

LEAST_WHY: Final = 24
LEAST_WHY_BESIDE: Final = 20
_DOTS: Final = 16
"""Most dots of one row; more slots than that are counted."""
_NARROW: Final = {"return": "retrn", "reward": "rewrd"}
_SHORT_METRICS: Final = {"accuracy": "acc", "success_rate": "succ"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A lane's own line."""

    group: Group
    opened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One env."""

    env: Env


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Envs that are not shown: of one lane, or of the fleet where `group` is absent."""

    group: Group | None
    count: int
    all_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """Lanes that are not shown."""

    count: int


Item: TypeAlias = Head | Row | Fold | More


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The board's lines, and the places that the cursor walks over, in their order."""

    items: tuple[Item, ...]
    walk: tuple[Place, ...]


def worst_first(envs: tuple[Env, ...]) -> list[Env]:
    """Over all lanes those that are not OK, then the others, each in their order."""
    return sorted(envs, key=lambda env: env.status == "ok")


def plan(snapshot: Snapshot, ctx: Context, lines: int) -> Plan:
    """What is on at most so many lines."""
    flat = ctx.compact or not snapshot.board.groups
    return _flat(snapshot, ctx, lines) if flat else _grouped(snapshot, ctx, lines)


def _flat(snapshot: Snapshot, ctx: Context, lines: int) -> Plan:
    """One list over all lanes: by anomaly what is not OK first; the rest folded into one line."""
    envs, groups = snapshot.envs, snapshot.board.groups
    num_envs = sum(group.n_envs for group in groups) if groups else len(envs)
    ordered = worst_first(envs) if snapshot.board.sort == "anomaly" else list(envs)
    room = lines if num_envs <= lines else lines - 1
    shown = _with_cursor(ordered, max(0, room), ctx.cursor)
    items: list[Item] = [Row(env=env) for env in shown]
    if num_envs > len(shown) and lines > 0:
        items.append(_fold(None, ordered, len(shown), num_envs))
    return Plan(items=tuple(items[: max(0, lines)]), walk=tuple(env.env_id for env in ordered))


def _grouped(snapshot: Snapshot, ctx: Context, lines: int) -> Plan:
    """A section a lane, worst first; lanes with nothing wrong are one line when space is short."""
    groups = snapshot.board.groups
    kept = groups if len(groups) <= lines else groups[: max(0, lines - 1)]
    members: dict[str | None, list[Env]] = {group.gpu_id: [] for group in kept}
    for env in snapshot.envs:
        if env.gpu_id in members:
            members[env.gpu_id].append(env)
    counts = _allot(snapshot, ctx, kept, members, lines - (len(kept) < len(groups)))
    items: list[Item] = []
    for group in kept:
        rows, count = members[group.gpu_id], counts[group.gpu_id]
        shown = _with_cursor(rows, count, ctx.cursor) if count else []
        items += [Head(group=group, opened=count > 0), *(Row(env=env) for env in shown)]
        if count and group.n_envs > len(shown):
            items.append(_fold(group, rows, len(shown), group.n_envs))
    if len(kept) < len(groups) and lines > 0:
        items.append(More(count=len(groups) - len(kept)))
    return Plan(items=tuple(items[: max(0, lines)]), walk=_walk(items, members))


def _allot(
    snapshot: Snapshot,
    ctx: Context,
    groups: tuple[Group, ...],
    members: dict[str | None, list[Env]],
    lines: int,
) -> dict[str | None, int]:
    """How many rows each lane gets: first those that are not OK, then the others, a row a lane in turn."""
    folds = ctx.ui.folds
    counts: dict[str | None, int] = {group.gpu_id: 0 for group in groups}
    every = {name: len(rows) for name, rows in members.items()}
    bad = {name: sum(env.status != "ok" for env in rows) for name, rows in members.items()}
    if snapshot.board.sort != "anomaly":
        bad = every
    all_fit = sum(_cost(group, every[group.gpu_id]) for group in groups) <= lines
    eager = [group for group in groups if bad[group.gpu_id] or all_fit] or list(groups)
    eager = [group for group in groups if folds.get(group.gpu_id, group in eager)]
    used = len(groups)
    requested = {name: 1 if folds.get(name) else 0 for name in every}
    for limits in (requested, bad, every):
        for group in _in_turn(eager, limits, counts):
            step = _cost(group, counts[group.gpu_id] + 1) - _cost(group, counts[group.gpu_id])
            if used + step > lines:
                return counts
            counts[group.gpu_id] += 1
            used += step
    return counts


def _in_turn(
    groups: list[Group], limits: dict[str | None, int], counts: dict[str | None, int]
) -> Iterator[Group]:
    while open_ones := [group for group in groups if counts[group.gpu_id] < limits[group.gpu_id]]:
        yield from open_ones


def _cost(group: Group, rows: int) -> int:
    """Lines of a lane that shows `rows` envs."""
    return 1 if rows == 0 else 1 + rows + (group.n_envs > rows)


def _with_cursor(rows: list[Env], count: int, cursor: Place | None) -> list[Env]:
    """The first `count` rows; a cursor below them takes the last place, so that the worst stay in sight."""
    under = [env for env in rows[count:] if env.env_id == cursor]
    return [*rows[: count - 1], *under] if under and count else rows[:count]


def _fold(group: Group | None, rows: list[Env], num_shown: int, num_envs: int) -> Fold:
    """What is not shown; all OK where also those are that the view did not even carry."""
    unseen = num_envs - len(rows)
    if group is None or unseen == 0:
        rest_ok = unseen == 0 or (bool(rows) and rows[-1].status == "ok")
    else:
        rest_ok = group.counts.get("ok", 0) - sum(env.status == "ok" for env in rows) == unseen
    all_ok = rest_ok and all(env.status == "ok" for env in rows[num_shown:])
    return Fold(group=group, count=num_envs - num_shown, all_ok=all_ok)


def _walk(items: list[Item], members: dict[str | None, list[Env]]) -> tuple[Place, ...]:
    """Rows in sight and closed lanes; within the last open lane also what it hides."""
    heads = [item for item in items if isinstance(item, Head)]
    last = next((head.group.gpu_id for head in reversed(heads) if head.opened), None)
    walk: list[Place] = []
    for item in items:
        match item:
            case Row(env=env):
                if env.gpu_id != last:
                    walk.append(env.env_id)
            case Head(group=group, opened=opened):
                if not opened:
                    walk.append(LaneAt(group.gpu_id))
                elif group.gpu_id == last:
                    walk += [env.env_id for env in members[last]]
            case Fold() | More():
                continue
            case _:
                assert_never(item)
    return tuple(walk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One layout of the board; widths in cells, 0 where a column is not there."""

    compact: bool
    env: int
    lane: int
    status: int
    why: int = 0
    value: str | None
    """`return` or `reward`."""
    value_width: int
    metric: int
    metric_head: str
    rent: int
    fps: int
    action: int
    chips: int
    chip: ChipSize
    heads: tuple[str, ...]
    """Slot labels over small chips; empty where chips carry their own label or none."""

    @property
    def fixed(self) -> int:
        """Cells of everything but `why`."""
        after = (self.value_width, self.metric, self.rent, self.fps, self.action, self.chips)
        return self.prefix - self.why + sum(width + 1 for width in after if width)

    @property
    def prefix(self) -> int:
        """Cells up to and with `why`."""
        return 8 + self.env + (self.lane + 1 if self.lane else 0) + self.status + self.why


def metric_word(snapshot: Snapshot, width: int = 5) -> str:
    """The metric's own short name; a metric without a name is the task's."""
    metric = snapshot.run.metric
    name = "" if metric is None else clean(metric.name)
    if name in ("", "metric"):
        return "task"
    return _SHORT_METRICS.get(name) or head_of(name, width)


def layout(snapshot: Snapshot, ctx: Context) -> Columns:
    """The columns at this width."""
    width = ctx.width
    if ctx.beside:
        return _beside(snapshot, width)
    columns = _all(snapshot, compact=ctx.compact)
    steps = (
        lambda c: replace(c, action=0),
        lambda c: replace(c, rent=0),
        lambda c: replace(c, fps=0),
        lambda c: replace(c, metric=0),
        lambda c: replace(c, status=4),
        lambda c: _with_dots(c, snapshot),
        lambda c: replace(c, value_width=0),
    )
    for give_way in steps:
        if width - columns.fixed >= LEAST_WHY:
            break
        columns = give_way(columns)
    return replace(columns, why=max(0, width - columns.fixed))


def _beside(snapshot: Snapshot, width: int) -> Columns:
    """Left of the drawer: id, status, why, value and dots."""
    columns = _all(snapshot, compact=False)
    value_width = min(5, columns.value_width)
    columns = replace(columns, metric=0, rent=0, fps=0, action=0, chips=0, heads=(), value_width=value_width)
    columns = _with_dots(columns, snapshot)
    if width - columns.fixed < LEAST_WHY_BESIDE:
        columns = replace(columns, chips=min(columns.chips, 6))
    return replace(columns, why=max(0, width - columns.fixed))


def _all(snapshot: Snapshot, *, compact: bool) -> Columns:
    reported = snapshot.board.columns
    value = next((name for name in ("return", "reward") if name in reported), None)
    acts = any(env.last_action for env in snapshot.envs)
    digits = len(str(max((snapshot.run.n_envs or 0, *(env.env_id for env in snapshot.envs)))))
    lanes = [cells(lane_word(group.gpu_id, compact=True)) for group in snapshot.board.groups]
    columns = Columns(
        compact=compact,
        env=max(4, digits + 1) if compact else max(5, digits + 2),
        lane=min(4, max(2, *lanes)) if compact and lanes else 0,
        status=4 if compact else 8 if snapshot.run.slots_enabled else 9,
        value=value,
        value_width=0 if value is None else 5 if compact else 6,
        metric=(4 if compact else 5) if "metric" in reported else 0,
        metric_head=metric_word(snapshot, 4 if compact else 5),
        rent=4 if "rent" in reported and not compact else 0,
        fps=4 if "fps" in reported else 0,
        action=(4 if compact else 10) if acts else 0,
        chips=0,
        chip=ChipSize.DOT,
        heads=(),
    )
    return _with_chips(columns, snapshot) if snapshot.run.slots_enabled else columns


def _with_chips(columns: Columns, snapshot: Snapshot) -> Columns:
    names = snapshot.run.slots
    if columns.compact or not names:
        return _with_dots(columns, snapshot)
    if all(env.slots.keys() <= set(names) for env in snapshot.envs):
        return replace(columns, chip=ChipSize.SMALL, chips=5 * len(names) - 1, heads=names)
    return replace(columns, chip=ChipSize.LABELLED, chips=3 * (ChipSize.LABELLED.value + 1) - 1)


def _with_dots(columns: Columns, snapshot: Snapshot) -> Columns:
    if not snapshot.run.slots_enabled:
        return columns
    most = max((len(env.slots) for env in snapshot.envs), default=len(snapshot.run.slots))
    wide = min(_DOTS, max(len(snapshot.run.slots), most))
    return replace(columns, chip=ChipSize.DOT, chips=max(6, wide), heads=())


def head(columns: Columns) -> list[Span]:
    """The line over the rows."""
    words = [" ", right("env", columns.env), " "]
    if columns.lane:
        words += ["on".ljust(columns.lane), " "]
    state = ("stat" if columns.status == 4 else "status").ljust(columns.status)
    words += [state, " anom ", "why".ljust(columns.why)]
    value = _NARROW.get(columns.value or "") if columns.value_width < 6 else columns.value
    titles = (
        (columns.value_width, value), (columns.metric, columns.metric_head), (columns.rent, "rent"),
        (columns.fps, "fps"),
    )  # fmt: skip
    words += [" " + right(title or "", width) for width, title in titles if width]
    if columns.action:
        words.append(" " + ("act" if columns.compact else "action").ljust(columns.action))
    if columns.heads:
        words.append(" " + " ".join(cut(clean(name), 4).ljust(4) for name in columns.heads))
    elif columns.chips:
        words.append(" " + "slots".ljust(columns.chips)[: max(5, columns.chips)])
    return [Span("".join(words), Role.MUTED)]


def group_values(group: Group, columns: Columns, *, old: bool) -> list[Span]:
    """The medians of a lane in the same columns."""
    value = group.median_return if columns.value == "return" else None
    return _values((value, group.median_metric, group.median_rent, group.median_fps), columns, old=old)


def _values(
    values: tuple[float | None, float | None, float | None, float | None], columns: Columns, *, old: bool
) -> list[Span]:
    places = (
        (columns.value_width, "+.2f"), (columns.metric, ".2f"), (columns.rent, ".2f"), (columns.fps, ".0f"),
    )  # fmt: skip
    spans = []
    for place, (value, (width, spec)) in enumerate(zip(values, places, strict=True)):
        if width:
            spans += [Span(" "), _value(value, spec, width, old=old, bare=columns.compact and place > 0)]
    return spans


def _value(value: float | None, spec: str, width: int, *, old: bool, bare: bool) -> Span:
    if value is None:
        return Span(right(ABSENT, width), Role.MUTED)
    text = number(value, spec, width - old)
    text = no_zero(text) if bare else text
    return Span(right(f"~{text}", width), Role.STALE) if old else Span(right(text, width))


def line(env: Env, columns: Columns, snapshot: Snapshot, ctx: Context, *, here: bool) -> Line:
    """The row of an env; `here` is the cursor."""
    word = status(env.status, compact=columns.status == 4)
    pinned = env.env_id in ctx.ui.pinned
    spans = [
        Span(">" if here else " "),
        Span(right(str(env.env_id), columns.env)),
        Span("*", Role.INFO) if pinned else Span(" "),
    ]
    if columns.lane:
        spans.append(Span(left(lane_word(env.gpu_id, compact=True), columns.lane) + " ", Role.MUTED))
    calm = Role.MUTED if env.status == "ok" else Role.TEXT
    value = env.episode_return if columns.value == "return" else env.reward
    spans += [
        Span(left(word.text, max(columns.status, len(word.text))), word.role),
        Span(_score(env.anomaly.score, len(word.text) - columns.status) + " ", calm),
        Span(left(reasons(env.anomaly.reasons, columns.why), columns.why)),
        *_values((value, env.metric, env.rent, env.fps), columns, old=ctx.fresh.old or env.stale),
    ]
    if columns.action:
        op, _, where = clean(env.last_action or ABSENT).partition(" ")
        word_of = operation(op)[:4] if columns.compact else operation(op)
        action = f"{left(word_of, 5)} {where}" if where and not columns.compact else word_of
        spans.append(Span(" " + left(action, columns.action)))
    if columns.chips:
        spans += [Span(" "), *_chips(env.slots, columns, snapshot.run)]
    drawn = fit(spans, ctx.width)
    return tuple(Span(span.text, Role.ACCENT) for span in drawn) if here else drawn


def _score(score: float, over: int) -> str:
    """The anomaly; a status that is longer than its column takes the cells before it."""
    room = 5 - max(0, over)
    return right(number(score, ".1f", min(4, room - 1)), room)


def _chips(slots: dict[str, Slot], columns: Columns, run: Run) -> list[Span]:
    """Each slot with its label, or a dot where there is no room for that."""
    if columns.heads:
        chips = [chip(name, slots.get(name), ChipSize.SMALL, run.blueprints) for name in columns.heads]
        return [span for one in chips for span in (one, Span(" "))][:-1]
    names = [name for name in run.slots if name in slots]
    names += [name for name in slots if name not in run.slots]
    wide = len(names) * (ChipSize.LABELLED.value + 1) - 1
    if columns.chip is ChipSize.LABELLED and wide <= columns.chips:
        chips = [chip(name, slots[name], ChipSize.LABELLED, run.blueprints) for name in names]
        return list(fit([span for one in chips for span in (one, Span(" "))][:-1], columns.chips))
    return _dots(slots, names, columns.chips)


def _dots(slots: dict[str, Slot], names: list[str], room: int) -> list[Span]:
    more = []
    if len(names) > room:
        awake = [name for name in names if parse_stage(slots[name].stage) is not Stage.DORMANT]
        names, total = awake[: room - 4], len(names)
        more = [Span(f"+{total - len(names)}", Role.MUTED)]
    dots = [chip(name, slots[name], ChipSize.DOT, {}) for name in names]
    return list(fit([*dots, *more], room))
