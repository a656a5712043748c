"""What rows of the policy mean together and over time; and what returns forgive."""

import pytest

from overwatch.catalog.policy import GRAD_NORM, RETURN
from overwatch.events import CurriculumChanged, EarlyStopped
from overwatch.state.policy import Status
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.watched import HEALTHY, Rows, Watched, wobble


def _healthy(_: int) -> dict[str, float]:
    return {}


def _from(update: int, **rows: float) -> Rows:
    """Rows that are so from an update on."""
    return lambda number: rows if number >= update else {}


def test_a_healthy_policy_has_no_finding() -> None:
    """Two hundred updates with a little scatter: nothing, ever."""
    assert Watched().updates(range(1, 201), _healthy).opened == {}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ({"kl_divergence": 0.02}, {"policy-kl-divergence": "warning"}),
        ({"kl_divergence": 0.02, "clip_fraction": 0.3}, {"steps-too-large": "warning"}),
        ({"explained_variance": -0.5, "value_loss": 8.0}, {"critic-failing": "warning"}),
        ({"kl_divergence": 0.02, "clip_fraction": 0.3, "entropy": 0.1}, {"policy-collapse": "critical"}),
        ({"kl_divergence": 0.05, "clip_fraction": 0.6, "return": 20.0}, {"policy-collapse": "critical"}),
    ],
    ids=["KL alone", "KL and clipping", "the critic", "and entropy falls fast", "and returns fell"],
)
def test_rows_that_mean_one_thing_are_found_as_one(rows: dict[str, float], found: dict[str, str]) -> None:
    """Five updates after all of them went wrong there is one finding about them."""
    run = Watched().updates(range(1, 46), _from(41, **rows))
    reported = {code: word for code, word in run.severities().items() if code != "slow-drift"}

    assert reported == found


def test_a_compound_stands_while_any_of_its_rows_does() -> None:
    """Clipping has recovered, KL has not: the same finding goes on, no other opens."""
    run = Watched().updates(range(1, 46), _from(41, kl_divergence=0.02, clip_fraction=0.3))
    since = run.now["steps-too-large"].since
    run.updates(range(46, 60), _from(1, kl_divergence=0.02))

    assert run.now["steps-too-large"].since == since
    assert "policy-kl-divergence" not in run.opened or run.opened["policy-kl-divergence"] <= 43


def test_a_row_that_hovers_at_its_limit_is_one_finding() -> None:
    """It opens with three of five and stays until none of five is bad."""
    run = Watched().updates(range(1, 44), _from(41, kl_divergence=0.02))
    since = run.now["policy-kl-divergence"].since
    hover: Rows = lambda number: {"kl_divergence": 0.02 if number % 4 == 0 else 0.007}  # noqa: E731 as a table
    run.updates(range(44, 80), hover)
    assert run.now["policy-kl-divergence"].since == since
    run.updates(range(80, 86), _healthy)

    assert run.now == {}


@pytest.mark.parametrize(
    ("returns", "severity"),
    [(100.0, "info"), (60.0, "critical"), (None, "critical")],
    ids=["at their best", "lower", "not sent"],
)
def test_a_limit_that_returns_forgive_is_info(returns: float | None, severity: str) -> None:
    """KL twice beyond critical, while the policy earns its best: too large, and no harm so far."""

    def rows(number: int) -> dict[str, float]:
        reported = {"kl_divergence": 0.06} if number > 40 else {}
        if returns is None:
            return {**reported, "return": None}  # type: ignore[dict-item]  # left out
        return {**reported, "return": returns if number > 40 else min(100.0, 4.0 * number)}

    assert Watched().updates(range(1, 47), rows).severities()["policy-kl-divergence"] == severity


def test_rising_returns_are_at_their_best() -> None:
    """The level of the newest lags behind a return that climbs: that is no fall."""
    climbs: Rows = lambda n: {"return": 10.0 * n, "kl_divergence": 0.06 if n > 40 else 0.007}  # noqa: E731 as above

    assert Watched().updates(range(1, 47), climbs).severities() == {"policy-kl-divergence": "info"}


def test_many_clipped_samples_of_small_steps_are_no_alarm() -> None:
    """How many is not how far: without KL beyond its limit it is a warning at most."""
    rows = _from(41, clip_fraction=0.7, **{"return": 75.0})
    run = Watched().updates(range(1, 46), rows)

    assert run.severities()["policy-clip-fraction"] == "warning"


