"""The flight board: which envs a view shows, in its order, lane by lane, and what is added up of them.

Selects, cuts and formats what `diagnose` ranked and added up; only what a filter leaves is added up here.
Works on whole columns, so that a filter over tens of thousands of envs costs a tick little. A filter that
cannot be read filters nothing: what takes one from a user checks it first. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np

from overwatch.catalog import parse_stage
from overwatch.catalog.stages import Stage
from overwatch.diagnose.anomaly import STATUSES
from overwatch.projection.filtering import COMPARE, LANE_KEYS, SLOT_KEYS, FilterError, Term, parse
from overwatch.projection.rows import UNKNOWN, WORDS, BoardRows, env_views, number
from overwatch.projection.system import lane_anomaly
from overwatch.projection.text import safe
from overwatch.snapshot import Aggregates, BestEpisode, Board, Env, Group, LaneAggregates, View
from overwatch.state.arrays import Floats, Ints
from overwatch.state.places import Mask, num_of
from overwatch.state.rollups import middles_by
from overwatch.state.run import Names, RunState

_SHOWN: Final = (*range(len(STATUSES) - 1, -1, -1), UNKNOWN)
"""Worst first."""
_STAGES: Final = tuple((stage.value, stage.code) for stage in Stage)
_UNKNOWN_STAGE: Final = Stage.UNKNOWN.value
SORTS: Final = ("anomaly", "env", "return", "reward", "metric", "fps")
READ_REASONS: Final = 1024
"""A searched word is looked for in the reasons of so many of the worst envs."""

Wanted: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The envs of one view."""

    order: Ints
    """Rows in the order of the view, all that pass the filter."""
    mask: Mask | None
    """Whether an env passes, shape (n,); absent where all do, without a filter."""
    filter: str | None
    """The filter that was applied; absent where there is none."""


def choose(rows: BoardRows, view: View) -> Chosen:
    """The envs that pass the view's filter, in its order."""
    order = _sorted(rows, view)
    try:
        terms = parse(view.filter)
    except FilterError:
        terms = ()
    if not terms:
        return Chosen(order=order, mask=None, filter=None)
    mask = _passing(rows, terms)
    return Chosen(order=order[mask[order]], mask=mask, filter=view.filter)


def _sorted(rows: BoardRows, view: View) -> Ints:
    """Rows by the view's key; ties keep the order by anomaly, and what has no value comes last."""
    if view.sort == "anomaly":
        return rows.order if view.descending else rows.order[::-1]
    columns: dict[str, Floats] = {
        "env": rows.state.envs.ids[: rows.state.envs.n].astype(np.float64), **_numbers(rows)
    }  # fmt: skip
    values = columns[view.sort][rows.order] if view.sort in columns else np.zeros(rows.order.size)
    known = np.isfinite(values)
    keys = np.where(known, -values if view.descending else values, np.inf)
    sorted_rows: Ints = rows.order[np.lexsort((keys, ~known))]
    return sorted_rows


def _numbers(rows: BoardRows) -> dict[str, Floats]:
    return {
        "score": rows.anomalies.scores, "return": rows.returns, "reward": rows.reward,
        "metric": rows.metric, "fps": rows.fps,
    }  # fmt: skip


def _passing(rows: BoardRows, terms: tuple[Term, ...]) -> Mask:
    mask = np.ones(rows.state.envs.n, dtype=np.bool_)
    for term in terms:
        if term.key not in SLOT_KEYS:
            mask &= _matches(rows, term) != term.negated
    slot_terms = tuple(term for term in terms if term.key in SLOT_KEYS)
    if slot_terms:
        mask &= _slots_match(rows, slot_terms)
    return mask


def _matches(rows: BoardRows, term: Term) -> Mask:
    n = rows.state.envs.n
    if term.key is None:
        return _found(rows, term.values[0])
    if term.key == "env":
        ids = rows.state.envs.ids[:n]
        named = np.zeros(n, dtype=np.bool_)
        for first, last in term.ranges:
            named |= (ids >= first) & (ids <= last)
        return named
    if term.key in LANE_KEYS:
        return _coded(
            rows.state.envs.lane[:n], rows.state.lane_names, lambda name: _is_lane(rows, name, term)
        )
    if term.key == "status":
        return rows.of_status(lambda word: word in term.values)
    values = _numbers(rows)[term.key]
    hits_of = COMPARE[term.sign]
    compared: Mask = np.asarray(hits_of(values, term.number), dtype=np.bool_)  # type: ignore[arg-type]  # operators take arrays
    return compared & np.isfinite(values)


