"""How many of each kind one run may have, and envs that end: what is beyond is left out and counted.

Rules: a cap never harms what was there before it was reached; a record about known and unknown subjects loses
only the unknown. Nothing of an env that ended is left in what the run is judged by: a removed env that
reports a later time is a new env; what it sent before it was removed, and came late, is not kept. Counters of
the run (steps, episodes, crashes) go on: they count what happened.
"""

from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.events import Column, EnvsRemoved, Event, LogLine, Measured, NonFiniteSeen, Origin
from overwatch.state.arrays import Ints
from overwatch.state.env_tables import FURTHER, MEASURES
from overwatch.state.places import ids_in
from overwatch.state.run import RunState
from overwatch.state.sources import Source, holder_of, source_key

EVICTED: Final = "silent env"
"""What evicted envs are counted as."""


def remove(state: RunState, event: EnvsRemoved) -> None:
    """Forget the envs, or the values of them that ended; an env without any value left ends too."""
    ids = np.unique(ids_in(event.env_id))
    if event.metrics:
        rows = [BY_NAME[name] for name in event.metrics if name in BY_NAME]
        shorts = [row.short for row in rows if row.scope is Scope.ENV and row.short in {*MEASURES, *FURTHER}]
        ids = state.envs.end(ids, shorts, event.at)
    if ids.size:
        state.envs.remove(ids, event.at)
        gone = set(ids.tolist())
        state.best.episodes = [one for one in state.best.episodes if one.env_id not in gone]
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
    """The action mix again, from what the living envs did last: steps do not show whose actions they hold."""
    taken = state.envs.actions.op[: state.envs.n]
    counts = np.bincount(taken[taken >= 0], minlength=len(state.op_names.words)).tolist()
    mix = {word: n for word, n in zip(state.op_names.words, counts, strict=True) if n}
    state.actions.items = [mix] if mix else []


_WHOLE: Final = (EnvsRemoved, LogLine)
MAX_SOURCES: Final = 1024
"""Lives of producers remembered; the one that was silent for longest goes first, the run's holder never."""


def within(state: RunState, event: Event) -> Event | None:
    """The part of an event that is about envs there is room for; `None` where nothing is left."""
    if isinstance(event, _WHOLE):
        return event
    if isinstance(event, NonFiniteSeen):
        return _known(state, event)
    env_id = _env_id(event)
    if isinstance(env_id, Column):
        beyond = state.envs.n + len(env_id) > state.envs.most and not state.envs.knows(env_id)
        return _part(state, event, env_id) if beyond else event
    if isinstance(env_id, int) and state.envs.n >= state.envs.most and state.envs.find(env_id) is None:
        state.overflow.note("env", str(env_id))
        return None
    return event


def wants_room(state: RunState, event: Event) -> bool:
    """Whether an event may be about more envs than there is room for."""
    env_id = _env_id(event)
    many = len(env_id) if isinstance(env_id, Column) else isinstance(env_id, int)
    return bool(many) and state.envs.n + many > state.envs.most


def _env_id(event: Event) -> object:
    return event.keys.get("env_id") if isinstance(event, Measured) else getattr(event, "env_id", None)


def _known(state: RunState, event: NonFiniteSeen) -> Event:
    """A non-finite value is a fact of whichever env: only the names of envs without room go."""
    if state.envs.n + len(event.env_ids) <= state.envs.most:
        return event
    known = tuple(one for one in event.env_ids if state.envs.find(one) is not None)
    return msgspec.structs.replace(event, env_ids=known)


def _part(state: RunState, event: Event, env_id: Column) -> Event | None:
    ids = ids_in(env_id)
    known = np.isin(ids, state.envs.ids[: state.envs.n])
    fresh = np.unique(ids[~known])
    beyond = fresh[max(0, state.envs.most - state.envs.n) :]
    if not beyond.size:
        return event
    for one in beyond[:8].tolist():
        state.overflow.note("env", str(one), 0)
    state.overflow.note("env", str(beyond[0]), int(beyond.size))
    kept = ~np.isin(ids, beyond)
    return _cut(event, kept) if kept.any() else None


def _cut(event: Event, kept: np.ndarray) -> Event:
    """The rows of an event that are kept, in every column that has one for each subject."""
    if isinstance(event, Measured):
        keys = {name: _rows(column, kept) for name, column in event.keys.items()}
        values = {name: _rows(column, kept) for name, column in event.values.items()}
        return msgspec.structs.replace(event, keys=keys, values=values)
    columns = {
        name: _rows(value, kept)
        for name in event.__struct_fields__
        if isinstance(value := getattr(event, name), Column)
    }
    cut: Event = msgspec.structs.replace(event, **columns)
    return cut


def _rows(column: Column, kept: np.ndarray) -> Column:
    if len(column) != kept.size:
        return column
    return Column(dtype=column.dtype, data=column.array()[kept].tobytes(), labels=column.labels)


def source_of(state: RunState, origin: Origin) -> Source:
    """The life that sends, new or known; one too many takes the place of the one silent for longest."""
    key = source_key(origin)
    source = state.sources.get(key)
    if source is None:
        if len(state.sources) >= MAX_SOURCES:
            holder = holder_of(state.sources)
            others = (known for known in state.sources if known != holder)
            oldest = min(others, key=lambda known: state.sources[known].stamp)
            state.overflow.note("producer", state.sources.pop(oldest).name)
        source = state.sources[key] = Source(
            name=f"{origin.role} {origin.rank}", rank=origin.rank, promised=origin.ours
        )
    return source
