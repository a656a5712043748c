"""Envs and values of envs that ended: nothing of them is left in what the run is judged by.

Rules: a removed env that speaks of a later time is a new env; what it said before it was removed, and came
late, is not kept. Counters of the run (steps, episodes, crashes) go on: they count what happened.
"""

from typing import Final

import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.events import EnvsRemoved
from overwatch.state.arrays import Ints
from overwatch.state.places import ids_in
from overwatch.state.run import RunState
from overwatch.state.trends import MEASURES

EVICTED: Final = "silent env"
"""What evicted envs are counted as."""


def remove(state: RunState, event: EnvsRemoved) -> None:
    """Forget the envs, or the values of them that ended; an env without any value left ends too."""
    ids = np.unique(ids_in(event.env_id))
    if event.metrics:
        rows = [BY_NAME[name] for name in event.metrics if name in BY_NAME]
        shorts = [row.short for row in rows if row.scope is Scope.ENV and row.short in MEASURES]
        ids = state.envs.end(ids, shorts, event.at)
    if ids.size:
        state.envs.remove(ids, event.at)
        _count_actions(state)


def evict(state: RunState, rows: Ints) -> int:
    """Forget envs without a removal of theirs; how many."""
    evicted = state.envs.evict(rows)
    if evicted.size:
        state.overflow.note(EVICTED, str(evicted[0]), int(evicted.size))
        _count_actions(state)
    return int(evicted.size)


def forget_late(state: RunState) -> None:
    """Drop envs that came back only because something of before their removal came after it."""
    if state.envs.drop_late():
        _count_actions(state)


def _count_actions(state: RunState) -> None:
    """The action mix again, from what the living envs did last: steps do not tell whose actions they hold."""
    taken = state.envs.actions.op[: state.envs.n]
    counts = np.bincount(taken[taken >= 0], minlength=len(state.op_names.words)).tolist()
    mix = {word: n for word, n in zip(state.op_names.words, counts, strict=True) if n}
    state.actions.items = [mix] if mix else []
