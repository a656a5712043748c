"""The flight board: env rows in rank order within their lane, worst lane first.

Selects, cuts and formats what `diagnose` ranked; group medians are the only numbers made here.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from overwatch.catalog.stages import BY_CODE
from overwatch.diagnose.anomaly import STATUSES
from overwatch.diagnose.assess import Judged
from overwatch.projection.selection import Mask, choose
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Anomaly, Board, Env, Group, Slot, View
from overwatch.state.arrays import Floats, Ints
from overwatch.state.envs import Envs
from overwatch.state.run import RunState

_UNKNOWN: Final = len(STATUSES)
_WORDS: Final = np.array([*STATUSES, "unknown"], dtype=object)
_SHOWN: Final = ("crashed", "diverging", "stalled", "degraded", "ok", "unknown")
_OPTIONAL: Final = ("return", "reward", "metric", "rent", "fps")


class BoardRows:
    """What the board needs of all envs at one tick, worked out once."""

    def __init__(self, state: RunState, judged: Judged) -> None:
        envs = state.envs
        self.state = state
        self.anomalies = judged.anomalies
        self.order = judged.assessment.order
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
        self.statuses = _WORDS[self.codes]
        """Status words, shape (n,)."""


def present(envs: Envs, name: str) -> Floats:
    """One measure of all envs, shape (n,); NaN where it was never measured."""
    return np.where(envs.times[name][: envs.n] > 0, envs.values[name][: envs.n], np.nan)


def board(rows: BoardRows, view: View) -> tuple[Board, tuple[Env, ...]]:
    """The board's head and at most `view.rows` env rows, as the view orders and filters them."""
    chosen = choose(rows, view)
    shown = chosen.order[: view.rows].tolist()
    lanes = rows.state.envs.lane
    by_lane: dict[int, list[int]] = {lane: [] for lane in dict.fromkeys(lanes[chosen.order].tolist())}
    for row in shown:
        by_lane[int(lanes[row])].append(row)
    head = Board(
        sort=view.sort,
        direction="desc" if view.descending else "asc",
        filter=chosen.filter,
        counts=_count(rows.codes[chosen.order]),
        matched=None if chosen.filter is None else int(chosen.order.size),
        groups=tuple(_group(rows, lane, chosen.mask, len(some)) for lane, some in by_lane.items()),
        columns=_columns(rows),
    )
    placed = [row for some in by_lane.values() for row in some] if view.grouped else shown
    return head, tuple(env_view(rows, row) for row in placed)


def lanes_worst_first(rows: BoardRows) -> list[int]:
    """Lane codes by their worst env; -1 is the lane that was not named."""
    ranked = rows.state.envs.lane[rows.order]
    lanes, first = np.unique(ranked, return_index=True)
    found: list[int] = lanes[np.argsort(first, kind="stable")].tolist()
    return found


def _group(rows: BoardRows, lane: int, mask: Mask, num_shown: int) -> Group:
    members = np.flatnonzero(mask & (rows.state.envs.lane[: rows.state.envs.n] == lane))
    return Group(
        gpu_id=lane_name(rows.state, lane),
        n_envs=int(members.size),
        counts=_count(rows.codes[members]),
        median_return=_median(rows.returns[members]),
        median_metric=_median(rows.metric[members]),
        median_rent=_median(rows.rent[members]),
        median_fps=_median(rows.fps[members]),
        p10_return=_rank_value(rows.returns[members], 0.1),
        p90_return=_rank_value(rows.returns[members], 0.9),
        hidden=int(members.size) - num_shown,
    )


def lane_name(state: RunState, lane: int) -> str | None:
    """The lane's id, `None` where the env named none."""
    return None if lane < 0 else safe(state.lane_names.words[lane])


def env_view(rows: BoardRows, row: int) -> Env:
    """One row of the board."""
    envs = rows.state.envs
    return Env(
        env_id=int(envs.ids[row]),
        gpu_id=lane_name(rows.state, int(envs.lane[row])),
        status=rows.statuses[row],
        reward=number(rows.reward[row]),
        episode_return=number(rows.returns[row]),
        metric=number(rows.metric[row]),
        rent=number(rows.rent[row]),
        step_time_s=number(rows.step_time[row]),
        fps=number(rows.fps[row]),
        last_action=_last_action(rows.state, row),
        stale=rows.stale,
        anomaly=Anomaly(
            score=float(rows.anomalies.scores[row]),
            reasons=tuple(safe(reason) for reason in rows.anomalies.reasons(row)),
        ),
        slots=_slots(rows.state, row),
    )


def number(value: float) -> float | None:
    """A finite float, else `None`."""
    return float(value) if np.isfinite(value) else None


def _last_action(state: RunState, row: int) -> str | None:
    op, slot = state.envs.actions.last(row)
    if op < 0:
        return None
    words = state.op_names.words[op].upper()
    return safe(words if slot < 0 else f"{words} {state.slot_names.words[slot]}")


def _slots(state: RunState, row: int) -> dict[str, Slot]:
    envs = state.envs
    if not envs.stage.shape[1]:
        return {}
    gates = envs.gates.get(int(envs.ids[row]), {})
    return {
        safe(name): _slot(state, row, code, gates.get(name))
        for code, name in enumerate(state.slot_names.words)
        if code < envs.stage.shape[1] and envs.stage[row, code] >= 0
    }


def _slot(state: RunState, row: int, code: int, gate: str | None) -> Slot:
    envs = state.envs
    stage = BY_CODE[int(envs.stage[row, code])]
    blueprint = int(envs.blueprint[row, code])
    age = int(envs.age[row, code])
    named = stage.shows_blueprint and blueprint >= 0
    return Slot(
        stage=stage.value,
        glyph=stage.glyph,
        blueprint=safe(state.blueprint_names.words[blueprint]) if named else None,
        alpha=number(envs.alpha[row, code]),
        age=None if age < 0 else age,
        gate=safe_or_none(gate) if stage.shows_blueprint else None,
        grad=number(envs.grad[row, code]) if stage.shows_blueprint else None,
    )


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
    counts = dict(zip(_WORDS.tolist(), np.bincount(codes, minlength=_WORDS.size).tolist(), strict=True))
    return {word: counts[word] for word in _SHOWN if counts[word]}


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return number(np.median(known)) if known.size else None


def _rank_value(values: Floats, share: float) -> float | None:
    """The value below which `share` of the known values lie, by nearest rank."""
    known = np.sort(values[np.isfinite(values)])
    return float(known[round(share * (known.size - 1))]) if known.size else None
