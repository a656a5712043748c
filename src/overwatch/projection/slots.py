"""The slots of many envs at once, as the flight board shows them: each field a column, slot after slot.

Selects and formats; must not know which envs are shown, or in which order.
"""

from typing import Final

import numpy as np

from overwatch.catalog.stages import BY_CODE
from overwatch.projection.text import safe_all, safe_or_none
from overwatch.snapshot import Slot
from overwatch.state.envs import Envs
from overwatch.state.places import Mask
from overwatch.state.run import RunState

# By stage code; the last place is that of -1, which is no slot.
_WORDS: Final = np.array([*(stage.value for stage in BY_CODE), ""], dtype=np.object_)
_GLYPHS: Final = np.array([*(stage.glyph for stage in BY_CODE), ""], dtype=np.object_)
_NAMED: Final = np.array([*(stage.shows_blueprint for stage in BY_CODE), False])
"""Whether a stage shows what grows there."""


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
    named, nothing = _NAMED[stages], [None] * stages.size
    blueprints = state.blueprint_names.words
    cells = zip(
        found * len(words),
        [name for name in safe_all(words) for _ in found],
        (stages >= 0).tolist(),
        _WORDS[stages].tolist(),
        _GLYPHS[stages].tolist(),
        _named(blueprints, np.where(named, column(envs.blueprint), -1)) if blueprints else nothing,
        numbers(column(envs.alpha)),
        _told(ages, ages >= 0),
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
    return _told(values, np.isfinite(values))


def _told(values: np.ndarray, known: Mask) -> list[float | None]:
    found: list[float | None] = values.tolist()
    if known.all():
        return found
    return [value if is_known else None for value, is_known in zip(found, known.tolist(), strict=True)]


def _named(words: list[str], codes: np.ndarray) -> list[str | None]:
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