@pytest.mark.parametrize(
    ("peak", "found"), [(0.1, {"kl-spike": "info"}), (0.4, {"kl-spike": "warning"}), (0.03, {})]
)
def test_a_spike_is_found_at_once_and_not_for_ever(peak: float, found: dict[str, str]) -> None:
    """Five times the run's median and beyond the target; twenty times the target is a warning."""
    spiky: Rows = lambda number: {"kl_divergence": peak} if number == 41 else {}  # noqa: E731 as above
    run = Watched().updates(range(1, 42), spiky)
    assert run.severities() == found
    run.updates(range(42, 60), _healthy)

    assert run.now == {}


def test_a_spike_that_was_stopped_in_time_is_none() -> None:
    """The trainer itself answered it."""
    run = Watched({"target_kl": "0.03"}).updates(range(1, 41), _healthy)
    at = START_NS + 41 * SECOND
    stop = EarlyStopped(at=at, update=41, epoch=1, kl_divergence=0.05, target=0.03, minibatches_skipped=3)
    run.emit(stop)
    run.updates([41], _from(1, kl_divergence=0.05))

    assert run.severities() == {"early-stop": "info"}


def test_advantages_that_explode_are_found() -> None:
    """Forty times their own median, in any preset."""
    wild: Rows = lambda n: {"advantage_std": (1.0 if n < 41 else 45.0) * wobble(n)}  # noqa: E731 as above
    run = Watched().updates(range(1, 47), wild)

    assert run.opened["policy-advantage-std"] <= 44


def test_a_critic_whose_targets_hardly_vary_is_not_judged() -> None:
    """Its error is a thousandth of what it was: below 0 means nothing then."""
    easy: Rows = lambda number: {"value_loss": 60.0 if number < 10 else 0.01, "explained_variance": -0.5}  # noqa: E731 as above

    assert Watched().updates(range(1, 71), easy).opened == {}


@pytest.mark.parametrize(
    ("row", "rate", "code"),
    [("kl_divergence", 0.02, "slow-drift"), ("clip_fraction", 0.02, "slow-drift"),
     ("explained_variance", -0.01, "slow-drift"), ("return", -0.01, "reward-collapse")],
)  # fmt: skip
def test_what_creeps_is_found(row: str, rate: float, code: str) -> None:
    """A change of a hundredth or two an update, which no limit sees, within fifty updates."""
    creeping: Rows = lambda n: {row: HEALTHY[row] * wobble(n) * (1 + rate * max(0, n - 60))}  # noqa: E731 as above
    run = Watched().updates(range(1, 111), creeping)

    assert list(run.opened) == [code]
    assert 62 < run.opened[code] <= 110
    (reported,) = run.now.values()
    assert reported.problem.subject == row
    assert reported.problem.message.count(" ") >= 5


def test_what_improves_is_no_drift() -> None:
    """KL that sinks and returns that rise move away from their baselines for the better."""
    better: Rows = lambda n: {"kl_divergence": 0.012 / (1 + 0.02 * n), "return": 100.0 + n}  # noqa: E731 as above

    assert Watched().updates(range(1, 161), better).opened == {}


def test_a_drift_that_recovers_is_let_go_of() -> None:
    """Half of what was lost is regained."""

    def rows(number: int) -> dict[str, float]:
        return {"return": 100.0 - max(0, number - 60) if number < 100 else 100.0}

    run = Watched().updates(range(1, 100), rows)
    assert "reward-collapse" in run.now
    run.updates(range(100, 140), rows)

    assert run.now == {}


def test_a_new_task_has_a_new_baseline() -> None:
    """What was earned before the curriculum changed is no measure."""
    run = Watched().updates(range(1, 61), _healthy)
    run.emit(CurriculumChanged(at=START_NS + 60 * SECOND + 1, name="level"))
    run.updates(range(61, 121), _from(1, **{"return": 40.0}))

    assert "reward-collapse" not in run.opened
    assert run.assessment.policy.levels[RETURN.name].items == pytest.approx([40.0] * 6)


@pytest.mark.parametrize(("preset", "codes"), [("ppo", {"policy-ratio-max"}), ("ppo-continuous", set())])
def test_ratios_of_densities_have_no_natural_size(preset: str, codes: set[str]) -> None:
    """With discrete actions a ratio of eight is an explosion; with continuous ones it is Tuesday."""
    run = Watched(preset=preset).updates(range(1, 46), _from(41, ratio_max=8.0))

    assert set(run.now) == codes


