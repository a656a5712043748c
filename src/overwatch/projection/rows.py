"""The rows of the flight board: many envs at once, each column read in one piece.

Selects and formats; must not know which envs are shown, or in which order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from overwatch.diagnose.assess import Judged
from overwatch.diagnose.rollups import fps_of
from overwatch.projection.slots import numbers, slots_of
from overwatch.projection.text import safe, safe_all
from overwatch.snapshot import Anomaly, Env
from overwatch.state.run import RunState

if TYPE_CHECKING:
    from overwatch.projection.board import BoardRows

_CALM: Final = Anomaly(score=0.0, reasons=())


def env_views(rows: "BoardRows", shown: Sequence[int]) -> tuple[Env, ...]:
    """The board's rows of these rows of the table."""
    envs, at = rows.state.envs, np.array(shown, dtype=np.int64)
    actions, slots = _actions(rows.state, at), slots_of(rows.state, at)
    ids, lanes = envs.ids[at].tolist(), [rows.lane_names[lane] for lane in envs.lane[at].tolist()]
    words, scores = rows.words(at), rows.anomalies.scores[at].tolist()
    rewards, returns, metrics, rents, steps, fps = _columns(rows, at)
    return tuple(
        [
            Env(
                env_id=ids[place],
                gpu_id=lanes[place],
                status=words[place],
                reward=rewards[place],
                episode_return=returns[place],
                metric=metrics[place],
                rent=rents[place],
                step_time_s=steps[place],
                fps=fps[place],
                last_action=actions[place],
                stale=rows.stale,
                anomaly=_anomaly(rows, row, scores[place]) if scores[place] else _CALM,
                slots=slots[place],
            )
            for place, row in enumerate(shown)
        ]
    )


def _columns(rows: "BoardRows", at: np.ndarray) -> list[list[float | None]]:
    """Reward, return, metric, rent, step time and steps a second of each row."""
    step_time = rows.step_time[at]
    returns = rows.state.envs.mean_return(at)
    every = (rows.reward[at], returns, rows.metric[at], rows.rent[at], step_time, fps_of(step_time))
    told = numbers(np.concatenate(every))
    return [told[place * at.size : (place + 1) * at.size] for place in range(len(every))]


def _anomaly(rows: "BoardRows", row: int, score: float) -> Anomaly:
    return Anomaly(score=score, reasons=tuple(safe(reason) for reason in rows.anomalies.reasons(row)))


def lane_anomaly(judged: Judged, name: str | None) -> Anomaly | None:
    """How far a lane is from the others; `None` for one that is not known."""
    found = None if name is None else judged.lanes.get(name)
    if found is None:
        return None
    return Anomaly(score=found.score, reasons=tuple(map(safe, found.reasons)))


def _actions(state: RunState, at: np.ndarray) -> list[str | None]:
    """The newest action of each env, e.g. `GROW r0c1`; `None` before the first."""
    actions = state.envs.actions
    if not state.op_names.words:
        return [None] * at.size
    place = (actions.count[at] - 1) % actions.op.shape[1]
    ops = np.where(actions.count[at] > 0, actions.op[at, place], -1).tolist()
    words = [safe(word.upper()) for word in state.op_names.words]
    names = safe_all(state.slot_names.words)
    return [
        None if op < 0 else words[op] if slot < 0 else f"{words[op]} {names[slot]}"
        for op, slot in zip(ops, actions.slot[at, place].tolist(), strict=True)
    ]
