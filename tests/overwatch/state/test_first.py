"""The first value of a number, beside which later ones are judged."""

from overwatch.catalog.policy import RETURN, VALUE_LOSS
from overwatch.state.policy import Many, new_series, observe, observe_conflated, rebase


def test_the_first_finite_value_is_kept() -> None:
    """What was not a number is none."""
    series = new_series()
    for value in (float("nan"), 3.0, 1.0, 5.0):
        observe(series, RETURN, RETURN.limits, value)

    assert series.first == 3.0


def test_of_updates_that_came_as_one_it_is_the_least() -> None:
    """The first of them was not sent: a number that jumped with the second would hide it."""
    series = new_series()
    many = Many(n=4, low=1e4, high=4e5)
    observe_conflated(series, VALUE_LOSS, VALUE_LOSS.limits, 4e5, many)

    assert series.first == 1e4


def test_another_task_begins_anew() -> None:
    """What was first under the task before is no measure."""
    series = new_series()
    observe(series, RETURN, RETURN.limits, 3.0)
    rebase(series)
    observe(series, RETURN, RETURN.limits, 7.0)

    assert series.first == 7.0
