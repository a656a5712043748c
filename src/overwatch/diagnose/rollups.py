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
"""What an env may tell, in the order in which it is shown."""
_LOW, _HIGH = 0.1, 0.9
_NONE: Final = np.zeros(0)


class Middles(msgspec.Struct, frozen=True, kw_only=True):
    """What is usual among some envs; `None` where none of them tells it."""

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
    """What this run tells of its envs."""


def rollups_of(state: RunState) -> Rollups:
    """What everything adds up to now."""
    envs = state.envs
    told = _told_of(envs)
    ends = _ends(state, told)
    rows = envs.by_lane()
    every = slice(0, envs.n)
    num_ops = len(state.op_names.words)
    return Rollups(
        middles={lane: middles_of(told, on) for lane, on in rows.items()},
        lanes={lane: _sums(envs, on, num_ops) for lane, on in rows.items()},
        fleet=_sums(envs, every, 0),
        best=tuple(best for best, _ in ends),
        worst=tuple(worst for _, worst in ends),
        columns=_columns(envs, told),
    )


def _told_of(envs: Envs) -> dict[str, Floats]:
    """What envs tell, by the name of the column, shape (n,); NaN where one tells nothing, as not all do."""
    told = {name: envs.values[name][: envs.n] for name in ("reward", "metric", "rent")}
    told["fps"] = fps_of(envs.values["step_time"][: envs.n])
    if envs.episodes.any() or envs.times["return"].any():
        told["return"] = envs.mean_return()
    return {name: values for name, values in told.items() if np.isfinite(values).any()}


def fps_of(step_time: Floats) -> Floats:
    """Steps a second; NaN where nobody knows how long a step takes."""
    found: Floats = np.divide(1.0, step_time, out=np.full(step_time.shape, np.nan), where=step_time > 0)
    return found


def middles_of(told: Mapping[str, Floats], rows: Rows) -> Middles:
    """What is usual among these rows, by the columns that are told."""
    returns = _ordered(told, "return", rows)
    return Middles(
        median_return=_median(returns),
        median_metric=_median(_ordered(told, "metric", rows)),
        median_rent=_median(_ordered(told, "rent", rows)),
        median_fps=_median(_ordered(told, "fps", rows)),
        p10_return=_rank_value(returns, _LOW),
        p90_return=_rank_value(returns, _HIGH),
    )


def _ordered(told: Mapping[str, Floats], name: str, rows: Rows) -> Floats:
    """The finite values of a column in order; none where nobody tells it."""
    if name not in told:
        return _NONE
    values = told[name][rows]
    finite = np.isfinite(values)
    return np.sort(values if finite.all() else values[finite])


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


def _sums(envs: Envs, rows: Rows, num_ops: int) -> Sums:
    stages, ops = envs.stage[rows], envs.actions.op[rows]
    return Sums(seeds=_counts(stages, len(Stage)) if stages.shape[1] else (), ops=_counts(ops, num_ops))


def _counts(codes: Ints, num: int) -> tuple[int, ...]:
    """How often each code from 0 on occurs; -1 is none."""
    if not num:
        return ()
    return tuple(np.bincount(codes.ravel() + 1, minlength=num + 1)[1:].tolist())


def _ends(state: RunState, told: Mapping[str, Floats]) -> list[tuple[End, End]]:
    """The best and the worst env by each of the columns that tell how well one does."""
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
