"""Rows of the flight board: which columns there are at this width, what gives way, and each env in them.

Columns depend on the terminal and on what the run reports, never on the values of the moment. A row is drawn
anew when it changed.
"""

from dataclasses import dataclass, replace
from typing import Final

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import Env, Group, Slot, Snapshot
from overwatch.tui.cache import kept
from overwatch.tui.context import Context
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
        before = 1 + self.env + 1 + (self.lane + 1 if self.lane else 0) + self.status + 1 + 4 + 1
        after = (self.value_width, self.metric, self.rent, self.fps, self.action, self.chips)
        return before + sum(width + 1 for width in after if width)

    @property
    def prefix(self) -> int:
        """Cells up to and with `why`."""
        return self.fixed + self.why - self._after()

    def _after(self) -> int:
        after = (self.value_width, self.metric, self.rent, self.fps, self.action, self.chips)
        return sum(width + 1 for width in after if width)


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
    full = _all(snapshot, compact=False)
    columns = replace(
        full, metric=0, rent=0, fps=0, action=0, chips=0, heads=(), value_width=min(5, full.value_width)
    )
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
    known = set(names)
    alike = all(env.slots.keys() <= known for env in snapshot.envs)
    if columns.compact or not names:
        return _with_dots(columns, snapshot)
    if alike:
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
    words += [
        ("stat" if columns.status == 4 else "status").ljust(columns.status),
        " anom ",
        "why".ljust(columns.why),
    ]
    titles = (
        (
            columns.value_width,
            _NARROW.get(columns.value or "") if columns.value_width < 6 else columns.value,
        ),
        (columns.metric, columns.metric_head),
        (columns.rent, "rent"),
        (columns.fps, "fps"),
    )
    words += [" " + right(title or "", width) for width, title in titles if width]
    if columns.action:
        words.append(" " + ("act" if columns.compact else "action").ljust(columns.action))
    if columns.heads:
        words.append(" " + " ".join(cut(clean(name), 4).ljust(4) for name in columns.heads))
    elif columns.chips:
        words.append(" " + "slots".ljust(columns.chips)[: max(5, columns.chips)])
    return [Span("".join(words), Role.MUTED)]


def env_values(env: Env, columns: Columns, *, old: bool) -> list[Span]:
    """The numbers of an env in their columns."""
    value = env.episode_return if columns.value == "return" else env.reward
    stale = old or env.stale
    return _values((value, env.metric, env.rent, env.fps), columns, old=stale)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the rows of one board have in common."""

    columns: Columns
    width: int
    codes: dict[str, str]
    """Two letters of each blueprint."""
    slots: tuple[str, ...]
    """The run's slots, in their order."""
    old: bool
    """Values are marked as old."""


@kept
def shared(_: str, rows: Rows) -> Rows:
    """The same object for equal ones, so that rows need not compare all of it."""
    return rows


@kept
def line(env_id: int, env: Env, rows: Rows, here: bool, pinned: bool) -> Line:  # noqa: FBT001 (kept by position)
    """The row of an env; `here` is the cursor, `pinned` the user's mark."""
    columns = rows.columns
    word = status(env.status, compact=columns.status == 4)
    spans = [
        Span(">" if here else " "),
        Span(right(str(env_id), columns.env)),
        Span("*", Role.INFO) if pinned else Span(" "),
    ]
    if columns.lane:
        spans.append(Span(left(lane_word(env.gpu_id, compact=True), columns.lane) + " ", Role.MUTED))
    calm = Role.MUTED if env.status == "ok" else Role.TEXT
    spans += [
        Span(left(word.text, max(columns.status, len(word.text))), word.role),
        Span(_score(env.anomaly.score, len(word.text) - columns.status) + " ", calm),
        Span(left(reasons(env.anomaly.reasons, columns.why), columns.why)),
        *env_values(env, columns, old=rows.old),
    ]
    if columns.action:
        spans.append(Span(" " + _action(env.last_action, columns)))
    if columns.chips:
        spans += [Span(" "), *_chips(env_id, env.slots, rows)]
    drawn = fit(spans, rows.width)
    return tuple(Span(span.text, Role.ACCENT) for span in drawn) if here else drawn


def _score(score: float, over: int) -> str:
    """The anomaly; a status that is longer than its column takes the cells before it."""
    room = 5 - max(0, over)
    return right(number(score, ".1f", min(4, room - 1)), room)


def _action(action: str | None, columns: Columns) -> str:
    op, _, where = (clean(action or ABSENT)).partition(" ")
    if columns.compact:
        return left(operation(op)[:4], columns.action)
    return left(f"{left(operation(op), 5)} {where}" if where else operation(op), columns.action)


@kept
def _chips(_: int, slots: dict[str, Slot], rows: Rows) -> list[Span]:
    """The slots, which change less often than the numbers beside them."""
    columns = rows.columns
    if columns.heads:
        chips = [chip(name, slots.get(name), ChipSize.SMALL, rows.codes) for name in columns.heads]
        return [span for one in chips for span in (one, Span(" "))][:-1]
    known = [name for name in rows.slots if name in slots]
    names = known + [name for name in slots if name not in rows.slots]
    wide = len(names) * (ChipSize.LABELLED.value + 1) - 1
    if columns.chip is ChipSize.LABELLED and wide <= columns.chips:
        chips = [chip(name, slots[name], ChipSize.LABELLED, rows.codes) for name in names]
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
