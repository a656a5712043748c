"""The board as a map: a row an env, a cell a second or more, the shade its anomaly; worst envs first.

Must not know where samples come from.
"""

from collections.abc import Iterable
from itertools import groupby

from overwatch.catalog.durations import duration
from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context, Place
from overwatch.tui.grammar import BARS, lane_word, status
from overwatch.tui.memory import STEPS, Heat, Sample
from overwatch.tui.panels.board import Drawn
from overwatch.tui.panels.plan import worst_first
from overwatch.tui.text import Line, Role, Span, blank, clean, cut_middle, fit, left, right, rule

_START = 17
"""Cells before the first of a row."""
_FULL = 10.0
"""Anomaly of a full cell: a crash."""
_ROLES = {"crashed": Role.CRIT, "diverging": Role.CRIT, "stalled": Role.WARN, "degraded": Role.WARN}


def lanes(snapshot: Snapshot, heat: Heat, ctx: Context, rows: int) -> Drawn:
    """The same of GPUs: the shade is the least utilization of each while, the colour what held them back."""
    wide, step = max(10, ctx.width - _START - 1), ctx.ui.heat_step
    note = f"least utilization, one cell {step}s, newest right · +/- zoom · G board"
    lines = [rule("HEATMAP GPU", [Span(note, Role.MUTED)], ctx.width)]
    gpus = snapshot.system.gpus
    shown = gpus[: max(0, rows - 2)]
    for lane in shown:
        bound = "" if lane.bound is None else lane.bound.state
        head = Span(f" {left(cut_middle(clean(lane.gpu_id), 6), 7)}{left(clean(bound), _START - 9)} ")
        samples = heat.of_lane(lane.gpu_id, int(snapshot.time), wide, step)
        lines.append(fit([head, *_drawn(map(_share, samples))], ctx.width))
    if len(gpus) > len(shown) and len(lines) > 1:
        lines[-1] = fit([Span(f"  +{len(gpus) - len(shown) + 1} more lanes", Role.MUTED)], ctx.width)
    lines += [blank(ctx.width)] * (rows - 1 - len(lines))
    lines.append(_axis(wide * step, ctx))
    return Drawn(lines=lines[:rows], walk=(), cursor=None, targets=(None,) * rows)


def _share(sample: Sample | None) -> tuple[str, Role]:
    """A cell for how busy a lane was at its least."""
    if sample is None:
        return " ", Role.MUTED
    level = min(len(BARS) - 1, max(0, int(sample.score * len(BARS))))
    return BARS[level], {"!!": Role.CRIT, "!": Role.WARN}.get(sample.status, Role.TEXT)


def _axis(seconds: int, ctx: Context) -> Line:
    text = f"{'':{_START}}{duration(seconds)} ago"
    return fit([Span(left(text, ctx.width - 5), Role.MUTED), Span("now", Role.MUTED)], ctx.width)


def render(snapshot: Snapshot, heat: Heat, ctx: Context, rows: int) -> Drawn:
    """Exactly `rows` lines with title and axis; the places of the cursor, and where it is."""
    wide = max(10, ctx.width - _START - 1)
    step = ctx.ui.heat_step
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
        lines.append(fit([*head, *_drawn(map(_cell, heat.of(env.env_id, now, wide, step)))], ctx.width))
    lines += [blank(ctx.width)] * (rows - 1 - len(lines))
    lines.append(_axis(wide * step, ctx))
    targets = (None, *(env.env_id for env in shown), *[None] * rows)
    return Drawn(lines=lines[:rows], walk=walk, cursor=cursor, targets=targets[:rows])


def _drawn(cells: Iterable[tuple[str, Role]]) -> list[Span]:
    """Cells of one colour together."""
    return [Span("".join(bar for bar, _ in run), role) for role, run in groupby(cells, lambda cell: cell[1])]


def _cell(sample: Sample | None) -> tuple[str, Role]:
    if sample is None:
        return " ", Role.MUTED
    level = min(len(BARS) - 1, int(sample.score / _FULL * len(BARS)))
    return BARS[level], _ROLES.get(sample.status, Role.MUTED)


def zoomed(step: int, by: int) -> int:
    """The next step of the zoom; stays at the ends."""
    place = STEPS.index(step) if step in STEPS else 0
    return STEPS[min(max(0, place + by), len(STEPS) - 1)]
