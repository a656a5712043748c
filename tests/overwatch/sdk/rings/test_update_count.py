"""The run's number of updates is the number of updates that its trainer reported, however they were sent."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from overwatch.events import Event, Measured
from overwatch.journal import Signal
from overwatch.otlp.batch_editor import fold
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import origin_attributes, request
from overwatch.sdk.rings.ringset import RingLimits
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import ORIGIN, START_NS
from tests.overwatch.sdk.rings.calling import called

ROOMY = RingLimits(numbers_bytes=512 << 10, facts_bytes=64 << 10, forms_bytes=16 << 10)
TINY = RingLimits(numbers_bytes=16 << 10, facts_bytes=16 << 10, forms_bytes=4 << 10, backlog_bytes=64 << 10)
NAMES: Sequence[dict[str, float]] = (
    {"kl_divergence": 0.01, "entropy": 0.5},
    {"kl_divergence": 0.01, "entropy": 0.5, "return": 1.0},
    {"return": 2.0},
    {"mine": 1},
    {},
)


def _state(events: Sequence[Event]) -> RunState:
    """The run after these events have crossed the wire."""
    body = request(fakes.records(events), origin_attributes(ORIGIN))
    records = decode(Signal.LOGS, body).records
    assert len(records) == len(events)
    state = new_run(records[0])
    for place, record in enumerate(records):
        apply(state, record, START_NS + place)
    return state


def _thinned(events: Sequence[Measured]) -> list[Measured]:
    """The same events with those of the same names folded into one, apart from those without a number."""
    alike: dict[tuple[bool, frozenset[str]], list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        alike[event.index is None, frozenset(event.values)].append(place)
    left = {
        places[kept]: event
        for places in alike.values()
        for kept, event in fold([events[place] for place in places])
    }
    return [left[place] for place in sorted(left)]


calls = st.tuples(st.integers(0, len(NAMES) - 1), st.sampled_from([None, 0, 1, 1]), st.integers(0, 9))


@example(run=[(0, None, 1), (1, 0, 1), (0, 0, 1), (1, None, 0)], times=1, limits=ROOMY, reading="single")
@example(run=[(0, None, 0), (1, None, 0)] * 20, times=1, limits=ROOMY, reading="many")
@example(run=[(0, None, 0)] * 39 + [(3, None, 0)], times=1, limits=ROOMY, reading="many")
@example(run=[(0, 1, 0), (2, 0, 0)], times=40, limits=ROOMY, reading="many")
@example(run=[(0, 1, 1), (2, 0, 1)], times=40, limits=ROOMY, reading="single")
@example(run=[(0, 1, 0), (0, 0, 0)], times=300, limits=TINY, reading="single")
@given(
    st.lists(calls, min_size=1, max_size=12),
    st.integers(1, 30),
    st.sampled_from([ROOMY, TINY]),
    st.sampled_from(["single", "many"]),
)
def test_the_count_of_updates_is_exact_for_every_mix_of_names(
    run: list[tuple[int, int | None, int]], times: int, limits: RingLimits, reading: str
) -> None:
    """With and without numbers, one number in several calls, windows anywhere, also with a full ring."""
    with called(limits, reading) as path:
        indices: list[int | None] = []
        newest = 0
        for names, step, reads in run * times:
            newest += step or 0
            indices.append(None if step is None else newest)
            path.run.update(update=indices[-1], **NAMES[names])
            if reads in (1, 2):
                path.read()
            if reads == 1:
                path.close_window()
        path.read_all()
        again = sum(index is not None and index == before for before, index in pairwise(indices))
        assert _state(path.events).updates == len(indices) - again
        numbers = [index for index in indices if index is not None]
        if len(set(numbers)) == len(numbers) - again:
            assert _state(_thinned(path.events)).updates == len(indices) - again
