"""Shares: minima are floors, the rest goes by weight, and who is silent has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.shares import bounded_sums, sums
from tests.overwatch_rl.rollouts.driven import Driven


def test_weights_divide_what_minima_leave() -> None:
    """An environment whose weight gives less than its minimum gets the minimum; others divide the rest."""
    driven = Driven()
    driven.trainer()
    small = driven.env(weight=1, minimum=0.5)
    one, three = driven.env(weight=1), driven.env(weight=3, minimum=0.1)

    assert queue.shares(driven.state) == pytest.approx({small: 0.5, one: 0.125, three: 0.375})


def test_minima_beyond_a_batch_are_scaled() -> None:
    """Three minima of a half are a third each."""
    driven = Driven()
    driven.trainer()
    for _ in range(3):
        driven.env(minimum=0.5)

    assert list(queue.shares(driven.state).values()) == pytest.approx([1 / 3] * 3)


def test_a_silent_environment_loses_its_share_and_has_it_back_with_its_next_group() -> None:
    """It keeps its registration: what it sends after five minutes is accepted, and its share is back."""
    driven = Driven()
    driven.trainer()
    quiet, other = driven.env(), driven.env()
    for _ in range(10):
        driven.do(queue.status_env(driven.state, other, driven.now))
        driven.wait(30)
    assert queue.shares(driven.state) == {other: 1.0}

    assert driven.send(quiet) != []

    assert queue.shares(driven.state) == {quiet: 0.5, other: 0.5}


def test_a_dead_share_is_redistributed_with_the_first_sweep_after_its_lease() -> None:
    """60 s after its last call the share is gone; one second earlier it is not."""
    driven = Driven()
    driven.trainer()
    dead, other = driven.env(), driven.env()
    driven.wait(59)
    driven.do(queue.status_env(driven.state, other, driven.now))
    assert dead in queue.shares(driven.state)

    driven.wait(1)

    assert queue.shares(driven.state) == {other: 1.0}


def test_a_poll_is_enough_to_stay_through_five_minutes_of_generating() -> None:
    """A handler that renews while it generates never loses its share, and its ticket learns its time."""
    driven = Driven()
    driven.trainer()
    env = driven.env()
    first = driven.tickets(env)
    for _ in range(15):
        driven.wait(20)
        answer = driven.do(queue.status_env(driven.state, env, driven.now))
        assert answer.env_weight == 1.0

    assert driven.send(env, ticket=first.tickets[0]) != []

    assert driven.state.account.late == 1
    second = driven.tickets(env)
    assert second.expires_in_s == 4 * 300


@given(st.lists(st.integers(1, 9), max_size=3), st.integers(1, 40))
def test_sums_are_those_of_brute_force(sizes: list[int], most: int) -> None:
    """Unbounded sums reach what adding again and again reaches."""
    reached = {0}
    for _ in range(most):
        reached |= {found + size for found in reached for size in sizes if found + size <= most}

    assert sums(sizes, most) == sum(1 << found for found in reached)


@given(st.dictionaries(st.integers(1, 9), st.integers(0, 5), max_size=3), st.integers(1, 40))
def test_bounded_sums_are_those_of_brute_force(counts: dict[int, int], most: int) -> None:
    """Bounded sums use no group twice."""
    reached = {0}
    for size, count in counts.items():
        for _ in range(count):
            reached |= {found + size for found in reached if found + size <= most}

    assert bounded_sums(counts, most) == sum(1 << found for found in reached)
