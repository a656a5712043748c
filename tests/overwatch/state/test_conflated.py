"""Several updates in one record: nothing that mattered between them is lost."""

import msgspec
import pytest

from overwatch.catalog import KL
from overwatch.events import Column, Conflated
from overwatch.state.policy import Series
from overwatch.state.run import RunState
from tests import fakes
from tests.fakes import START_NS


def _told(value: float, conflated: Conflated | None, updates: int = 1) -> tuple[RunState, Series]:
    event = msgspec.structs.replace(
        fakes.policy(START_NS, index=updates, kl_divergence=value), conflated=conflated
    )
    state = fakes.folded([event])
    return state, state.policy[KL.name]


def test_a_breach_between_two_records_is_counted() -> None:
    """One of twenty updates was critical; the value shown is the last one."""
    told = Conflated(
        n=20,
        low={KL.name: Column.scalar(0.001)},
        high={KL.name: Column.scalar(0.2)},
        criticals={KL.name: 1},
    )
    state, series = _told(0.002, told, updates=20)
    assert (state.updates, state.update) == (20, 20)
    assert (series.value, series.criticals, series.warnings) == (0.002, 1, 0)
    assert series.highest == 0.2
    assert series.updates == 20


@pytest.mark.parametrize(("criticals", "bad_of_five"), [(0, 0), (1, 0), (12, 3), (20, 4)])
def test_a_hold_sees_the_share_of_bad_updates(criticals: int, bad_of_five: int) -> None:
    """Three of five is asked of shares: one bad of twenty is no held problem, most of twenty are."""
    high = {KL.name: Column.scalar(0.2)} if criticals else {}
    _, series = _told(0.002, Conflated(n=21, high=high, criticals={KL.name: criticals}))
    assert sum(status == 2 for status in series.statuses.items) == bad_of_five
    assert len(series.statuses.items) == 5


def test_the_last_of_them_is_counted_once() -> None:
    """Its own status is among those counted."""
    told = Conflated(n=3, high={KL.name: Column.scalar(0.2)}, criticals={KL.name: 3})
    _, series = _told(0.2, told)
    assert series.criticals == 3
    assert list(series.statuses.items) == [2, 2, 2]
