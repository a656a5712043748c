"""Numbers of one step are one update, whatever order they come in."""

from overwatch.adapters.steps import Steps


def test_another_step_finishes_the_update_before() -> None:
    """Three tags of step 1, then one of step 2."""
    steps = Steps()

    assert steps.take(1, {"a": 1.0}) is None
    assert steps.take(1, {"b": 2.0}) is None
    assert steps.take(2, {"a": 3.0}) == {"a": 1.0, "b": 2.0}
    assert steps.rest() == {"a": 3.0}
    assert steps.rest() is None
