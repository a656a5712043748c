"""`heat_map`: envs and lanes over time to the answer. Only selects, joins and formats; cheap and pure."""

from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from overwatch.catalog.bounds import ROWS
from overwatch.diagnose import Judged
from overwatch.diagnose.liveness import STALE
from overwatch.events import Origin
from overwatch.projection.board import choose
from overwatch.projection.rows import BoardRows
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.heat import Cell, HeatMap, HeatQuery, HeatRow
from overwatch.state import RunState
from overwatch.state.arrays import Ints
from overwatch.state.heat import BY_MARK, HIGHEST, MARKS, VERDICTS, Cells, Grid, Heat, Scored

_LETTERS: Final = ("abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "0123456789:;<=>@[]^{|}~")
"""Of verdicts without a mark, with a warning, and critical ones."""
ENV_CELLS: Final = MappingProxyType(
    {
        " ": Cell(text="not there"),
        "?": Cell(text="not known", mark="?"),
        "0": Cell(text="ok"),
        **{str(n): Cell(text=f"score up to {n}", mark="!") for n in range(1, HIGHEST)},
        str(HIGHEST): Cell(text=f"score above {HIGHEST - 1}", mark="!!"),
        "x": Cell(text="crashed", mark="!!"),
    }
)
"""In the order of the codes."""


def _lane_cells() -> dict[int, tuple[str, Cell]]:
    """Each code of a lane with its character."""
    found = {0: (" ", Cell(text="not there"))}
    for level, (mark, letters) in enumerate(zip(MARKS, _LETTERS, strict=True)):
        for place, row in enumerate(reversed(ROWS)):
            word = row.state.value
            letter, shown = letters[len(ROWS) - 1 - place], "?" if word == "unknown" else mark
            found[level * BY_MARK + VERDICTS[word]] = letter, Cell(text=word, mark=shown)
    return found


_LANE_CELLS: Final = _lane_cells()
LANE_CELLS: Final = MappingProxyType(dict(_LANE_CELLS.values()))


def _table(characters: dict[int, str]) -> np.ndarray:
    """A look-up table from codes to characters."""
    table = np.full(256, ord("?"), dtype=np.uint8)
    for code, character in characters.items():
        table[code] = ord(character)
    return table


_CHARACTERS: Final = {
    "env": _table(dict(enumerate(ENV_CELLS))),
    "gpu": _table({code: character for code, (character, _) in _LANE_CELLS.items()}),
}
_LEGENDS: Final = {"env": dict(ENV_CELLS), "gpu": dict(LANE_CELLS)}


def record(heat: Heat, snapshot: Snapshot) -> None:
    """Add a snapshot of a run, where only snapshots of it are left."""
    now = int(snapshot.time * 1e9)
    is_known = snapshot.link.state not in STALE
    ids = np.array([env.env_id for env in snapshot.envs], dtype=np.int64)
    scores = np.array([env.anomaly.score for env in snapshot.envs])
    crashed = np.array(
        [place for place, env in enumerate(snapshot.envs) if env.status == "crashed"], np.int64
    )
    heat.take_envs(now, Scored(ids, now, scores, crashed, is_known))
    bounds = {lane.gpu_id: lane.bound for lane in snapshot.system.gpus if lane.bound is not None}
    heat.take_lanes(now, {name: (bound.state, bound.mark) for name, bound in bounds.items()})


def of_log(run_id: str, heat: Heat, query: HeatQuery) -> HeatMap:
    """As `heat_map`, where only snapshots are left: nothing is known of lanes and machines beside them."""
    return heat_map(RunState(origin=Origin(run_id=run_id, ours=True)), None, heat, query)


class _Span(NamedTuple):
    """Columns of a grid, some together."""

    first: int
    end: int
    each: int


def heat_map(state: RunState, judged: Judged | None, heat: Heat, query: HeatQuery) -> HeatMap:
    """What was asked for, of one run; without a judgement a filter passes nothing."""
    is_lanes = query.of == "gpu"
    grid = heat.lanes if is_lanes else heat.envs
    span = _span(grid, query)
    known = _lanes(state, heat) if is_lanes else _envs(state, judged, heat, query.filter)
    if query.sort == "worst" and known.size:
        known = known[_worst_first(_joined(grid, span, known))]
    shown = known[query.offset : query.offset + query.rows]
    rows = _rows(state, heat, query, _joined(grid, span, shown), shown)
    num_columns = -(-(span.end - span.first) // span.each)
    if not num_columns:
        return HeatMap(run_id=state.origin.run_id, of=query.of, total=int(known.size), offset=query.offset)
    since, step = grid.since + span.first * grid.step, span.each * grid.step
    return HeatMap(
        run_id=state.origin.run_id,
        of=query.of,
        since=since / 1e9,
        until=(since + num_columns * step) / 1e9,
        step_s=step / 1e9,
        columns=num_columns,
        total=int(known.size),
        offset=query.offset,
        let_go=0 if is_lanes else heat.let_go,
        rows=rows,
        legend=_LEGENDS[query.of],
    )


def _span(grid: Grid, query: HeatQuery) -> _Span:
    """The columns within the time, as many together as make no more than are wanted.

    They begin at a multiple of how many are together, so that they stay the same as more come.
    """
    first = 0 if query.since is None else int((query.since * 1e9 - grid.since) // grid.step)
    last = grid.used - 1 if query.until is None else int((query.until * 1e9 - grid.since) // grid.step)
    first, end = max(0, first), min(grid.used, last + 1)
    if first >= end:
        return _Span(0, 0, 1)
    each = -(-(end - first) // query.columns)
    while -(-(end - first // each * each) // each) > query.columns:
        each += 1
    return _Span(first // each * each, end, each)


def _joined(grid: Grid, span: _Span, rows: Ints) -> Cells:
    """The worst of each group of columns of these rows, shape (columns, rows)."""
    cells = grid.cells[span.first : span.end, rows]
    if span.each == 1 or not cells.size:
        return cells
    worst: Cells = np.maximum.reduceat(cells, np.arange(0, cells.shape[0], span.each), axis=0)
    return worst


def _worst_first(cells: Cells) -> Ints:
    """Places of rows by their worst cell, then by how many are as bad."""
    if not cells.size:
        return np.arange(cells.shape[1])
    worst = cells.max(axis=0)
    order: Ints = np.lexsort((-(cells == worst).sum(axis=0), -worst.astype(np.int64)))
    return order


def _envs(state: RunState, judged: Judged | None, heat: Heat, text: str) -> Ints:
    """Rows of the envs that pass the filter, in order of their ids."""
    order: Ints = np.argsort(heat.ids, kind="stable")
    if not text:
        return order
    if judged is None:
        return order[:0]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        passing = choose(BoardRows(state, judged), View(filter=text)).order
    return order[np.isin(heat.ids[order], state.envs.ids[passing])]


def _lanes(state: RunState, heat: Heat) -> Ints:
    """Rows of the lanes, in the order in which the run named them."""
    places = {name: place for place, name in enumerate(state.lane_names.words)}
    ordered = sorted(range(len(heat.names)), key=lambda row: (places.get(heat.names[row], len(places)), row))
    return np.array(ordered, dtype=np.int64)


def _rows(state: RunState, heat: Heat, query: HeatQuery, cells: Cells, shown: Ints) -> tuple[HeatRow, ...]:
    """The rows, each with its characters."""
    wide = cells.shape[0]
    text = _CHARACTERS[query.of][cells.T].tobytes().decode("ascii")
    lines = [text[place * wide : (place + 1) * wide] for place in range(shown.size)]
    if query.of == "gpu":
        names = [heat.names[row] for row in shown.tolist()]
        nodes = state.lane_ids.nodes
        return tuple(
            HeatRow(id=safe(name), group=safe_or_none(nodes.get(name)), cells=line)
            for name, line in zip(names, lines, strict=True)
        )
    ids = heat.ids[shown]
    groups = _groups(state, ids)
    return tuple(
        HeatRow(id=env_id, group=group, cells=line)
        for env_id, group, line in zip(ids.tolist(), groups, lines, strict=True)
    )


def _groups(state: RunState, ids: Ints) -> list[str | None]:
    """Lane of each env; `None` for one that is not there, or is on none."""
    envs = state.envs
    names = [*(safe(name) for name in state.lane_names.words), None]
    by_id = dict(zip(envs.ids[: envs.n].tolist(), envs.lane[: envs.n].tolist(), strict=True))
    return [names[by_id.get(env_id, -1)] for env_id in ids.tolist()]
