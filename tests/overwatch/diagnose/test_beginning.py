"""A run that an update made worse than it was at first: its critic, its loss, the spread of its actions."""

import pytest

from tests.overwatch.diagnose.watched import Rows, Watched, wobble


def _jumps(n: int) -> dict[str, float]:
    """As skrl's PPO at a thousand times its learning rate, which sends little else that is judged."""
    return {"value_loss": (5e3 if n == 1 else 8e4) * wobble(n), "return": -1100.0 * wobble(n)}


def _watched(rows: Rows, updates: int = 30, **fields: object) -> Watched:
    return Watched(**fields).updates(range(1, updates + 1), rows, alone=True)  # type: ignore[arg-type]


def test_a_critic_that_is_worse_than_an_untrained_one_is_lost() -> None:
    """Five updates show it; no limit of its own past can, for the jump is all the past it has."""
    run = _watched(_jumps)

    assert run.severities() == {"critic-diverged": "critical"}
    assert run.opened["critic-diverged"] <= 6


@pytest.mark.parametrize(
    "rows",
    [
        lambda n: {**_jumps(n), "return": 20.0 * wobble(n) * min(n, 5)},
        lambda n: {**_jumps(n), "return": 0.0 if n < 3 else 1.0},
        lambda n: {"value_loss": _jumps(n)["value_loss"]},
        lambda n: {"value_loss": _jumps(n)["value_loss"]} if n < 25 else _jumps(n),
        lambda n: {**_jumps(n), "explained_variance": 0.4},
        lambda n: {**_jumps(n), "value_loss": 5e3 * wobble(n) * (30 if n % 4 == 0 else 1)},
    ],
    ids=["returns grew", "nothing earned at first", "no return", "late returns", "explains", "now and then"],
)
def test_a_larger_error_may_be_what_it_has_to_be(rows: Rows) -> None:
    """There is more to predict, or nothing to compare with, or the critic predicts well."""
    assert "critic-diverged" not in _watched(rows).opened


def test_a_critic_of_old_experience_begins_by_predicting_nothing() -> None:
    """Its targets are its own predictions, so its first errors are small."""
    assert _watched(_jumps, algo="sac").opened == {}


def _supervised(n: int) -> dict[str, float]:
    return {"total_loss": (2.3 if n == 1 else 40.0) * wobble(n), "grad_norm": 30.0 * wobble(n)}


@pytest.mark.parametrize(
    ("algo", "severity"), [("sft", "critical"), ("DPO", "critical"), ("mine", "warning")]
)
def test_a_loss_above_that_of_random_weights_has_diverged(algo: str, severity: str) -> None:
    """It is all that fine-tuning sends; what an algorithm of another name does with it is less sure."""
    run = _watched(_supervised, algo=algo)

    assert run.severities() == {"loss-diverged": severity}
    assert run.opened["loss-diverged"] <= 6


@pytest.mark.parametrize(
    "rows",
    [
        lambda n: {"total_loss": 2.3 * 0.95**n},
        lambda n: {"total_loss": 2.3 * (3 if n % 3 == 0 else 1)},
        lambda n: {"total_loss": -0.1 * n},
        lambda n: {**_supervised(n), "return": 1.0 * n},
        lambda n: {**_supervised(n), "policy_loss": 0.1},
    ],
    ids=["learns", "now and then", "negative", "has returns", "has a policy"],
)
def test_a_loss_that_is_no_measure_has_not_diverged(rows: Rows) -> None:
    """It falls, or is part of reinforcement learning, where returns state what was learned."""
    assert "loss-diverged" not in _watched(rows, algo="sft").opened


def test_a_loss_of_values_grows_as_they_are_learned() -> None:
    """Of DQN it begins near 0."""
    assert _watched(_supervised, algo="dqn").opened == {}


def test_preferred_answers_that_become_unlikely_are_named() -> None:
    """As DPO at a thousand times its learning rate: its loss is near 0, and its model is ruined."""
    rows: Rows = lambda n: {"total_loss": 0.69 / n**2, "chosen_log_prob": -20.0 * n * wobble(n)}  # noqa: E731 as a table
    run = _watched(rows, algo="dpo")

    assert run.severities() == {"likelihood-displacement": "warning"}
    assert run.opened["likelihood-displacement"] <= 10


@pytest.mark.parametrize("now", [-8.0, -30.0, -55.0])
def test_preferred_answers_may_become_somewhat_less_likely(now: float) -> None:
    """Both answers of a pair usually do, the other one by more."""
    rows: Rows = lambda n: {"total_loss": 0.69 / n, "chosen_log_prob": (-20.0 if n == 1 else now) * wobble(n)}  # noqa: E731 as a table

    assert _watched(rows, algo="dpo").opened == {}


@pytest.mark.parametrize("row", ["action_std", "entropy_nats"])
def test_actions_that_spread_further_and_further_are_named(row: str) -> None:
    """Twice the spread, or a nat more of entropy, and returns that do not rise."""
    rows: Rows = lambda n: {row: 1.0 + 0.1 * n, "return": -300.0 * wobble(n)}  # noqa: E731 as a table
    run = _watched(rows)

    assert run.severities() == {"entropy-explosion": "warning"}
    assert run.opened["entropy-explosion"] <= 20


@pytest.mark.parametrize(
    "rows",
    [
        lambda n: {"action_std": 1.0 + 0.1 * n, "return": -300.0 + 9.0 * n},
        lambda n: {"action_std": 1.0 - 0.02 * n, "entropy_nats": 0.1 * n, "return": -300.0 * wobble(n)},
        lambda n: {"entropy_nats": 0.02 * n, "return": -300.0 * wobble(n)},
    ],
    ids=["returns rise", "the spread is what counts", "a little"],
)
def test_a_spread_that_helps_or_hardly_grows_is_none(rows: Rows) -> None:
    """More exploration that pays is what it is for."""
    assert "entropy-explosion" not in _watched(rows).opened
