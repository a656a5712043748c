"""The rows of the flight board: many envs at once, each column read in one piece.

Selects and formats; must not know which envs are shown, or in which order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from overwatch.catalog.stages import BY_CODE
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.rollups import fps_of
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Anomaly, Env, Slot
from overwatch.state.run import RunState

if TYPE_CHECKING:
    from overwatch.projection.board import BoardRows

_STAGES: Final = tuple((stage.value, stage.glyph, stage.shows_blueprint) for stage in BY_CODE)

_CALM: Final = Anomaly(score=0.0, reasons=())


def env_views(rows: "BoardRows", shown: Sequence[int]) -> tuple[Env, ...]:
    """The board's rows of these rows of the table."""
    envs, at = rows.state.envs, np.array(shown, dtype=np.int64)
    lanes = [safe(name) for name in rows.state.lane_names.words]
    actions, slots = _actions(rows.state, at), _slots(rows.state, at)
    ids, lane = envs.ids[at].tolist(), envs.lane[at].tolist()
    words, scores = rows.words(at), rows.anomalies.scores[at].tolist()
    rewards, returns = numbers(rows.reward[at]), numbers(envs.mean_return(at))
    metrics, rents = numbers(rows.metric[at]), numbers(rows.rent[at])
    steps, fps = numbers(rows.step_time[at]), numbers(fps_of(rows.step_time[at]))
    return tuple(
        Env(
            env_id=ids[place],
            gpu_id=None if lane[place] < 0 else lanes[lane[place]],
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
    )


def _anomaly(rows: "BoardRows", row: int, score: float) -> Anomaly:
    return Anomaly(score=score, reasons=tuple(safe(reason) for reason in rows.anomalies.reasons(row)))


def lane_anomaly(judged: Judged, name: str | None) -> Anomaly | None:
    """How far a lane is from the others; `None` for one that is not known."""
    found = None if name is None else judged.lanes.get(name)
    if found is None:
        return None
    return Anomaly(score=found.score, reasons=tuple(map(safe, found.reasons)))


def numbers(values: np.ndarray) -> list[float | None]:
    """Finite floats; `None` for what is not."""
    told: list[float] = values.tolist()
    return [value if value - value == 0 else None for value in told]


def _actions(state: RunState, at: np.ndarray) -> list[str | None]:
    """The newest action of each env, e.g. `GROW r0c1`; `None` before the first."""
    actions = state.envs.actions
    place = (actions.count[at] - 1) % actions.op.shape[1]
    ops = np.where(actions.count[at] > 0, actions.op[at, place], -1).tolist()
    words = [safe(word.upper()) for word in state.op_names.words]
    names = [safe(name) for name in state.slot_names.words]
    return [
        None if op < 0 else words[op] if slot < 0 else f"{words[op]} {names[slot]}"
        for op, slot in zip(ops, actions.slot[at, place].tolist(), strict=True)
    ]


def _slots(state: RunState, at: np.ndarray) -> list[dict[str, Slot]]:
    """The slots of each env that has any, by name."""
    envs = state.envs
    names = [safe(name) for name in state.slot_names.words[: envs.stage.shape[1]]]
    if not names:
        return [{} for _ in range(at.size)]
    blueprints = [safe(name) for name in state.blueprint_names.words]
    width = len(names)
    stages, prints = envs.stage[at, :width].ravel().tolist(), envs.blueprint[at, :width].ravel().tolist()
    ages = envs.age[at, :width].ravel().tolist()
    alphas, grads = numbers(envs.alpha[at, :width].ravel()), numbers(envs.grad[at, :width].ravel())
    found = []
    for place, env_id in enumerate(envs.ids[at].tolist()):
        gates, slots = envs.gates.get(env_id), {}
        for code, cell in enumerate(range(place * width, place * width + width)):
            if stages[cell] < 0:
                continue
            value, glyph, named = _STAGES[stages[cell]]
            slots[names[code]] = Slot(
                stage=value,
                glyph=glyph,
                blueprint=blueprints[prints[cell]] if named and prints[cell] >= 0 else None,
                alpha=alphas[cell],
                age=None if ages[cell] < 0 else ages[cell],
                gate=safe_or_none(gates.get(state.slot_names.words[code])) if named and gates else None,
                grad=grads[cell] if named else None,
            )
        found.append(slots)
    return found
