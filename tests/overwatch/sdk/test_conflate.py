"""Many updates become one, and what mattered in them is still there."""

import math

from hypothesis import given
from hypothesis import strategies as st

from overwatch.events import Measured, NonFiniteSeen
from overwatch.sdk.conflate import Conflator, Folded

KL = "overwatch.policy.kl_divergence"


def folded(values: list[float], name: str = KL) -> Folded:
    """So many updates of one name."""
    conflator = Conflator()
    for at, value in enumerate(values):
        conflator.add(at, {name: value}, index=at)
    found = conflator.flush()
    assert found is not None
    return found


def test_nothing_folds_to_nothing() -> None:
    """Without an update there is nothing to report, and what was taken is reported once."""
    conflator = Conflator()
    assert conflator.flush() is None
    conflator.add(1, {KL: 0.01})
    assert conflator.flush() is not None
    assert conflator.flush() is None
    assert conflator.n == 0


def test_breaches_are_counted_by_the_limits_of_the_run() -> None:
    """A run that declared a target for KL is judged by it here as in the tower."""
    conflator = Conflator(config={"target_kl": "0.1"})
    for at, value in enumerate((0.05, 0.15, 0.25)):
        conflator.add(at, {KL: value})
    found = conflator.flush()
    assert found is not None
    assert (found.values[KL].warnings, found.values[KL].criticals) == (1, 1)


def test_a_value_that_was_not_finite_is_a_fact() -> None:
    """A NaN and an infinity before a finite last value are reported, each kind once with its count."""
    events = list(folded([0.01, math.nan, math.nan, math.inf, 0.01]).events())
    seen = {event.kind: event.count for event in events if isinstance(event, NonFiniteSeen)}
    assert seen == {"nan": 2, "inf": 1}


def test_a_last_value_that_is_not_finite_is_left_to_its_measurement() -> None:
    """What the measurement shows by itself is not reported twice."""
    events = list(folded([0.01, math.nan]).events())
    assert [type(event) for event in events] == [Measured]


def test_names_that_came_less_often_have_their_own_count() -> None:
    """A name of one update in three does not count as three updates, nor as one more."""
    conflator = Conflator()
    conflator.add(1, {KL: 0.01})
    conflator.add(2, {KL: 0.01, "overwatch.custom.eval": 3.0})
    conflator.add(3, {KL: 0.01})
    found = conflator.flush()
    assert found is not None
    events = [event for event in found.events() if isinstance(event, Measured)]
    assert [(set(event.values), event.conflated and event.conflated.n) for event in events] == [
        ({KL}, 3),
        ({"overwatch.custom.eval"}, 1),
    ]
    assert [event.updates(None) for event in events] == [3, 0]


@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_extremes_and_counts_are_those_of_the_values(values: list[float]) -> None:
    """Whatever the values: the finite extremes, the last, and every value counted once."""
    series = folded(values).values[KL]
    finite = [value for value in values if math.isfinite(value)]
    assert series.low == min(finite, default=None)
    assert series.high == max(finite, default=None)
    assert series.n == len(values) == len(finite) + series.nan + series.inf
    assert series.last == values[-1] or math.isnan(values[-1])
    assert series.criticals == sum(value > 0.03 for value in finite)
    assert series.warnings == sum(0.015 < value <= 0.03 for value in finite)


@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=50), st.integers(1, 50))
def test_updates_folded_together_are_as_those_folded_one_by_one(
    rows: list[tuple[float, float]], cut: int
) -> None:
    """Wherever the updates are cut, the same is kept of each name."""
    names = (KL, "overwatch.policy.entropy")
    single, many = Conflator(together=1), Conflator(together=cut)
    for conflator in (single, many):
        for at, row in enumerate(rows):
            conflator.add_row(names, row, at, at)
    assert str(many.flush()) == str(single.flush())


def test_breaches_on_both_sides_are_counted() -> None:
    """A row that is healthy in between counts what is too low as well as what is too high."""
    conflator = Conflator("esper")
    for value in (0.05, 0.3, 1.0, 2.5, 3.5):
        conflator.add(1, {"overwatch.policy.advantage_std": value})

    folded = conflator.flush()

    assert folded is not None
    series = folded.values["overwatch.policy.advantage_std"]
    assert (series.warnings, series.criticals) == (2, 2)