def test_a_nan_without_a_fact_is_found_at_once() -> None:
    """A trainer that sends only numbers: the update with the NaN is critical, and the row is named."""
    run = Watched().updates(range(1, 6), _from(5, policy_loss=float("nan")))

    assert run.severities() == {"non-finite": "critical"}
    assert run.now["non-finite"].problem.message == "non-finite: nan in pol loss"
    run.updates([6], _from(1, policy_loss=0.1))
    assert run.now == {}


def test_an_undefined_number_is_no_finding() -> None:
    """A mean over no episodes is NaN, and means nothing."""
    assert Watched().updates(range(1, 6), _from(1, **{"return": float("nan")})).opened == {}


def test_a_baseline_does_not_learn_the_fault() -> None:
    """Gradients that are twenty times as large stay large, however long the run is in trouble."""
    run = Watched().updates(range(1, 201), _from(60, grad_norm=22.0, kl_divergence=0.2, **{"return": 5.0}))
    grads = run.state.policy[GRAD_NORM.name]

    assert grads.judgement is not None
    assert grads.judgement.status is Status.CRITICAL
    assert grads.judgement.threshold == pytest.approx(10.0, rel=0.1)
    assert "policy-collapse" in run.now


def test_a_baseline_does_not_learn_slowly_from_a_run_in_trouble() -> None:
    """What creeps up while KL is critical never becomes usual."""
    creeping: Rows = lambda n: {  # noqa: E731 as above
        "grad_norm": 1.0 + 0.1 * max(0, n - 60),
        **({"kl_divergence": 0.2, "return": 5.0} if n >= 60 else {}),
    }
    run = Watched().updates(range(1, 201), creeping)
    grads = run.state.policy[GRAD_NORM.name]

    assert grads.judgement is not None
    assert grads.judgement.threshold == pytest.approx(10.0, rel=0.1)


def test_a_baseline_follows_what_earns_its_best() -> None:
    """Gradients of another size with returns as before are what is usual now."""
    run = Watched().updates(range(1, 161), _from(60, grad_norm=6.0))

    assert "policy-grad-norm" not in run.now
    assert set(run.severities().values()) <= {"warning"}


def test_a_clipped_gradient_is_never_critical_by_itself() -> None:
    """Of a run that clips; one that does not has its critical finding."""
    large = _from(60, grad_norm=40.0, **{"return": 75.0})
    clipped = Watched({"max_grad_norm": "0.5"}).updates(range(1, 80), large)

    assert clipped.severities().get("policy-grad-norm") == "warning"
    assert Watched().updates(range(1, 80), large).severities()["policy-grad-norm"] == "critical"


def test_a_gradient_that_is_not_clipped_is_not_large() -> None:
    """Fifty times the run's own median, and below the norm at which it clips."""
    small = lambda n: {"grad_norm": 0.008 if n < 60 else 0.4, "return": 75.0 if n >= 60 else 100.0}  # noqa: E731 as above
    run = Watched({"max_grad_norm": "0.5"}).updates(range(1, 80), small)

    assert not {"policy-grad-norm", "gradient-spikes"} & run.opened.keys()


def test_gradients_that_grow_with_the_return_are_no_fault() -> None:
    """The policy learns: from 20 to 300, with gradients and the critic's loss of forty times as much."""
    learning: Rows = lambda n: {  # noqa: E731 as above
        "return": (20 + 3 * n) * wobble(n), "grad_norm": 0.7 * (1 + n / 3) * wobble(3 * n),
        "value_loss": 1.0 + n / 2, "explained_variance": 0.2,
    }  # fmt: skip

    assert Watched().updates(range(1, 101), learning).opened == {}


@pytest.mark.parametrize("row", ["kl_divergence", "clip_fraction"])
def test_a_drift_far_below_its_limit_is_none(row: str) -> None:
    """Six times what it was, and a third of what would be a warning: a learning rate that warms up."""
    limit = {"kl_divergence": 0.015, "clip_fraction": 0.25}[row]
    warming: Rows = lambda n: {row: limit * wobble(n) * (0.05 + 0.3 * min(1.0, max(0, n - 30) / 60))}  # noqa: E731 as above

    assert Watched().updates(range(1, 161), warming).opened == {}
