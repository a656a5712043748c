"""What the fleet and each lane add up to, worked out once a second: middles, ends, seeds, operations.

Shown above the rows of the board, where a number that changes ten times a second could not be read. Pure;
must not know words, or how a number is shown.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import Stage
from overwatch.state.arrays import Floats, Ints
from overwatch.state.envs import Envs
from overwatch.state.places import Rows
from overwatch.state.run import RunState

COLUMNS: Final = ("return", "reward", "metric", "rent", "fps")
"""What an env may report, in the order in which it is shown."""
_MIDDLED: Final = ("return", "metric", "rent", "fps")
_LOW, _HIGH = 0.1, 0.9
_NONE: Final = np.zeros(0)


class Middles(msgspec.Struct, frozen=True, kw_only=True):
    """What is usual among some envs; `None` where none of them reports it."""

    median_return: float | None = None
    median_metric: float | None = None
    median_rent: float | None = None
    median_fps: float | None = None
    p10_return: float | None = None
    p90_return: float | None = None


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """What some envs add up to."""

    seeds: tuple[int, ...] = ()
    """Slots by stage code; empty where there are no slots."""
    ops: tuple[int, ...] = ()
    """The newest operations of each env, by the run's number of the operation."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The env at one end."""

    env_id: int
    field: str
    value: float


class Rollups(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet and its lanes at one tick; lanes by their number in the run, -1 for the one not named."""

    middles: dict[int, Middles] = {}
    lanes: dict[int, Sums] = {}
    fleet: Sums = Sums()
    best: tuple[End, ...] = ()
    worst: tuple[End, ...] = ()
    columns: tuple[str, ...] = ()
    """What this run reports of its envs."""


def rollups_of(state: RunState) -> Rollups:
    """What everything adds up to now."""
    envs = state.envs
    told = _told_of(envs)
    ends = _ends(state, told)
    rows = envs.by_lane()
    lanes = _sums(envs, rows, len(state.op_names.words))
    return Rollups(
        middles=_middles_by(told, rows),
        lanes=lanes,
        fleet=_fleet_sums(envs, lanes),
        best=tuple(best for best, _ in ends),
        worst=tuple(worst for _, worst in ends),
        columns=_columns(envs, told),
    )


def _told_of(envs: Envs) -> dict[str, Floats]:
    """What envs report, by the name of the column, shape (n,); NaN where one reports nothing."""
    told = {name: envs.values[name][: envs.n] for name in ("reward", "metric", "rent")}
    told["fps"] = fps_of(envs.values["step_time"][: envs.n])
    if envs.episodes.any() or envs.times["return"].any():
        told["return"] = envs.mean_return()
    return {name: values for name, values in told.items() if np.isfinite(values).any()}


def fps_of(step_time: Floats) -> Floats:
    """Steps a second; NaN where it is not known how long a step takes."""
    found: Floats = np.divide(1.0, step_time, out=np.full(step_time.shape, np.nan), where=step_time > 0)
    return found


def middles_of(told: Mapping[str, Floats], rows: Rows) -> Middles:
    """What is usual among these rows, by the columns that are reported."""
    return _middles_by(told, {0: rows})[0]


def _middles_by(told: Mapping[str, Floats], lanes: Mapping[int, Rows]) -> dict[int, Middles]:
    """The same among the rows of each lane: all columns of one are put in order at once."""
    names = [name for name in _MIDDLED if name in told]
    if not names:
        return dict.fromkeys(lanes, Middles())
    values = np.array([told[name] for name in names])
    # What is not finite comes last when it is put in order.
    values[~np.isfinite(values)] = np.nan
    found = {}
    for lane, rows in lanes.items():
        ordered = np.sort(values[:, rows], axis=1)
        counts = np.isfinite(ordered).sum(axis=1).tolist()
        found[lane] = _middles({name: ordered[place, : counts[place]] for place, name in enumerate(names)})
    return found


def _middles(ordered: Mapping[str, Floats]) -> Middles:
    """What is usual in columns of finite values in order."""
    returns = ordered.get("return", _NONE)
    return Middles(
        median_return=_median(returns),
        median_metric=_median(ordered.get("metric", _NONE)),
        median_rent=_median(ordered.get("rent", _NONE)),
        median_fps=_median(ordered.get("fps", _NONE)),
        p10_return=_rank_value(returns, _LOW),
        p90_return=_rank_value(returns, _HIGH),
    )


def _median(ordered: Floats) -> float | None:
    half = ordered.size // 2
    if not ordered.size:
        return None
    middle = ordered.item(half) if ordered.size % 2 else (ordered.item(half - 1) + ordered.item(half)) / 2
    # As in `median_of`, a zero has one sign.
    return middle + 0.0 if math.isfinite(middle) else None


def _rank_value(ordered: Floats, share: float) -> float | None:
    """The value below which `share` of the values lie, by nearest rank."""
    return ordered.item(round(share * (ordered.size - 1))) + 0.0 if ordered.size else None


def _sums(envs: Envs, lanes: Mapping[int, Rows], num_ops: int) -> dict[int, Sums]:
    """What each lane adds up to."""
    seeds = _counts(envs.lane[: envs.n], envs.stage[: envs.n], len(Stage) if envs.stage.shape[1] else 0)
    ops = _counts(envs.lane[: envs.n], envs.actions.op[: envs.n], num_ops)
    return {lane: Sums(seeds=seeds.get(lane, ()), ops=ops.get(lane, ())) for lane in lanes}


def _fleet_sums(envs: Envs, lanes: Mapping[int, Sums]) -> Sums:
    """What all lanes add up to; nothing reads the operations of all."""
    seeds = tuple(map(sum, zip(*(lane.seeds for lane in lanes.values()), strict=True)))
    return Sums(seeds=seeds or (0,) * (len(Stage) if envs.stage.shape[1] else 0))


def _counts(lane: Ints, codes: Ints, num: int) -> dict[int, tuple[int, ...]]:
    """How often each code from 0 on occurs on each lane; -1 is none."""
    if not num or not lane.size:
        return {}
    width = num + 1
    cells = ((lane + 1) * width + 1)[:, None] + codes
    table = np.bincount(cells.ravel(), minlength=(int(lane.max()) + 2) * width).reshape(-1, width)
    return {row - 1: tuple(counts) for row, counts in enumerate(table[:, 1:].tolist())}


def _ends(state: RunState, told: Mapping[str, Floats]) -> list[tuple[End, End]]:
    """The best and the worst env by each of the columns that show how well one does."""
    found = []
    info = state.started.metric if state.started else None
    for field, higher_is_better in (("return", True), ("metric", info.higher_is_better if info else True)):
        if field not in told:
            continue
        known = np.flatnonzero(np.isfinite(told[field]))
        values = told[field][known]
        rows = int(known[values.argmin()]), int(known[values.argmax()])
        low, high = (
            End(env_id=int(state.envs.ids[row]), field=field, value=float(told[field][row])) for row in rows
        )
        found.append((high, low) if higher_is_better else (low, high))
    return found


def _columns(envs: Envs, told: Mapping[str, Floats]) -> tuple[str, ...]:
    """A run that finishes episodes has returns, and needs no rewards beside them."""
    has_episodes = bool(envs.episodes[: envs.n].any())
    return tuple(name for name in COLUMNS if name in told and not (has_episodes and name == "reward"))
