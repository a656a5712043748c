"""Help: the keys, from the key table; the legend of statuses, stages and marks; sort and filter now."""

from overwatch.catalog import Stage
from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import STATUS_WORDS, severity, stage_role, status
from overwatch.tui.keys import Key, Mode, known
from overwatch.tui.panels import keyline
from overwatch.tui.text import Line, Role, Span, blank, clean, fit, left, rule

_MARKS = (
    (">", "the cursor"),
    ("~", "an old value"),
    ("–", "never measured"),
    ("+2", "two more that had no room"),
    ("▾ ▸", "a lane that is open, closed"),
    ("! !! ?", "warning, critical, abstains"),
)
_FILTERS = (
    ("env=17 gpu=0", "either of env=3,9; all of env=0-31"),
    ("status=degraded", "the beginning of the word is enough"),
    ("score>3", "the anomaly; also return< metric> fps<"),
    ("!status=ok", "turned around; of several terms, all"),
    ("node=h1 rank=3", "by the machine or rank of the lane"),
    ("cuda", "a word anywhere: reasons, action, lane"),
)
_SLOT_FILTERS = (
    ("blueprint=at", "growing it, by name or code"),
    ("stage=pruned", "a slot in that stage; slot=r0c0: which"),
)
_HEADINGS = {
    Mode.BOARD: "Board and everywhere", Mode.FEED: "With the feed", Mode.DRAWER: "In the drawer",
    Mode.CURVES: "On the page of curves",
    Mode.RUNS: "In the list of runs", Mode.FINDINGS: "In the list of findings", Mode.POLICY: "In the policy",
    Mode.COMPARE: "Beside another run", Mode.CONFIG: "Configuration",
}  # fmt: skip
_TWO_COLUMNS = 120
"""Cells from which on texts stand side by side."""


def render(snapshot: Snapshot | None, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines, scrolled; a run without slots has no word about them."""
    lines = text(snapshot, ctx)
    room = ctx.height - 1
    at = min(ctx.ui.scroll, most_scroll(snapshot, ctx))
    shown = lines[at : at + room]
    if len(lines) > room > 0:
        more = len(lines) - at - room
        note = f"{more} more lines: j" if more > 0 else "the end"
        shown = [*shown[: room - 1], fit([Span(f" {note}", Role.MUTED)], ctx.width)]
    return [*shown, *[blank(ctx.width)] * (room - len(shown)), keyline.render(snapshot, ctx)]


def most_scroll(snapshot: Snapshot | None, ctx: Context) -> int:
    """How far the text can be scrolled."""
    over = len(text(snapshot, ctx)) - (ctx.height - 1)
    return over + 1 if over > 0 else 0


def text(snapshot: Snapshot | None, ctx: Context) -> list[Line]:
    """All lines."""
    slots = snapshot is not None and snapshot.run.slots_enabled
    lines = [rule("KEYS", [Span("Esc back", Role.MUTED)], ctx.width)]
    if snapshot is not None:
        lines.append(_current(snapshot, ctx))
    keys = known(ctx.ui.keys, slots=slots, replay=ctx.ui.playback is not None)
    lines += _columns([_keys(mode, keys) for mode in _HEADINGS], ctx.width)
    lines.append(rule("FILTER", [], ctx.width))
    lines += _table((*_FILTERS, *(_SLOT_FILTERS if slots else ())), 17, ctx.width)
    lines.append(rule("MARKS", [], ctx.width))
    lines.append(_statuses(ctx.width))
    lines += _table(_MARKS, 10, ctx.width)
    if slots:
        note = [Span("the fuller the circle, the further the seed", Role.MUTED)]
        lines += [rule("STAGES", note, ctx.width), *_stages(ctx.width)]
    return lines


def _current(snapshot: Snapshot, ctx: Context) -> Line:
    board = snapshot.board
    way = "falling" if board.direction == "desc" else "rising"
    toggles = ", ".join(sorted(ctx.ui.toggles)) or "all"
    words = f" now: sort {clean(board.sort)}, {way} · filter {clean(board.filter or 'none')} · feed {toggles}"
    return fit([Span(words, Role.INFO)], ctx.width)


def _keys(mode: Mode, keys: tuple[Key, ...]) -> list[list[Span]]:
    """One panel's own keys under its name; keys that mean the same in several stand with the first."""
    order = list(_HEADINGS)
    before = order[: order.index(mode)]
    own = {mode, Mode.FULL} if mode is Mode.DRAWER else {mode}
    rows = [
        key
        for key in keys
        if key.shown and own & set(key.modes) and not any(other in key.modes for other in before)
    ]
    if not rows:
        return []
    return [
        [Span(_HEADINGS[mode], Role.INFO)],
        *([Span(left(key.shown, 7), Role.TITLE), Span(key.does)] for key in rows),
    ]


def _columns(blocks: list[list[list[Span]]], width: int) -> list[Line]:
    """The first block at the left, each other one under the shorter column where there is room for two."""
    first, other = list(blocks[0]), list[list[Span]]()
    for block in blocks[1:]:
        shorter = first if width >= _TWO_COLUMNS and len(first) < len(other) else other
        shorter += block
    if width < _TWO_COLUMNS:
        return [fit([Span(" "), *line], width) for line in (*first, *other)]
    half = width // 2
    rows = max(len(first), len(other))
    both = zip(first + [[]] * (rows - len(first)), other + [[]] * (rows - len(other)), strict=True)
    return [fit([*fit([Span(" "), *a], half), *b], width) for a, b in both]


def _table(rows: tuple[tuple[str, str], ...], wide: int, width: int) -> list[Line]:
    """Term and meaning, two to a line where there is room."""
    cell = width // 2 if width >= _TWO_COLUMNS else width
    cells = [fit([Span(" " + left(term, wide), Role.TITLE), Span(text)], cell) for term, text in rows]
    step = 2 if width >= _TWO_COLUMNS else 1
    return [fit([s for one in cells[i : i + step] for s in one], width) for i in range(0, len(cells), step)]


def _statuses(width: int) -> Line:
    spans = [Span(" ")]
    for word in STATUS_WORDS:
        spans += [status(word, compact=False), Span("  ")]
    spans.append(Span("·  ", Role.MUTED))
    for word in ("critical", "warning", "info", "ok"):
        spans += [severity(word), Span("  ")]
    return fit(spans, width)


def _stages(width: int) -> list[Line]:
    stages = list(Stage)
    half = (len(stages) + 1) // 2
    return [fit([s for stage in stages[i::half] for s in _stage(stage)], width) for i in range(half)]


def _stage(stage: Stage) -> list[Span]:
    return [Span(f" {stage.glyph} ", stage_role(stage)), Span(left(stage.label, 24))]
