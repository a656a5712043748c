"""The rows of the flight board: many envs at once with their slots, each column read in one piece.

Selects and formats; must not know which envs are shown, or in which order.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from overwatch.catalog.stages import BY_CODE
from overwatch.diagnose.anomaly import STATUSES
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.fleet import fps_of
from overwatch.projection.text import safe, safe_all, safe_or_none
from overwatch.snapshot import Anomaly, Env, Slot
from overwatch.state.arrays import Floats, Ints
from overwatch.state.envs import Envs
from overwatch.state.places import Mask
from overwatch.state.run import RunState

UNKNOWN: Final = len(STATUSES)
WORDS: Final = (*STATUSES, "unknown")
_CALM: Final = Anomaly(score=0.0, reasons=())
# By stage code; the last place is that of -1, which is no slot.
_STAGE_WORDS: Final = np.array([*(stage.value for stage in BY_CODE), ""], dtype=np.object_)
_GLYPHS: Final = np.array([*(stage.glyph for stage in BY_CODE), ""], dtype=np.object_)
_SHOWS_BLUEPRINT: Final = np.array([*(stage.shows_blueprint for stage in BY_CODE), False])
"""Whether a stage shows what grows there."""


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
        self.codes: Ints = np.where(codes == 0, UNKNOWN, codes) if self.stale else codes
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
        return [WORDS[code] for code in self.codes[at].tolist()]

    def of_status(self, wanted: Callable[[str], bool]) -> Mask:
        """Which envs have a status that is wanted, shape (n,)."""
        hits = np.array([wanted(word) for word in WORDS], dtype=np.bool_)
        return hits[self.codes]


def present(envs: Envs, name: str) -> Floats:
    """One measure of all envs, shape (n,); NaN where it was never measured."""
    return envs.values[name][: envs.n]


def number(value: float) -> float | None:
    """A finite float, else `None`."""
    return float(value) if np.isfinite(value) else None


def env_views(rows: BoardRows, shown: Sequence[int]) -> tuple[Env, ...]:
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


def _columns(rows: BoardRows, at: np.ndarray) -> list[list[float | None]]:
    """Reward, return, metric, rent, step time and steps a second of each row."""
    step_time = rows.step_time[at]
    returns = rows.state.envs.mean_return(at)
    every = (rows.reward[at], returns, rows.metric[at], rows.rent[at], step_time, fps_of(step_time))
    flat = numbers(np.concatenate(every))
    return [flat[place * at.size : (place + 1) * at.size] for place in range(len(every))]


def _anomaly(rows: BoardRows, row: int, score: float) -> Anomaly:
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


def slots_of(state: RunState, at: np.ndarray) -> list[dict[str, Slot]]:
    """The slots of each of these rows that has any, by name."""
    envs = state.envs
    found: list[dict[str, Slot]] = [{} for _ in range(at.size)]
    words = state.slot_names.words[: envs.stage.shape[1]]
    if not words:
        return found

    def column(grid: np.ndarray) -> np.ndarray:
        return grid.take(at, axis=0)[:, : len(words)].T.ravel()

    stages, ages = column(envs.stage), column(envs.age)
    named, nothing = _SHOWS_BLUEPRINT[stages], [None] * stages.size
    blueprints = state.blueprint_names.words
    cells = zip(
        found * len(words),
        [name for name in safe_all(words) for _ in found],
        (stages >= 0).tolist(),
        _STAGE_WORDS[stages].tolist(),
        _GLYPHS[stages].tolist(),
        _words_of(blueprints, np.where(named, column(envs.blueprint), -1)) if blueprints else nothing,
        numbers(column(envs.alpha)),
        _where_known(ages, ages >= 0),
        _gates(envs, words, at, named),
        numbers(np.where(named, column(envs.grad), np.nan)) if envs.graded else nothing,
        strict=True,
    )
    for slots, name, is_there, stage, glyph, blueprint, alpha, age, gate, grad in cells:
        if is_there:
            slots[name] = Slot(
                stage=stage, glyph=glyph, blueprint=blueprint, alpha=alpha, age=age, gate=gate, grad=grad
            )
    return found


def numbers(values: np.ndarray) -> list[float | None]:
    """Finite floats; `None` for what is not."""
    return _where_known(values, np.isfinite(values))


def _where_known(values: np.ndarray, known: Mask) -> list[float | None]:
    found: list[float | None] = values.tolist()
    if known.all():
        return found
    return [value if is_known else None for value, is_known in zip(found, known.tolist(), strict=True)]


def _words_of(words: list[str], codes: np.ndarray) -> list[str | None]:
    """The word of each code; -1 has none."""
    found: list[str | None] = np.array([*safe_all(words), None], dtype=np.object_)[codes].tolist()
    return found


def _gates(envs: Envs, words: list[str], at: np.ndarray, named: Mask) -> list[str | None]:
    """The last gate of each slot that shows what grows there."""
    found: list[str | None] = [None] * named.size
    if not envs.gates:
        return found
    shown = named.tolist()
    for place, env_id in enumerate(envs.ids[at].tolist()):
        passed = envs.gates.get(env_id, {})
        for slot, word in enumerate(words):
            cell = slot * at.size + place
            if passed and shown[cell]:
                found[cell] = safe_or_none(passed.get(word))
    return found
