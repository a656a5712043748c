"""A policy that no update moves, and a critic that is lost, from their first updates on."""

import pytest

from tests.overwatch.diagnose.watched import Rows, Watched, wobble

STILL = {"kl_divergence": 0.0, "clip_fraction": 0.0}


def _dead(n: int) -> dict[str, float]:
    """As CleanRL's PPO at a learning rate of a million, which sends no entropy that is known."""
    return {
        **STILL, "return": 9.4 * wobble(n), "explained_variance": -2.0 - n % 7 * 12.0,
        "value_loss": 1e13 * wobble(n), "grad_norm": 1e6 * wobble(n),
    }  # fmt: skip


def test_a_run_that_is_dead_from_its_first_update_is_found_within_a_few() -> None:
    """No limit of its own past can see it: it has no other past."""
    run = Watched().updates(range(1, 31), _dead, alone=True)

    assert run.severities() == {"policy-frozen": "critical"}
    assert run.opened["policy-frozen"] <= 5


@pytest.mark.parametrize(
    "left_out", ["return", "value_loss", "explained_variance", "grad_norm", "clip_fraction"]
)
def test_a_dead_run_needs_no_single_row(left_out: str) -> None:
    """Whichever of its rows is not sent."""
    rows: Rows = lambda n: {name: value for name, value in _dead(n).items() if name != left_out}  # noqa: E731 as a table
    run = Watched().updates(range(1, 16), rows, alone=True)

    assert run.severities() == {"policy-frozen": "critical"}


@pytest.mark.parametrize("entropy", [0.0, 1e-6, 0.4137], ids=["certain", "nearly", "the same number"])
def test_an_entropy_that_stays_is_a_sign(entropy: float) -> None:
    """Without a critic: nothing moves, and the return stays at its floor."""
    rows: Rows = lambda n: {**STILL, "entropy": entropy, "return": -200.0 * wobble(n)}  # noqa: E731 as a table
    run = Watched().updates(range(1, 16), rows, alone=True)

    assert "policy-frozen" in run.now


def test_a_policy_that_stops_moving_midway_is_found() -> None:
    """Healthy, then one update that saturates it."""
    dead = {**STILL, "entropy": 0.0, "return": 9.0}
    run = Watched().updates(range(1, 51), lambda n: dead if n > 40 else {})

    assert run.now["policy-frozen"].problem.severity == "critical"
    assert run.opened["policy-frozen"] == 45


@pytest.mark.parametrize(
    "rows",
    [
        lambda n: {**STILL, "entropy": 0.6 * wobble(n)},
        lambda n: {**STILL, "return": 100.0 * wobble(n)},
        lambda n: {"kl_divergence": 0.0, "clip_fraction": 0.1 * wobble(n), "entropy": 0.6},
        lambda n: {**STILL, "entropy": 0.0, "return": min(500.0, 12.0 * n) * (1 if n > 45 else wobble(n))},
        lambda n: {"learning_rate": 3e-4 * min(1.0, (n - 1) / 20), **({} if n > 3 else STILL)},
        lambda _: {**STILL, "explained_variance": 0.9, "entropy": 0.5},
    ],
    ids=[
        "measured before the step", "nothing else is sent", "KL is not measured", "solved", "rate warms up",
        "a critic that knows all",
    ],
)  # fmt: skip
def test_zeros_alone_are_no_fault(rows: Rows) -> None:
    """Zeros may be what is not measured, or what is done."""
    run = Watched().updates(range(1, 81), rows, alone=True)

    assert {code for code, item in run.now.items() if item.problem.severity == "critical"} == set()
    assert "policy-frozen" not in run.opened


def test_an_entropy_without_a_maximum_is_no_sign() -> None:
    """Continuous actions with a fixed spread, and a KL that is measured before the step."""
    rows: Rows = lambda n: {**STILL, "entropy": 1.42, "return": -200.0 * wobble(n)}  # noqa: E731 as a table
    run = Watched(preset="ppo-continuous").updates(range(1, 40), rows, alone=True)

    assert run.opened == {}


def test_a_return_that_falls_is_no_sign_where_nothing_was_ever_measured() -> None:
    """KL is 0 from the first update on, so it cannot show that the policy stands still."""
    rows: Rows = lambda n: {"kl_divergence": 0.0, "return": (100.0 if n <= 40 else 20.0) * wobble(n)}  # noqa: E731 as a table
    run = Watched().updates(range(1, 50), rows, alone=True)

    assert run.severities() == {"reward-collapse": "warning"}


def test_a_lost_critic_is_found_though_the_policy_moves() -> None:
    """Its loss is thousands of times the square of the largest return."""
    rows: Rows = lambda n: {"value_loss": 1e10 * wobble(n), "explained_variance": -3.0}  # noqa: E731 as a table
    run = Watched().updates(range(1, 11), rows)

    assert run.severities() == {"critic-diverged": "critical"}
    assert run.opened["critic-diverged"] == 5


@pytest.mark.parametrize(
    "rows",
    [
        lambda _: {"return": 87.0, "value_loss": 70.0, "explained_variance": -4000.0},
        lambda n: {"return": 20_000.0 * wobble(n), "value_loss": 2e8 / n, "explained_variance": 0.02},
        lambda n: {"return": 300.0 * wobble(n), "value_loss": 1e10, "explained_variance": 0.7},
    ],
    ids=["nothing to explain", "large rewards", "it explains"],
)
def test_a_critic_that_is_large_or_useless_alone_is_not_lost(rows: Rows) -> None:
    """It must be both, against what is earned."""
    run = Watched().updates(range(1, 16), rows)

    assert "critic-diverged" not in run.opened
