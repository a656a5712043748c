"""What a resumed run repeats: steps and updates that another life of the same producer has reported.

A life that was killed had gone beyond its last checkpoint, and the next one does that part again under the
same numbers. It counts once, whichever of the two comes first: an old life's spool may arrive after the new
one. Lives that are no resumes of one another repeat nothing. Must not know what is counted.
"""

from collections.abc import Iterator

from overwatch.events import Measured
from overwatch.state.run import RunState
from overwatch.state.sources import Source, Span


def begin(state: RunState, source: Source, resumed: int | None) -> None:
    """Note that a life began; one that is no resume has nothing to do with those before it."""
    source.resumed = resumed is not None
    if source.resumed:
        state.has_resumed = True
        return
    for other in _others(state, source):
        if other.first_at < source.first_at:
            other.steps, other.updates = Span(), Span()


def has_total_of_run(state: RunState, source: Source) -> bool:
    """Whether the totals of a life are the run's, not its own: it goes on, or another does from it."""
    if source.resumed or not state.has_resumed:
        return source.resumed
    return any(one.resumed and one.first_at > source.first_at for one in _others(state, source))


def is_counted(state: RunState, source: Source, step: int | None) -> bool:
    """Whether another life has reported what happened at a step; notes that this one has."""
    if step is None:
        return False
    counted = any(other.steps.shared(step, step) for other in _related(state, source))
    source.steps.widen(step, step)
    return counted


def updates_counted(state: RunState, source: Source, event: Measured) -> int:
    """How many updates of a record another life has reported; notes that this one has."""
    last = event.index
    if last is None:
        return 0
    given = None if event.conflated is None else event.conflated.first
    first = last if given is None or given > last else given
    shared = max((other.updates.shared(first, last) for other in _related(state, source)), default=0)
    source.updates.widen(first, last)
    return event.updates(None) * shared // (last - first + 1)


def _related(state: RunState, source: Source) -> Iterator[Source]:
    """The other lives of which one has gone on from the other."""
    if state.has_resumed:
        yield from (other for other in _others(state, source) if source.resumed or other.resumed)


def _others(state: RunState, source: Source) -> Iterator[Source]:
    return (one for one in state.sources.values() if one is not source and one.name == source.name)
