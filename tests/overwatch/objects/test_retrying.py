"""What fails is repeated, with jitter, until a deadline."""

import pytest

from overwatch.objects.retrying import Patience, Tries


def waits(share: float, deadline_s: float) -> list[float]:
    """The waits of an operation that always fails, when the draw gives that share of the longest."""
    now, found = [0.0], []

    def sleep(seconds: float) -> None:
        found.append(seconds)
        now[0] += seconds

    patience = Patience(deadline_s=deadline_s, first_s=1.0, most_s=4.0)
    for _ in Tries(patience, clock=lambda: now[0], sleep=sleep, draw=lambda low, high: low + share * high):
        now[0] += 0.5  # What the try itself takes.
    return found


def test_waits_double_up_to_the_longest_and_end_with_the_deadline() -> None:
    """The last try begins before it."""
    assert waits(1.0, 20.0) == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert waits(0.5, 20.0) == [0.5, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_there_is_one_try_at_least() -> None:
    """Also where no wait fits before the deadline."""
    assert waits(1.0, 0.1) == []


def test_draws_differ() -> None:
    """Writers that failed together do not come back together."""
    found: list[float] = []
    for number in Tries(Patience(deadline_s=1e9, first_s=1.0), sleep=found.append):
        if number == 20:
            break
    assert len(set(found)) == 20


@pytest.mark.parametrize("name", ["deadline_s", "request_s", "first_s", "most_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_times_are_bounded(name: str, value: float) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use seconds above 0"):
        Patience(**{name: value})
