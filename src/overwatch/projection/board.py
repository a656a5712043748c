"""The flight board: env rows in rank order within their lane, worst lane first.

Selects, cuts and formats what `diagnose` ranked; group medians are the only numbers made here.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from overwatch.diagnose.anomaly import STATUSES
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.robust import median_of
from overwatch.projection.rows import env_views, lane_anomaly
from overwatch.projection.selection import Chosen, Mask, choose
from overwatch.projection.text import safe
from overwatch.snapshot import Board, Env, Group, View
from overwatch.state.arrays import Floats, Ints
from overwatch.state.envs import Envs
from overwatch.state.run import RunState

_UNKNOWN: Final = len(STATUSES)
_WORDS: Final = (*STATUSES, "unknown")
_SHOWN: Final = ("crashed", "diverging", "stalled", "degraded", "ok", "unknown")
_OPTIONAL: Final = ("return", "reward", "metric", "rent", "fps")


class BoardRows:
    """What the board needs of all envs at one tick, worked out once."""

    def __init__(self, state: RunState, judged: Judged) -> None:
        envs = state.envs
        self.state = state
        self.judged = judged
        self.anomalies = judged.anomalies
        self.order = judged.assessment.ranks.order
        self.returns = envs.mean_return()
        self.metric = present(envs, "metric")
        self.rent = present(envs, "rent")
        self.reward = present(envs, "reward")
        self.step_time = present(envs, "step_time")
        self.fps = np.divide(1.0, self.step_time, out=np.full(envs.n, np.nan), where=self.step_time > 0)
        self.stale = judged.link.state in ("stale", "lost")
        codes = judged.anomalies.codes
        self.codes: Ints = np.where(codes == 0, _UNKNOWN, codes) if self.stale else codes
        """Status of each env as its place among the words, shape (n,)."""
        self.lanes = envs.by_lane()
        """Rows of each lane."""

    def words(self, at: Ints) -> list[str]:
        """Status words of these rows."""
        return [_WORDS[code] for code in self.codes[at].tolist()]

    def of_status(self, wanted: Callable[[str], bool]) -> Mask:
        """Which envs have a status that is wanted, shape (n,)."""
        hits = np.array([wanted(word) for word in _WORDS], dtype=np.bool_)
        return hits[self.codes]


def present(envs: Envs, name: str) -> Floats:
    """One measure of all envs, shape (n,); NaN where it was never measured."""
    return envs.values[name][: envs.n]


def board(rows: BoardRows, view: View) -> tuple[Board, tuple[Env, ...]]:
    """The board's head and at most `view.rows` env rows, as the view orders and filters them."""
    chosen = choose(rows, view)
    shown = chosen.order[: view.rows].tolist()
    lanes = rows.state.envs.lane
    by_lane: dict[int, list[int]] = {lane: [] for lane in _first_seen(lanes[chosen.order])}
    for row in shown:
        by_lane[int(lanes[row])].append(row)
    head = Board(
        sort=view.sort,
        direction="desc" if view.descending else "asc",
        filter=chosen.filter,
        counts=_count(rows.codes[chosen.order]),
        matched=None if chosen.filter is None else int(chosen.order.size),
        groups=tuple(_group(rows, lane, chosen, len(some)) for lane, some in by_lane.items()),
        columns=_columns(rows),
    )
    placed = [row for some in by_lane.values() for row in some] if view.grouped else shown
    return head, env_views(rows, placed)


def lanes_worst_first(rows: BoardRows) -> list[int]:
    """Lane codes by their worst env; -1 is the lane that was not named."""
    return _first_seen(rows.state.envs.lane[rows.order])


def _first_seen(lanes: Ints) -> list[int]:
    """Each lane once, in the order in which they come first."""
    if not lanes.size:
        return []
    order = np.full(int(lanes.max()) + 2, lanes.size)
    # Of equal places the last write stays, so the last to be written has to come first.
    order[lanes[::-1] + 1] = np.arange(lanes.size - 1, -1, -1)
    seen = np.flatnonzero(order < lanes.size)
    found: list[int] = (seen[np.argsort(order[seen], kind="stable")] - 1).tolist()
    return found


def _group(rows: BoardRows, lane: int, chosen: Chosen, num_shown: int) -> Group:
    members = rows.lanes[lane]
    if chosen.filter is not None:
        members = np.flatnonzero(chosen.mask & (rows.state.envs.lane[: rows.state.envs.n] == lane))
    codes, returns = rows.codes[members], _known(rows.returns[members])
    return Group(
        gpu_id=lane_name(rows.state, lane),
        n_envs=int(codes.size),
        counts=_count(codes),
        median_return=_median(returns),
        median_metric=_median(_known(rows.metric[members])),
        median_rent=_median(_known(rows.rent[members])),
        median_fps=_median(_known(rows.fps[members])),
        p10_return=_rank_value(returns, 0.1),
        p90_return=_rank_value(returns, 0.9),
        hidden=int(codes.size) - num_shown,
        anomaly=lane_anomaly(rows.judged, None if lane < 0 else rows.state.lane_names.words[lane]),
    )


def lane_name(state: RunState, lane: int) -> str | None:
    """The lane's id, `None` where the env named none."""
    return None if lane < 0 else safe(state.lane_names.words[lane])


def number(value: float) -> float | None:
    """A finite float, else `None`."""
    return float(value) if np.isfinite(value) else None


def _columns(rows: BoardRows) -> tuple[str, ...]:
    arrays: Mapping[str, Floats] = {
        "return": rows.returns, "reward": rows.reward, "metric": rows.metric, "rent": rows.rent,
        "fps": rows.fps,
    }  # fmt: skip
    reported = {name for name, values in arrays.items() if np.isfinite(values).any()}
    if (rows.state.envs.episodes[: rows.state.envs.n] > 0).any():
        reported.discard("reward")
    return tuple(name for name in _OPTIONAL if name in reported)


def _count(codes: Ints) -> dict[str, int]:
    counts = dict(zip(_WORDS, np.bincount(codes, minlength=len(_WORDS)).tolist(), strict=True))
    return {word: counts[word] for word in _SHOWN if counts[word]}


def _known(values: Floats) -> Floats:
    finite = np.isfinite(values)
    return values if finite.all() else values[finite]


def _median(known: Floats) -> float | None:
    return number(median_of(known)) if known.size else None


def _rank_value(known: Floats, share: float) -> float | None:
    """The value below which `share` of the known values lie, by nearest rank."""
    if not known.size:
        return None
    place = round(share * (known.size - 1))
    return float(np.partition(known, place)[place])
