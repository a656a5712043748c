"""Which envs a view shows, and in which order: the filter applied, the rows sorted.

Works on whole columns, so that a filter over tens of thousands of envs costs a tick little. Pure. A filter
that cannot be read filters nothing: who takes one from a user checks it first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from overwatch.catalog import parse_stage
from overwatch.projection.filtering import COMPARE, LANE_KEYS, SLOT_KEYS, FilterError, Term, parse
from overwatch.projection.rows import BoardRows
from overwatch.snapshot import View
from overwatch.state.arrays import Floats, Ints
from overwatch.state.places import Mask
from overwatch.state.run import Names

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
        return _coded(rows.state.envs.lane[:n], rows.state.lane_names, _lanes(rows, term))
    if term.key == "status":
        return rows.of_status(lambda word: word in term.values)
    values = _numbers(rows)[term.key]
    hits_of = COMPARE[term.sign]
    compared: Mask = np.asarray(hits_of(values, term.number), dtype=np.bool_)  # type: ignore[arg-type]  # operators take arrays
    return compared & np.isfinite(values)


def _lanes(rows: BoardRows, term: Term) -> Wanted:
    """Which lanes a term means: by name, by the machine they are part of, or by their rank."""
    ranks, nodes = rows.state.lane_ranks, rows.state.lane_ids.nodes
    match term.key:
        case "node":
            return lambda name: nodes.get(name, "").lower() in term.values
        case "rank":
            return lambda name: str(ranks.get(name, "")) in term.values
        case _:
            return lambda name: _is_lane(name, term)


def _is_lane(name: str, term: Term) -> bool:
    """`gpu0` by its name or by its number."""
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
    state = rows.state
    envs = state.envs
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