def _is_lane(rows: BoardRows, name: str, term: Term) -> bool:
    """Whether a term means a lane: by its machine, by its rank, or `gpu0` by its name or by its number."""
    if term.key == "node":
        return rows.state.lane_ids.nodes.get(name, "").lower() in term.values
    if term.key == "rank":
        return str(rows.state.lane_ranks.get(name, "")) in term.values
    lane = name.lower()
    number = lane.lstrip("abcdefghijklmnopqrstuvwxyz:-_")
    return lane in term.values or (bool(number) and number in term.values)


def _coded(codes: Ints, names: Names, wanted: Wanted) -> Mask:
    """Whether the name behind each code is wanted; a code of -1 has no name."""
    hits = [code for code, word in enumerate(names.words) if wanted(word)]
    return np.isin(codes, hits)


def _slots_match(rows: BoardRows, terms: tuple[Term, ...]) -> Mask:
    """Whether one slot of the env meets every term; with negated terms alone, whether no slot meets one."""
    envs = rows.state.envs
    there = envs.stage[: envs.n] >= 0
    meets, barred = there.copy(), np.zeros(envs.n, dtype=np.bool_)
    for term in terms:
        grid = _grid(rows, term) & there
        meets &= grid != term.negated
        barred |= grid.any(axis=1)
    if all(term.negated for term in terms):
        return ~barred
    found: Mask = np.asarray((meets & there).any(axis=1), dtype=np.bool_)
    return found


def _grid(rows: BoardRows, term: Term) -> Mask:
    """Which slots of which envs meet one term, shape (n, slots)."""
    state, envs = rows.state, rows.state.envs
    if term.key == "stage":
        return np.isin(envs.stage[: envs.n], [parse_stage(value).code for value in term.values])
    if term.key == "blueprint":
        codes = dict(state.started.blueprints) if state.started else {}
        return _coded(
            envs.blueprint[: envs.n],
            state.blueprint_names,
            lambda name: any(value in name.lower() or value == codes.get(name) for value in term.values),
        )
    names = state.slot_names.words
    hits = np.array([name.lower() in term.values for name in names], dtype=np.bool_)
    wide = np.zeros(envs.stage.shape[1], dtype=np.bool_)
    wide[: hits.size] = hits
    shown: Mask = np.broadcast_to(wide, (envs.n, wide.size))
    return shown


def _found(rows: BoardRows, word: str) -> Mask:
    """Where a searched word occurs: id, lane, status, last action, blueprints, reasons."""
    state, n = rows.state, rows.state.envs.n

    def has(name: str) -> bool:
        """Return whether a name has the word in it, whatever its case."""
        return word in name.lower()

    mask: Mask = _coded(state.envs.lane[:n], state.lane_names, has)
    mask |= rows.of_status(lambda status: word in status)
    if word.isdecimal():
        mask |= state.envs.ids[:n] == int(word[:15])
    mask |= _coded(state.envs.blueprint[:n], state.blueprint_names, has).any(axis=1)
    mask |= _acted(rows, has)
    for row in rows.anomalies.offenders()[:READ_REASONS].tolist():
        mask[row] = mask[row] or any(has(reason) for reason in rows.anomalies.reasons(row))
    return mask


def _acted(rows: BoardRows, wanted: Wanted) -> Mask:
    actions, n = rows.state.envs.actions, rows.state.envs.n
    if not n:
        return np.zeros(0, dtype=np.bool_)
    every = np.arange(n)
    place = (actions.count[:n] - 1) % actions.op.shape[1]
    last = np.where(actions.count[:n] > 0, actions.op[every, place], -1)
    return _coded(last, rows.state.op_names, wanted)


def board(rows: BoardRows, view: View) -> tuple[Board, tuple[Env, ...]]:
    """The board's head and at most `view.rows` env rows, as the view orders, filters and cuts them."""
    chosen = choose(rows, view)
    counts = _counts(rows, chosen)
    lanes = rows.lane_order if chosen.order is rows.order else rows.state.envs.lanes_by(chosen.order)
    by_lane: dict[int, list[int]] = {lane: [] for lane in lanes if lane in counts}
    shown = _window(rows, chosen, view, {lane: sum(counts[lane]) for lane in by_lane})
    for row, lane in zip(shown.tolist(), rows.state.envs.lane[shown].tolist(), strict=True):
        by_lane[lane].append(row)
    head = Board(
        sort=view.sort,
        direction="desc" if view.descending else "asc",
        filter=chosen.filter,
        counts=_named([sum(of_lane) for of_lane in zip(*counts.values(), strict=True)]),
        matched=None if chosen.filter is None else int(chosen.order.size),
        total=int(chosen.order.size),
        offset=view.offset,
        groups=tuple(_group(rows, lane, chosen, counts[lane], len(some)) for lane, some in by_lane.items()),
        columns=rows.rollups.columns,
    )
    placed = [row for some in by_lane.values() for row in some] if view.grouped else shown.tolist()
    return head, env_views(rows, placed)


