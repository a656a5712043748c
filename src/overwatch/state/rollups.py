"""What envs add up to, lane by lane: middles, ends, seeds, operations, and how long steps and updates take.

Worked out once a second: a number that changes ten times a second could not be read. Pure; must not know what
is too far, or how a number is shown.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import Stage
from overwatch.catalog.phases import Phase, parse_phase
from overwatch.catalog.policy import UPDATE_TIME
from overwatch.snapshot import Best, Spread
from overwatch.state.arrays import Floats, Ints, seconds_between
from overwatch.state.envs import Envs
from overwatch.state.places import Rows, num_of
from overwatch.state.run import RunState

COLUMNS: Final = ("return", "reward", "metric", "rent", "fps")
"""What an env may report, in the order in which it is shown."""
Middles = dict[str, float | None]
"""What is usual among some envs, by the field of their group; absent where none of them reports it."""


class Rollups(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet and its lanes at one tick; lanes by their number in the run, -1 for the one not named."""

    middles: dict[int, Middles] = {}
    seeds: dict[int, tuple[int, ...]] = {}
    """Slots of a lane by stage code; empty where there are no slots."""
    ops: dict[int, tuple[int, ...]] = {}
    """The newest operations of each env, by the run's number of the operation."""
    best: tuple[Best, ...] = ()
    worst: tuple[Best, ...] = ()
    columns: tuple[str, ...] = ()
    """What this run reports of its envs."""
    steps: dict[str, Spread] = {}
    """How long steps take, by lane."""
    updates: dict[int, Spread] = {}
    """And updates, by rank."""


def rollups_of(state: RunState) -> Rollups:
    """What everything adds up to now."""
    envs = state.envs
    reported = {name: envs.values[name][: envs.n] for name in ("reward", "metric", "rent")}
    reported["fps"] = fps_of(envs.values["step_time"][: envs.n])
    if envs.episodes.any() or envs.times["return"].any():
        reported["return"] = envs.mean_return()
    reported = {name: values for name, values in reported.items() if np.isfinite(values).any()}
    info = state.started.metric if state.started else None
    ways = {"return": True, "metric": info is None or info.higher_is_better}
    ends = [_ends(envs, name, reported[name], up) for name, up in ways.items() if name in reported]
    # A run that finishes episodes has returns, and needs no rewards beside them.
    hidden = "reward" if envs.episodes[: envs.n].any() else ""
    return Rollups(
        middles=middles_by(reported, envs.by_lane()),
        seeds=_counts(envs, envs.stage, len(Stage)),
        ops=_counts(envs, envs.actions.op, len(state.op_names.words)),
        best=tuple(best for best, _ in ends),
        worst=tuple(worst for _, worst in ends),
        columns=tuple(name for name in COLUMNS if name in reported and name != hidden),
        steps=_step_spreads(state),
        updates=_update_spreads(state),
    )


def fps_of(step_time: Floats) -> Floats:
    """Steps a second; NaN where it is not known how long a step takes."""
    found: Floats = np.divide(1.0, step_time, out=np.full(step_time.shape, np.nan), where=step_time > 0)
    return found


def middles_by(reported: Mapping[str, Floats], lanes: Mapping[int, Rows]) -> dict[int, Middles]:
    """What is usual among the rows of each lane: all columns of one are put in order at once."""
    names = [name for name in COLUMNS if name in reported and name != "reward"]
    if not names:
        return {lane: {} for lane in lanes}
    values = np.array([reported[name] for name in names])
    # What is not finite comes last when it is put in order.
    values[~np.isfinite(values)] = np.nan
    found = {}
    for lane, rows in lanes.items():
        ordered = np.sort(values[:, rows], axis=1)
        middles = found[lane] = dict[str, float | None]()
        for name, column, size in zip(names, ordered, np.isfinite(ordered).sum(axis=1).tolist(), strict=True):
            if size:
                middle = (column.item((size - 1) // 2) + column.item(size // 2)) / 2
                # As in `median_of`, a zero has one sign.
                middles[f"median_{name}"] = middle + 0.0 if math.isfinite(middle) else None
                if name == "return":
                    # By nearest rank.
                    middles["p10_return"] = column.item(round(0.1 * (size - 1))) + 0.0
                    middles["p90_return"] = column.item(round(0.9 * (size - 1))) + 0.0
    return found


def _counts(envs: Envs, codes: Ints, num: int) -> dict[int, tuple[int, ...]]:
    """How often each code from 0 on occurs on each lane; -1 is none."""
    lane, codes, width = envs.lane[: envs.n], codes[: envs.n], num + 1
    if not num or not codes.size:
        return {}
    cells = ((lane + 1) * width + 1)[:, None] + codes
    table = np.bincount(cells.ravel(), minlength=(int(lane.max()) + 2) * width).reshape(-1, width)
    return {row - 1: tuple(counts) for row, counts in enumerate(table[:, 1:].tolist())}


def _ends(envs: Envs, field: str, values: Floats, up: bool) -> tuple[Best, Best]:  # noqa: FBT001 as reported
    """The best and the worst env by a column that shows how well one does."""
    known = np.flatnonzero(np.isfinite(values))
    rows = int(known[values[known].argmax()]), int(known[values[known].argmin()])
    high, low = (Best(env_id=int(envs.ids[row]), field=field, value=float(values[row])) for row in rows)
    return (high, low) if up else (low, high)


MOST_TIMES: Final = 16_384
"""Times of one lane that are looked at; of more every n-th env counts."""
LEAST_TIMES: Final = 3


def _step_spreads(state: RunState) -> dict[str, Spread]:
    """Of the steps of the envs on each lane that report how long theirs take, over the newest seconds."""
    times, found = state.envs.trends.values["step_time"][: state.envs.n], {}
    for code, rows in state.envs.by_lane().items():
        every = max(1, -(-num_of(rows) * times.shape[1] // MOST_TIMES))
        spread = _spread(
            (
                times[rows.start : rows.stop : every] if isinstance(rows, slice) else times[rows[::every]]
            ).ravel()
        )
        if spread is not None and code >= 0:
            found[state.lane_names.words[code]] = spread
    return found


def _update_spreads(state: RunState) -> dict[int, Spread]:
    """Of the updates of each rank: by its phases, else by what the run reports of its updates' time."""
    reported, leader = state.policy.get(UPDATE_TIME.name), state.ranks.leader
    times = {
        rank: seconds_between(phase.ends.items)
        for rank, phases in state.phases.items()
        for name, phase in phases.items()
        if parse_phase(name) is Phase.UPDATE
    }
    if reported is not None and leader is not None and len(times.get(leader, ())) < LEAST_TIMES:
        times[leader] = [value for value in reported.history.items if value is not None]
    found = {rank: _spread(np.array(seconds)) for rank, seconds in times.items()}
    return {rank: spread for rank, spread in found.items() if spread is not None}


def _spread(times: Floats) -> Spread | None:
    """By nearest rank, so each is a time that was measured."""
    known = np.sort(times[(times > 0) & (times < np.inf)])
    if known.size < LEAST_TIMES:
        return None
    place = -(-95 * known.size // 100) - 1
    return Spread(p50=float(known[(known.size - 1) // 2]), p95=float(known[place]))
