"""Several updates in one record: nothing that mattered between them is lost."""

import msgspec
import pytest

from overwatch.catalog import KL
from overwatch.events import Column, Conflated, EarlyStopped, Event, Measured
from overwatch.state.policy import Series
from overwatch.state.run import RunState
from tests import fakes
from tests.fakes import START_NS


def _reported(value: float, conflated: Conflated | None, updates: int = 1) -> tuple[RunState, Series]:
    event = msgspec.structs.replace(
        fakes.policy(START_NS, index=updates, kl_divergence=value), conflated=conflated
    )
    state = fakes.folded([event])
    return state, state.policy[KL.name]


def test_a_breach_between_two_records_is_counted() -> None:
    """One of twenty updates was critical; the value shown is the last one."""
    reported = Conflated(
        n=20,
        low={KL.name: Column.scalar(0.001)},
        high={KL.name: Column.scalar(0.2)},
        criticals={KL.name: 1},
    )
    state, series = _reported(0.002, reported, updates=20)
    assert (state.updates, state.update) == (20, 20)
    assert (series.value, series.criticals, series.warnings) == (0.002, 1, 0)
    assert series.highest == 0.2
    assert series.updates == 20


@pytest.mark.parametrize(("criticals", "bad_of_five"), [(0, 0), (1, 0), (12, 3), (20, 4)])
def test_a_hold_sees_the_share_of_bad_updates(criticals: int, bad_of_five: int) -> None:
    """Three of five is asked of shares: one bad of twenty is no held problem, most of twenty are."""
    high = {KL.name: Column.scalar(0.2)} if criticals else {}
    _, series = _reported(0.002, Conflated(n=21, high=high, criticals={KL.name: criticals}))
    assert sum(status == 2 for status in series.statuses.items) == bad_of_five
    assert len(series.statuses.items) == 5


def test_the_last_of_them_is_counted_once() -> None:
    """Its own status is among those counted."""
    reported = Conflated(n=3, high={KL.name: Column.scalar(0.2)}, criticals={KL.name: 3})
    _, series = _reported(0.2, reported)
    assert series.criticals == 3
    assert list(series.statuses.items) == [2, 2, 2]


TARGET = 0.02
STOPPED_KL = 0.032
"""Beyond the target, and so a warning; within twice the target, and so a stop that worked."""


def _stop(update: int, kl: float = STOPPED_KL) -> EarlyStopped:
    return EarlyStopped(
        at=START_NS, update=update, epoch=2, kl_divergence=kl, target=TARGET, minibatches_skipped=8
    )


def _record(last: int, n: int, warnings: int, value: float = STOPPED_KL) -> Measured:
    """`n` updates up to number `last`, of which so many were beyond the target, the last one too."""
    reported = Conflated(
        n=n,
        low={KL.name: Column.scalar(0.004)},
        high={KL.name: Column.scalar(STOPPED_KL)},
        warnings={KL.name: warnings},
    )
    event = fakes.policy(START_NS, index=last, kl_divergence=value)
    return msgspec.structs.replace(event, conflated=reported)


def _statuses(*events: Event) -> tuple[list[int], int, int]:
    """Newest statuses of KL, its warnings and its criticals."""
    state = fakes.folded([fakes.started(START_NS, config={"target_kl": str(TARGET)}), *events])
    series = state.policy[KL.name]
    return list(series.statuses.items), series.warnings, series.criticals


@pytest.mark.parametrize("stops_first", [True, False])
def test_stops_that_worked_excuse_their_updates_within_a_record(*, stops_first: bool) -> None:
    """All ten updates of a record stopped at 1.6 times the target: not one of them is a breach."""
    stops = [_stop(update) for update in range(21, 31)]
    record = _record(last=30, n=10, warnings=10)
    reported = [*stops, record] if stops_first else [record, *stops]

    assert _statuses(record) == ([1] * 5, 10, 0)
    assert _statuses(*reported) == ([0] * 5, 0, 0)


def test_only_as_many_breaches_are_excused_as_stops_worked() -> None:
    """Four of ten stopped in time: six remain, and the newest ones show their share."""
    stops = [_stop(update) for update in (21, 22, 23, 30)]

    assert _statuses(_record(last=30, n=10, warnings=10), *stops) == ([0, 1, 1, 1, 0], 6, 0)


@pytest.mark.parametrize(
    "stops",
    [[_stop(20), _stop(31)], [_stop(25, kl=0.05)], [_stop(25, kl=0.01)]],
    ids=["of other updates", "came too late", "below the limit anyway"],
)
def test_other_stops_excuse_nothing(stops: list[Event]) -> None:
    """A stop speaks for its own update, and only where it kept KL within twice its target."""
    record = _record(last=30, n=10, warnings=10)

    assert _statuses(record, *stops) == _statuses(record)


def test_a_stop_that_is_sent_twice_excuses_once() -> None:
    """Every rank stops at the same update, and each sends it."""
    stops = [_stop(25), _stop(25), _stop(25)]

    assert _statuses(_record(last=30, n=10, warnings=10), *stops)[1:] == (9, 0)


def test_a_record_does_not_hide_the_updates_before_it() -> None:
    """A short record leaves the older statuses as they were when its own are excused."""
    before = [fakes.policy(START_NS, index=i, kl_divergence=STOPPED_KL) for i in range(1, 6)]
    reported = [*before, _record(last=7, n=2, warnings=2), _stop(6), _stop(7)]

    assert _statuses(*reported) == ([1, 1, 1, 0, 0], 5, 0)


def test_no_update_is_worse_than_the_extremes_of_its_record() -> None:
    """A sender that counts by other limits than the run's target: its highest KL shows what can be true."""
    reported = _record(last=30, n=10, warnings=0)
    assert reported.conflated is not None
    by_preset = msgspec.structs.replace(reported.conflated, criticals={KL.name: 9}, warnings={})
    calm = msgspec.structs.replace(by_preset, high={KL.name: Column.scalar(0.019)})

    assert _statuses(msgspec.structs.replace(reported, conflated=by_preset)) == ([1] * 5, 9, 0)
    calm_event = fakes.policy(START_NS, index=30, kl_divergence=0.018)
    assert _statuses(msgspec.structs.replace(calm_event, conflated=calm)) == ([0] * 5, 0, 0)


def test_steps_that_came_as_one_record_are_all_counted() -> None:
    """The first record of a run may stand for several steps."""
    event = fakes.envs(START_NS, range(4), index=12, reward=[0.0] * 4)
    assert fakes.folded([msgspec.structs.replace(event, conflated=Conflated(n=3, first=1))]).steps == 48
