"""The board as a map: a row an env, a cell a second or more, the shade its anomaly; worst envs first.

Must not know where samples come from.
"""

from collections.abc import Sequence
from itertools import groupby

from overwatch.catalog.durations import duration
from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context, Place
from overwatch.tui.grammar import BARS, lane_word, status
from overwatch.tui.heat import STEPS, Heat, Sample
from overwatch.tui.panels.board import Drawn
from overwatch.tui.panels.plan import worst_first
from overwatch.tui.text import Role, Span, blank, fit, left, right, rule

_FULL = 10.0
"""Anomaly of a full cell: a crash."""
_ROLES = {"crashed": Role.CRIT, "diverging": Role.CRIT, "stalled": Role.WARN, "degraded": Role.WARN}


def render(snapshot: Snapshot, heat: Heat, ctx: Context, rows: int) -> Drawn:
    """Exactly `rows` lines with title and axis; the places of the cursor, and where it is."""
    start = 17
    wide = max(10, ctx.width - start - 1)
    step = ctx.ui.heat_step
    seconds = wide * step
    note = f"anomaly, one cell {step}s, newest right · +/- zoom · H board"
    lines = [rule("HEATMAP", [Span(note, Role.MUTED)], ctx.width)]
    room = max(0, rows - 2)
    envs = worst_first(snapshot.envs) if snapshot.board.sort == "anomaly" else list(snapshot.envs)
    walk: tuple[Place, ...] = tuple(env.env_id for env in envs)
    cursor = ctx.cursor if ctx.cursor in walk else next(iter(walk), None)
    at = walk.index(cursor) if cursor is not None else 0
    first = max(0, min(at - room + 1, len(walk) - room)) if at >= room else 0
    now = int(snapshot.time)
    shown = envs[first : first + room]
    for env in shown:
        mark = ">" if env.env_id == cursor else " "
        lane = "" if env.gpu_id is None else lane_word(env.gpu_id, compact=True)
        head = [
            Span(f"{mark}{right(str(env.env_id), 5)} {left(lane, 4)} "),
            Span(left(status(env.status, compact=True).text, 4), status(env.status, compact=True).role),
            Span(" "),
        ]
        lines.append(fit([*head, *_cells(heat.of(env.env_id, now, wide, step))], ctx.width))
    lines += [blank(ctx.width)] * (rows - 1 - len(lines))
    axis = f"{'':{start}}{duration(seconds)} ago"
    lines.append(fit([Span(left(axis, ctx.width - 5), Role.MUTED), Span("now", Role.MUTED)], ctx.width))
    targets = (None, *(env.env_id for env in shown), *[None] * rows)
    return Drawn(lines=lines[:rows], walk=walk, cursor=cursor, targets=targets[:rows])


def _cells(samples: Sequence[Sample | None]) -> list[Span]:
    """One cell a sample; blank where there was none."""
    drawn = (_cell(sample) for sample in samples)
    return [Span("".join(bar for bar, _ in run), role) for role, run in groupby(drawn, lambda cell: cell[1])]


def _cell(sample: Sample | None) -> tuple[str, Role]:
    if sample is None:
        return " ", Role.MUTED
    level = min(len(BARS) - 1, int(sample.score / _FULL * len(BARS)))
    return BARS[level], _ROLES.get(sample.status, Role.MUTED)


def zoomed(step: int, by: int) -> int:
    """The next step of the zoom; stays at the ends."""
    place = STEPS.index(step) if step in STEPS else 0
    return STEPS[min(max(0, place + by), len(STEPS) - 1)]
