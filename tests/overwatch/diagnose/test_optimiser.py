"""Gradients that are 0, vanish or spike, and a learning rate that is 0 while the run goes on."""

import pytest

from tests.overwatch.diagnose.watched import Rows, Watched, wobble


def test_gradients_that_are_exactly_0_are_critical() -> None:
    """Five updates in a row; four are none."""
    rows: Rows = lambda n: {"grad_norm": 0.0} if n > 40 else {}  # noqa: E731 as a table
    run = Watched().updates(range(1, 45), rows)
    assert run.opened == {}
    run.updates([45], rows)

    assert run.severities() == {"zero-gradients": "critical"}


def test_gradients_of_0_from_the_first_update_are_found_as_their_cause() -> None:
    """KL and clip are 0 with them: one finding, about the gradients."""
    rows: Rows = lambda _: {"grad_norm": 0.0, "kl_divergence": 0.0, "clip_fraction": 0.0, "entropy": 0.7}  # noqa: E731 as a table

    assert Watched().updates(range(1, 11), rows, alone=True).severities() == {"zero-gradients": "critical"}


def test_gradients_that_vanish_are_a_warning() -> None:
    """Five updates are a trace of what they were."""
    rows: Rows = lambda n: {"grad_norm": (2.0 if n <= 40 else 0.01) * wobble(n), "return": 50.0 * wobble(n)}  # noqa: E731 as a table
    run = Watched().updates(range(1, 70), rows)

    assert run.severities() == {"zero-gradients": "warning"}
    assert 45 <= run.opened["zero-gradients"] <= 60


def test_what_is_solved_needs_no_gradients() -> None:
    """The return rose and stays at its best, and there is nothing left to learn."""

    def rows(n: int) -> dict[str, float]:
        return {"grad_norm": (20.0 if n < 40 else 0.1) * wobble(n), "return": min(500.0, 12.0 * n)}

    assert "zero-gradients" not in Watched().updates(range(1, 121), rows).opened


def test_where_all_rewards_are_equal_gradients_of_0_are_a_warning() -> None:
    """A task that is solved leaves nothing to learn; one that is not must not have them, however it earns."""

    def rows(n: int) -> dict[str, float]:
        return {"grad_norm": 0.0 if n > 40 else 1.0, "return": min(1.0, n / 30)}

    run = Watched().updates(range(1, 60), rows)
    rising = Watched().updates(range(1, 60), lambda n: {**rows(n), "return": n / 30})

    assert run.severities() == {"zero-gradients": "warning"}
    assert rising.severities() == {"zero-gradients": "critical"}


def _spiky(*updates: int) -> Rows:
    return lambda n: {"grad_norm": 30.0} if n in updates else {}


def test_three_spikes_within_a_hundred_updates_are_a_warning() -> None:
    """One is info, and no longer shown some updates later."""
    run = Watched().updates(range(1, 42), _spiky(41, 70, 99))
    assert run.severities() == {"gradient-spikes": "info"}
    run.updates(range(42, 60), _spiky(41, 70, 99))
    assert run.now == {}
    run.updates(range(60, 100), _spiky(41, 70, 99))

    assert run.severities() == {"gradient-spikes": "warning"}


@pytest.mark.parametrize(
    ("config", "updates"),
    [({}, (41, 100, 159)), ({"max_grad_norm": "0.5"}, (41, 60, 80))],
    ids=["far apart", "clipped"],
)
def test_spikes_that_do_no_harm_are_info(config: dict[str, str], updates: tuple[int, ...]) -> None:
    """Three within more than a hundred updates; or what was clipped, and so made no larger step."""
    run = Watched(config).updates(range(1, updates[-1] + 1), _spiky(*updates))

    assert run.severities() == {"gradient-spikes": "info"}


def test_a_new_level_is_one_spike_and_not_many() -> None:
    """Gradients rise threefold and stay there."""
    run = Watched().updates(range(1, 100), lambda n: {"grad_norm": 3.4 * wobble(n)} if n > 40 else {})

    assert "gradient-spikes" in run.opened
    assert "gradient-spikes" not in run.now


@pytest.mark.parametrize("rate", [0.0, 1e-15], ids=str)
def test_a_learning_rate_that_reached_0_before_the_end_is_a_warning(rate: float) -> None:
    """A schedule of forty updates in a run of a hundred."""
    rows: Rows = lambda n: {"learning_rate": max(3e-4 * (1 - n / 40), rate)}  # noqa: E731 as a table
    run = Watched(updates=100).updates(range(1, 61), rows)

    assert run.severities() == {"learning-rate-zero": "warning"}
    assert run.opened["learning-rate-zero"] <= 45


@pytest.mark.parametrize(
    ("planned", "last", "rate"),
    [
        (60, 60, lambda n: 3e-4 * (1 - n / 60)),
        (None, 60, lambda n: 3e-4 * (1 - n / 60)),
        (60, 70, lambda n: 3e-4 * max(0.0, 1 - n / 60)),
        (200, 60, lambda n: 3e-4 * min(1.0, (n - 1) / 30)),
        (200, 60, lambda n: 3e-4 * 0.9**n),
        (200, 19, lambda _: 0.0),
    ],
    ids=["ends with the run", "no plan", "beyond the plan", "warms up", "decays", "young"],
)
def test_a_schedule_that_fits_its_run_is_no_fault(planned: int | None, last: int, rate: Rows) -> None:
    """The last update may have a rate of 0, and the first."""
    run = Watched(updates=planned).updates(range(1, last + 1), lambda n: {"learning_rate": rate(n)})  # type: ignore[dict-item]  # a number

    assert "learning-rate-zero" not in run.opened


def test_a_learning_rate_that_is_never_above_0_is_found() -> None:
    """Twenty updates are no warm-up any more."""
    still = {"learning_rate": 0.0, "kl_divergence": 0.0, "clip_fraction": 0.0}
    run = Watched().updates(range(1, 25), lambda _: still)

    assert run.opened["learning-rate-zero"] == 20


@pytest.mark.parametrize("row", ["grad_norm", "learning_rate"])
def test_what_is_0_in_all_updates_of_a_policy_that_moves_is_not_measured(row: str) -> None:
    """KL shows that steps are made."""
    assert Watched().updates(range(1, 60), lambda _: {row: 0.0}).opened == {}
