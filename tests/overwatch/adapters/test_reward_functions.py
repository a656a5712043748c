"""Functions that pay: they are called as before, and their time and their errors are reported."""

import asyncio
import functools
from typing import Any

import pytest

from overwatch.adapters.reward_functions import RewardFunctions
from overwatch.events import LogLine
from tests.overwatch.adapters.receiving import local_run


def _ones(answers: list[str], *, weight: float = 1.0) -> list[float]:
    return [weight for _ in answers]


def _divides(_: list[str]) -> list[float]:
    return [1 / 0]


async def _awaited(answers: list[str]) -> list[float]:
    return [2.0 for _ in answers]


class Judge:
    """A function that is an object."""

    def __call__(self, answers: list[str]) -> list[float]:
        """Pay."""
        return [3.0 for _ in answers]


class AsyncJudge:
    """One that is awaited."""

    async def __call__(self, answers: list[str]) -> list[float]:
        """Pay."""
        return [4.0 for _ in answers]


class Model:
    """What pays by weights, as far as it is looked at."""

    def parameters(self) -> list[Any]:
        """Weights."""
        return []


def test_a_function_pays_as_before_and_its_time_is_reported_once() -> None:
    """Of two calls the sum, and nothing before the next one."""
    run, _ = local_run()
    rewards = RewardFunctions(run)
    plain, partial, judge = rewards.timed(
        [_ones, functools.partial(_ones, weight=0.5), Judge()], ["ones", "halves", "judge"]
    )

    assert (plain(["a", "b"]), partial(["a"]), judge(["a"])) == ([1.0, 1.0], [0.5], [3.0])
    plain([])
    times = rewards.times()
    assert list(times) == ["reward_time/ones", "reward_time/halves", "reward_time/judge"]
    assert min(times.values()) > 0
    assert rewards.times() == {}


def test_an_error_is_the_callers_and_is_reported_by_name() -> None:
    """The feed has the function's name, which a traceback shows last."""
    run, received = local_run()
    (call,) = RewardFunctions(run).timed([_divides], ["divides"])
    with pytest.raises(ZeroDivisionError):
        call(["a"])

    assert [line.message for line in received.of(LogLine)] == [
        "reward function divides: ZeroDivisionError: division by zero"
    ]


def test_the_callers_error_stays_its_own_when_reporting_fails() -> None:
    """The run is none."""
    (call,) = RewardFunctions(object()).timed([_divides], ["divides"])  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        call(["a"])


@pytest.mark.parametrize("pays", [_awaited, AsyncJudge(), functools.partial(_awaited), Model()])
def test_a_model_and_what_is_awaited_is_left_alone(pays: Any) -> None:
    """How they are called depends on what they are."""
    run, _ = local_run()
    assert RewardFunctions(run).timed([pays], ["it"]) == [pays]


def test_an_awaited_function_still_pays() -> None:
    """It is the same function."""
    run, _ = local_run()
    (call,) = RewardFunctions(run).timed([_awaited], ["it"])
    assert asyncio.run(call(["a"])) == [2.0]
