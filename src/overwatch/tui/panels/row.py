"""One row of the flight board: an env with its reasons, numbers and chips; drawn anew when it changed."""

from dataclasses import dataclass

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import Env, Slot
from overwatch.tui.cache import kept
from overwatch.tui.grammar import ABSENT, ChipSize, chip, lane_word, number, operation, reasons, status
from overwatch.tui.panels import columns as cols
from overwatch.tui.panels.columns import Columns
from overwatch.tui.text import Line, Role, Span, clean, fit, left, right


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
        *cols.env_values(env, columns, old=rows.old),
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
