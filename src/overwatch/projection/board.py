"""The flight board: env rows in rank order within their lane, worst lane first.

Selects, cuts and formats what `diagnose` ranked and added up; only what a filter leaves is added up here.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from overwatch.diagnose.anomaly import STATUSES
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.rollups import fps_of, middles_of
from overwatch.projection.rows import env_views, lane_anomaly
from overwatch.projection.selection import Chosen, Mask, choose
from overwatch.projection.text import safe_all
from overwatch.snapshot import Board, Env, Group, View
from overwatch.state.arrays import Floats, Ints
from overwatch.state.envs import Envs
from overwatch.state.places import num_of
from overwatch.state.run import RunState

_UNKNOWN: Final = len(STATUSES)
_WORDS: Final = (*STATUSES, "unknown")
_SHOWN: Final = (*range(len(STATUSES) - 1, -1, -1), _UNKNOWN)
"""Worst first."""


class BoardRows:
    """What the board needs of all envs at one tick, worked out once."""

    def __init__(self, state: RunState, judged: Judged) -> None:
        envs = state.envs
        self.state = state
        self.judged = judged
        self.anomalies = judged.anomalies
        self.rollups = judged.assessment.second.rollups
        self.order = judged.assessment.ranks.order
        self.metric = present(envs, "metric")
        self.rent = present(envs, "rent")
        self.reward = present(envs, "reward")
        self.step_time = present(envs, "step_time")
        self.stale = judged.link.state in ("stale", "silent", "lost")
        codes = judged.anomalies.codes
        self.codes: Ints = np.where(codes == 0, _UNKNOWN, codes) if self.stale else codes
        """Status of each env as its place among the words, shape (n,)."""
        self.lane_names = (*safe_all(state.lane_names.words), None)
        """By lane code; the last one is that of -1."""
        self.lanes = envs.by_lane()
        """Rows of each lane."""
        self.lane_order = envs.lanes_by(self.order)
        """Lane codes by their worst env; -1 is the lane that was not named."""

    @cached_property
    def returns(self) -> Floats:
        """Return of each env, shape (n,)."""
        return self.state.envs.mean_return()

    @cached_property
    def fps(self) -> Floats:
        """Steps a second of each env, shape (n,)."""
        return fps_of(self.step_time)

    def words(self, at: Ints) -> list[str]:
        """Status words of these rows."""
        if not self.anomalies.factors and not self.stale:
            return [STATUSES[0]] * at.size
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
    shown = chosen.order[: view.rows]
    counts = _counts(rows, chosen)
    by_lane: dict[int, list[int]] = {lane: [] for lane in _lanes(rows, chosen) if lane in counts}
    for row, lane in zip(shown.tolist(), rows.state.envs.lane[shown].tolist(), strict=True):
        by_lane[lane].append(row)
    head = Board(
        sort=view.sort,
        direction="desc" if view.descending else "asc",
        filter=chosen.filter,
        counts=_named([sum(of_lane) for of_lane in zip(*counts.values(), strict=True)]),
        matched=None if chosen.filter is None else int(chosen.order.size),
        groups=tuple(_group(rows, lane, chosen, counts[lane], len(some)) for lane, some in by_lane.items()),
        columns=rows.rollups.columns,
    )
    placed = [row for some in by_lane.values() for row in some] if view.grouped else shown.tolist()
    return head, env_views(rows, placed)


def _lanes(rows: BoardRows, chosen: Chosen) -> tuple[int, ...]:
    """Lane codes in the order of the view."""
    return rows.lane_order if chosen.order is rows.order else rows.state.envs.lanes_by(chosen.order)


def _counts(rows: BoardRows, chosen: Chosen) -> dict[int, list[int]]:
    """Envs of each lane by status, of those that pass the filter; lanes without any are left out."""
    width = len(_WORDS)
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
    told = rows.rollups.middles.get(lane) if chosen.filter is None else None
    if told is None:
        members = rows.lanes[lane]
        if chosen.mask is not None:
            members = np.flatnonzero(chosen.mask & (rows.state.envs.lane[: rows.state.envs.n] == lane))
        told = middles_of(
            {"return": rows.returns, "metric": rows.metric, "rent": rows.rent, "fps": rows.fps}, members
        )
    return Group(
        gpu_id=rows.lane_names[lane],
        n_envs=sum(counts),
        counts=_named(counts),
        median_return=told.median_return,
        median_metric=told.median_metric,
        median_rent=told.median_rent,
        median_fps=told.median_fps,
        p10_return=told.p10_return,
        p90_return=told.p90_return,
        hidden=sum(counts) - num_shown,
        anomaly=lane_anomaly(rows.judged, None if lane < 0 else rows.state.lane_names.words[lane]),
    )


def number(value: float) -> float | None:
    """A finite float, else `None`."""
    return float(value) if np.isfinite(value) else None


def _named(counts: Sequence[int]) -> dict[str, int]:
    """Envs by status word, worst first; those of none are left out."""
    return {_WORDS[code]: counts[code] for code in _SHOWN if counts and counts[code]}