def _window(rows: BoardRows, chosen: Chosen, view: View, sizes: Mapping[int, int]) -> Ints:
    """The rows of the view, in its order; only lanes that it reaches into are looked at."""
    begin = view.offset or 0
    if view.offset is None or not view.grouped:
        return chosen.order[begin : begin + view.rows]
    lane, parts = rows.state.envs.lane[chosen.order], [chosen.order[:0]]
    end, first = begin + view.rows, 0
    for code, size in sizes.items():
        if first < end and begin < first + size:
            parts.append(chosen.order[lane == code][max(0, begin - first) : end - first])
        first += size
    return np.concatenate(parts)


def _counts(rows: BoardRows, chosen: Chosen) -> dict[int, list[int]]:
    """Envs of each lane by status, of those that pass the filter; lanes without any are left out."""
    width = len(WORDS)
    if chosen.mask is None and not rows.stale and not rows.anomalies.factors:
        sizes = {lane: num_of(on) for lane, on in rows.lanes.items()}
        return {lane: [size, *[0] * (width - 1)] for lane, size in sizes.items()}
    cells = (rows.state.envs.lane[: rows.state.envs.n] + 1) * width + rows.codes
    if chosen.mask is not None:
        cells = cells[chosen.mask]
    table = np.bincount(cells, minlength=-(-int(cells.max(initial=0) + 1) // width) * width)
    found: list[list[int]] = table.reshape(-1, width).tolist()
    return {place - 1: counts for place, counts in enumerate(found) if any(counts)}


def _group(rows: BoardRows, lane: int, chosen: Chosen, counts: Sequence[int], num_shown: int) -> Group:
    added_up = rows.rollups.middles.get(lane) if chosen.filter is None else None
    if added_up is None:
        members = rows.lanes[lane]
        if chosen.mask is not None:
            members = np.flatnonzero(chosen.mask & (rows.state.envs.lane[: rows.state.envs.n] == lane))
        columns = {"return": rows.returns, "metric": rows.metric, "rent": rows.rent, "fps": rows.fps}
        added_up = middles_by(columns, {lane: members})[lane]
    group = Group(
        gpu_id=rows.lane_names[lane],
        n_envs=sum(counts),
        counts=_named(counts),
        hidden=sum(counts) - num_shown,
        anomaly=lane_anomaly(rows.judged, None if lane < 0 else rows.state.lane_names.words[lane]),
    )
    return msgspec.structs.replace(group, **added_up)


def _named(counts: Sequence[int]) -> dict[str, int]:
    """Envs by status word, worst first; those of none are left out."""
    return {WORDS[code]: counts[code] for code in _SHOWN if counts and counts[code]}


def aggregates(rows: BoardRows) -> Aggregates:
    """Census of seeds and mix of recent actions, of all and of each lane, and the envs at both ends."""
    added_up = rows.rollups
    return Aggregates(
        seed_census=_census([sum(of_lane) for of_lane in zip(*added_up.seeds.values(), strict=True)]),
        actions=_actions(rows.state),
        best=added_up.best,
        worst=added_up.worst,
        episodes=tuple(
            BestEpisode(env_id=one.env_id, time=one.at / 1e9, number=one.number, values=one.values)
            for one in rows.state.best.episodes
        ),
        mean_best=number(rows.state.best.total / rows.state.best.count) if rows.state.best.count else None,
        lanes=tuple(
            LaneAggregates(
                gpu_id=rows.lane_names[lane],
                seed_census=_census(added_up.seeds.get(lane, ())),
                actions=_mix(rows.state, added_up.ops.get(lane, ())),
            )
            for lane in rows.lane_order
            if lane in added_up.middles
        ),
    )


def _census(counts: Sequence[int]) -> dict[str, int]:
    """Slots by stage; every stage is there, UNKNOWN only where there is one."""
    return {
        word: counts[code] for word, code in _STAGES if counts and (word != _UNKNOWN_STAGE or counts[code])
    }


def _mix(state: RunState, ops: Sequence[int]) -> dict[str, float]:
    return {safe(word): n / sum(ops) for word, n in zip(state.op_names.words, ops, strict=False) if n}


def _actions(state: RunState) -> dict[str, float]:
    totals: dict[str, int] = {}
    for counts in state.actions.items:
        for op, count in counts.items():
            totals[op] = totals.get(op, 0) + count
    everything = sum(totals.values())
    known = [op for op in state.op_names.words if op in totals]
    return {safe(op): totals[op] / everything for op in known}
