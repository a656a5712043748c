"""Any sequence of events of any kind: the fold never raises, and what was bad took nothing else with it."""

from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, event, find, given, settings
from hypothesis import strategies as st

from overwatch import codec
from overwatch.catalog import BY_NAME, Scope
from overwatch.events import Column, Conflated, CurriculumChanged, EpisodeEnded, Event, Measured
from overwatch.fold import FAST_NS, Fold
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import View
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS
from tests.overwatch.otlp import strategies

KEYS = {Scope.ENV: ("env_id",), Scope.SLOT: ("env_id", "slot"), Scope.GPU: ("gpu_id",)}
"""What the rows of a scope are distinguished by; the other scopes have one subject."""
EXTRA = {
    Scope.ENV: ("lane",), Scope.SLOT: ("blueprint",), Scope.GPU: ("label", "node"),
}  # fmt: skip
FEW = st.integers(0, 3)


@st.composite
def reported(draw: st.DrawFn) -> Measured:
    """Measurements with the keys and names that the fold looks for, and columns that may not fit them."""
    scope = draw(st.sampled_from(Scope))
    length = draw(st.integers(1, 3)) if scope in KEYS else 1
    names = [row.name for row in BY_NAME.values() if row.scope is scope] or ["none"]
    chosen = draw(st.lists(st.sampled_from([*names, *EXTRA.get(scope, ())]), max_size=5, unique=True))
    ids = st.lists(FEW, min_size=length, max_size=length, unique=True).map(Column.of)
    words = st.lists(st.sampled_from("abc"), min_size=length, max_size=length).map(Column.of_labels)
    keys = {
        name: draw((ids if name == "env_id" else words) | strategies.columns(length))
        for name in KEYS.get(scope, ())
    }
    ends = st.dictionaries(st.sampled_from(names), st.builds(Column.scalar, st.floats()), max_size=3)
    counts = st.dictionaries(st.sampled_from(names), st.integers(0, 9), max_size=3)
    conflated = st.builds(
        Conflated, n=st.integers(1, 50), low=ends, high=ends, warnings=counts, criticals=counts
    )
    return Measured(
        at=START_NS + draw(st.integers(0, 90)) * SECOND,
        scope=scope,
        keys=keys,
        values={name: draw(strategies.columns(length)) for name in chosen},
        index=draw(st.none() | st.integers(0, 60)),
        conflated=draw(st.none() | conflated),
    )


ANY: st.SearchStrategy[Event] = strategies.EVENTS | reported()


def _batch(stamp: int, events: list[Event], first_seq: int) -> Batch:
    body = request(fakes.records(events, ORIGIN, first_seq), origin_attributes(ORIGIN))
    return Batch(sequence=stamp, stamp=stamp, signal=Signal.LOGS, body=body)


def test_every_kind_of_event_is_tried() -> None:
    """An event that is added to the union is drawn here, or this fails."""
    any_of_it = settings(max_examples=5000, phases=[Phase.generate])
    for kind in get_args(Event):
        drawn = find(ANY, lambda event, kind=kind: isinstance(event, kind), settings=any_of_it)
        assert isinstance(drawn, kind)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANY, max_size=8))
def test_no_sequence_of_events_raises_in_the_fold(events: list[Event]) -> None:
    """Bad ones are counted, a good one after them is folded, every view is drawn and goes over the wire."""
    fold, tick = Fold(), START_NS + 100 * SECOND
    good = fakes.policy(START_NS + 95 * SECOND, index=4242, entropy=0.5)
    views = [(None, View(env_id=env_id)) for env_id in range(4)]
    fold.advance(tick, [_batch(tick - 2, events, 1), _batch(tick - 1, [good], len(events) + 1)], views)
    frame = fold.advance(tick + FAST_NS, [], views)

    assert frame.tower.problems <= len(events)
    assert frame.snapshots["run-1", View()].run.update == 4242
    for snapshot in frame.snapshots.values():
        assert codec.decode(codec.encode(snapshot)) == snapshot
    event(f"{frame.tower.problems} quarantined")
    assert Fold.load(fold.dump()).dump() == fold.dump()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANY, max_size=6), st.lists(ANY, max_size=6))
def test_a_fold_that_was_dumped_goes_on_as_if_nothing_had_been(
    before: list[Event], after: list[Event]
) -> None:
    """A life of its own from a checkpoint's bytes ends in the same bytes, whatever came before and after."""
    tick = START_NS + 100 * SECOND
    first = [_batch(tick - 1, before, 1)] if before else []
    last = [_batch(tick + 1, after, len(before) + 1)] if after else []
    straight, begun = Fold(), Fold()
    straight.advance(tick, first, [])
    begun.advance(tick, first, [])
    resumed = Fold.load(begun.dump())
    for fold in (straight, resumed):
        fold.advance(tick + FAST_NS, last, [])
        fold.advance(tick + 30 * FAST_NS, [], [])

    assert resumed.dump() == straight.dump()


LOUD = (
    Column(dtype="<f4", data=b"\x00\x00\x81\x7f"),
    Column(dtype="<f8", data=b"\x01" + bytes(5) + b"\xf0\x7f"),
)
"""Bits that are no number, of the kind that processors complain about."""


@pytest.mark.parametrize("none", LOUD, ids=["float32", "float64"])
def test_what_is_loudly_no_number_is_none_without_a_word(none: Column) -> None:
    """As an id, a return and a value of an env or a slot; a warning would raise here."""
    one, at, fold = Column.of([1]), START_NS, Fold()
    slot = {"env_id": one, "slot": Column.of_labels(["r0c0"])}
    events: list[Event] = [
        EpisodeEnded(at=at, env_id=one, episode_return=none, metric=none),
        EpisodeEnded(at=at, env_id=none, episode_return=one),
        CurriculumChanged(at=at, name="", env_id=none),
        Measured(at=at, scope=Scope.ENV, keys={"env_id": none}, values={"overwatch.env.reward": one}),
        *(
            Measured(at=at, scope=Scope.ENV, keys={"env_id": one}, values={row.name: none})
            for row in BY_NAME.values()
            if row.scope is Scope.ENV
        ),
        *(
            Measured(at=at, scope=Scope.SLOT, keys=slot, values={row.name: none})
            for row in BY_NAME.values()
            if row.scope is Scope.SLOT
        ),
    ]
    frame = fold.advance(at + SECOND, [_batch(at + 1, events, 1)], [(None, View(env_id=1))])
    (shown,) = {snapshot.run.run_id for snapshot in frame.snapshots.values()}
    assert shown == ORIGIN.run_id
    env = next(env for snapshot in frame.snapshots.values() for env in snapshot.envs)
    assert (env.reward, env.metric, env.rent) == (None, None, None)
