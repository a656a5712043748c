"""A return that falls, with a reason or without one, from what the trainer itself sends."""

import random

import pytest

from overwatch.events import CurriculumChanged
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.watched import HEALTHY, Rows, Watched, wobble

BASICS = ("return", "entropy")


def _only(rows: Rows, *names: str) -> Rows:
    """Healthy values of these rows alone, but for what the given ones are."""
    return lambda n: {name: HEALTHY[name] * wobble(n) for name in names} | rows(n)


def _ramp(n: int, first: int, length: int) -> float:
    return min(1.0, max(0.0, (n - first + 1) / length))


def test_a_return_that_falls_in_one_update_is_a_collapse_of_the_reward() -> None:
    """From 200 to 20 at once, and nothing else is sent: found in the third update, and not as a drift."""
    rows: Rows = lambda n: {"return": (200.0 if n < 41 else 20.0) * wobble(n)}  # noqa: E731 as a table
    run = Watched().updates(range(1, 60), rows, alone=True)

    assert run.opened == {"reward-collapse": 43}
    assert run.now["reward-collapse"].problem.message.startswith("return fell to +")


@pytest.mark.parametrize(
    ("least", "best"), [(-1200.0, -160.0), (-21.0, 19.0), (0.02, 0.9), (9.0, 5000.0)], ids=str
)
def test_a_fall_is_measured_by_what_was_gained(least: float, best: float) -> None:
    """Returns below 0, around it and far above it; the run learned, kept its best, then lost it all."""
    rows: Rows = lambda n: {  # noqa: E731 as a table
        "return": least + (best - least) * (_ramp(n, 1, 40) if n < 71 else 0.05) * wobble(n)
    }
    run = Watched().updates(range(1, 80), rows, alone=True)

    assert run.opened["reward-collapse"] == 73


def test_a_collapse_is_a_fall_of_the_return_and_a_sign_of_why() -> None:
    """Entropy from 80 to 15 % while the return falls by 60 %, in ten updates; KL and clip are never sent."""

    def rows(n: int) -> dict[str, float]:
        gone = _ramp(n, 41, 10)
        return {"entropy": (0.8 - 0.65 * gone) * wobble(n), "return": 100.0 * (1 - 0.6 * gone) * wobble(n)}

    run = Watched().updates(range(1, 56), rows, alone=True)

    assert run.severities() == {"policy-collapse": "critical"}
    assert run.opened["policy-collapse"] <= 50


@pytest.mark.parametrize(
    "sign",
    [{"entropy": 0.99}, {"kl_divergence": 0.02}, {"grad_norm": 6.0}, {"clip_fraction": 0.3}],
    ids=lambda sign: next(iter(sign)),
)
def test_any_row_may_be_the_sign(sign: dict[str, float]) -> None:
    """Entropy that rises to its maximum, or one row beyond its warning: with the return down a collapse."""
    rows: Rows = lambda n: {**sign, "return": 40.0} if n > 40 else {}  # noqa: E731 as a table
    run = Watched().updates(range(1, 47), rows)

    assert run.severities()["policy-collapse"] == "critical"


def test_slow_updates_are_no_reason_why_returns_fell() -> None:
    """Time is a matter of the machine: two warnings, no collapse."""
    rows: Rows = lambda n: {"update_time": 9.0, "return": 40.0} if n > 40 else {"update_time": 1.0}  # noqa: E731 as a table
    run = Watched().updates(range(1, 47), rows)

    assert run.severities() == {"reward-collapse": "warning", "policy-update-time": "warning"}


def test_a_collapse_lasts_until_half_is_regained() -> None:
    """The row that was its sign recovers, the return does not; then it does."""

    def rows(n: int) -> dict[str, float]:
        now = {"entropy": 0.2} if 40 < n < 50 else {}
        return {**now, "return": 30.0 if 40 < n < 120 else 100.0}

    run = Watched().updates(range(1, 119), rows)
    assert run.severities() == {"policy-collapse": "critical"}
    since = run.now["policy-collapse"].since
    assert since < run.state.first_at + 50 * 10**9
    run.updates(range(119, 130), rows)

    assert "policy-collapse" not in run.now


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_fall(seed: int) -> None:
    """Episodes of one update scatter by half of their mean, by all or nothing, or by little."""
    luck = random.Random(seed)  # noqa: S311 no secret
    for draw in (
        lambda: luck.gauss(200.0, 100.0),
        lambda: float(luck.random() < 0.8),
        lambda: luck.gauss(-5.0, 0.2),
        lambda: luck.expovariate(1.0) * 40,
    ):
        run = Watched().updates(range(1, 301), lambda _: {"return": draw()}, alone=True)  # noqa: B023 called at once
        assert "reward-collapse" not in run.opened


def test_a_task_that_changed_has_no_fall() -> None:
    """The return that the trainer sends begins anew with its task."""
    rows: Rows = lambda n: {"return": (100.0 if n <= 40 else 30.0) * wobble(n)}  # noqa: E731 as a table
    run = Watched().updates(range(1, 41), rows)
    run.emit(CurriculumChanged(at=START_NS + 40 * SECOND + 1, name="level"))
    run.updates(range(41, 80), rows)

    assert run.opened == {}
