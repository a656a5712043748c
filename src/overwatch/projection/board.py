"""The flight board: env rows in rank order within their lane, worst lane first, and fleet rollups.

Selects, cuts and formats what `diagnose` ranked; group medians are the only numbers made here.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from overwatch.catalog.stages import BY_CODE, Stage
from overwatch.diagnose.anomaly import Anomalies
from overwatch.diagnose.assess import Judged
from overwatch.projection.selection import Mask, choose
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Aggregates, Anomaly, Best, Board, Detail, Env, FeedLine, Group, Slot, View
from overwatch.state.arrays import Floats
from overwatch.state.envs import RETURNS, Envs
from overwatch.state.run import RunState

_STATUSES: Final = ("crashed", "diverging", "stalled", "degraded", "ok", "unknown")
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
        self.statuses = _statuses(envs.n, judged.anomalies, stale=self.stale)


def present(envs: Envs, name: str) -> Floats:
    """One measure of all envs, shape (n,); NaN where it was never measured."""
    return np.where(envs.times[name][: envs.n] > 0, envs.values[name][: envs.n], np.nan)


def _statuses(n: int, anomalies: Anomalies, *, stale: bool) -> list[str]:
    words = ["unknown" if stale else "ok"] * n
    for row in anomalies.offenders().tolist():
        words[row] = anomalies.status(row)
    return words


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
        counts=_count([rows.statuses[row] for row in chosen.order.tolist()]),
        matched=None if chosen.filter is None else int(chosen.order.size),
        groups=tuple(_group(rows, lane, chosen.mask, len(some)) for lane, some in by_lane.items()),
        columns=_columns(rows),
    )
    placed = [row for some in by_lane.values() for row in some] if view.grouped else shown
    return head, tuple(_env(rows, row) for row in placed)


def aggregates(rows: BoardRows) -> Aggregates:
    """Census of seeds, mix of recent actions, and the envs at both ends."""
    return Aggregates(
        seed_census=_census(rows.state.envs),
        actions=_actions(rows.state),
        best=_ends(rows, worst=False),
        worst=_ends(rows, worst=True),
    )


def _group(rows: BoardRows, lane: int, mask: Mask, num_shown: int) -> Group:
    members = np.flatnonzero(mask & (rows.state.envs.lane[: rows.state.envs.n] == lane))
    return Group(
        gpu_id=lane_name(rows.state, lane),
        n_envs=int(members.size),
        counts=_count([rows.statuses[row] for row in members.tolist()]),
        median_return=_median(rows.returns[members]),
        median_metric=_median(rows.metric[members]),
        median_rent=_median(rows.rent[members]),
        median_fps=_median(rows.fps[members]),
        p10_return=_rank_value(rows.returns[members], 0.1),
        p90_return=_rank_value(rows.returns[members], 0.9),
        hidden=int(members.size) - num_shown,
    )


def detail(rows: BoardRows, feed: tuple[FeedLine, ...], env_id: int) -> Detail:
    """One env: its finished episodes' returns and its lines of the feed, oldest first."""
    row = rows.state.envs.find(env_id)
    if row is None:
        return Detail(env_id=env_id)
    envs = rows.state.envs
    done = int(envs.episodes[row])
    kept = [float(envs.returns[row, episode % RETURNS]) for episode in range(max(0, done - RETURNS), done)]
    lines = tuple(_event_line(line) for line in feed if line.env_id == env_id)
    return Detail(env_id=env_id, history={"return": tuple(kept)}, events=lines)


def _event_line(line: FeedLine) -> str:
    words = [line.slot or "", line.message, *(f"{name}={value}" for name, value in line.fields.items())]
    return " ".join(word for word in words if word)


def lane_name(state: RunState, lane: int) -> str | None:
    """The lane's id, `None` where the env named none."""
    return None if lane < 0 else safe(state.lane_names.words[lane])


def _env(rows: BoardRows, row: int) -> Env:
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
    env_id = int(envs.ids[row])
    return {
        safe(name): _slot(state, row, code, envs.gates.get(f"{env_id}/{name}"))
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
        gate=safe_or_none(gate) if stage not in (Stage.DORMANT, Stage.UNKNOWN) else None,
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


def _count(statuses: list[str]) -> dict[str, int]:
    return {word: statuses.count(word) for word in _STATUSES if word in statuses}


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else None


def _rank_value(values: Floats, share: float) -> float | None:
    """The value below which `share` of the known values lie, by nearest rank."""
    known = np.sort(values[np.isfinite(values)])
    return float(known[round(share * (known.size - 1))]) if known.size else None


def _census(envs: Envs) -> dict[str, int]:
    if not envs.stage.shape[1]:
        return {}
    codes = envs.stage[: envs.n]
    return {
        stage.value: int((codes == stage.code).sum())
        for stage in Stage
        if stage is not Stage.UNKNOWN or (codes == stage.code).any()
    }


def _actions(state: RunState) -> dict[str, float]:
    totals: dict[str, int] = {}
    for counts in state.actions.items:
        for op, count in counts.items():
            totals[op] = totals.get(op, 0) + count
    everything = sum(totals.values())
    known = [op for op in state.op_names.words if op in totals]
    return {safe(op): totals[op] / everything for op in known}


def _ends(rows: BoardRows, *, worst: bool) -> tuple[Best, ...]:
    found = []
    info = rows.state.started.metric if rows.state.started else None
    for field, values, higher_is_better in (
        ("return", rows.returns, True),
        ("metric", rows.metric, info.higher_is_better if info else True),
    ):
        known = np.flatnonzero(np.isfinite(values))
        if not known.size:
            continue
        low = worst == higher_is_better
        row = int(known[np.argmin(values[known]) if low else np.argmax(values[known])])
        found.append(Best(env_id=int(rows.state.envs.ids[row]), field=field, value=float(values[row])))
    return tuple(found)
