"""Rows of the policy that the fold works out."""

import math

import pytest

from overwatch.state.derived import SPREAD_FROM, correlation, slope
from tests import fakes
from tests.fakes import START_NS

DRIFT = "overwatch.policy.kl_drift"
TRUST = "overwatch.policy.trust_region"
TOGETHER = "overwatch.policy.entropy_clip_correlation"
SPREAD = "overwatch.policy.value_spread"


def _updates(*values: float, **also: float) -> list:  # type: ignore[type-arg]  # events of one kind
    return [fakes.policy(START_NS + n, n, kl_divergence=kl, **also) for n, kl in enumerate(values, start=1)]


def test_the_drift_of_kl_is_the_slope_of_its_newest_ten() -> None:
    """A rise of a thousandth an update is reported as that, whatever was before; few values have no slope."""
    rising = fakes.folded(_updates(*[0.5] * 5, *(0.001 * n for n in range(10))))
    few = fakes.folded(_updates(0.001, 0.002, 0.003, 0.004))

    assert rising.policy[DRIFT].value == pytest.approx(0.001)
    assert DRIFT not in few.policy


def test_trust_is_the_joint_move_over_the_target() -> None:
    """The run's own target where it declared one, else where KL warns; the joint policy where it is sent."""
    own = fakes.folded(
        [fakes.started(START_NS, config={"target_kl": "0.02"}), *_updates(0.01, kl_joint=0.03)]
    )
    plain = fakes.folded(_updates(0.03))

    assert own.policy[TRUST].value == pytest.approx(1.5)
    assert plain.policy[TRUST].value == pytest.approx(2.0)


def test_what_the_trainer_sent_itself_stays() -> None:
    """Nothing is worked out over a number that came."""
    state = fakes.folded(_updates(*[0.01] * 9, policy_drift_rate=0.25, trust_region_health=0.5))

    assert (state.policy[DRIFT].value, state.policy[TRUST].value) == (0.25, 0.5)
    assert state.policy[DRIFT].updates == 9


def test_nothing_is_made_of_what_is_not_finite() -> None:
    """A KL that is not a number moves no other row; extremes that overflow are undefined, not critical."""
    broken = fakes.folded(_updates(math.nan))
    extreme = fakes.folded(_updates(*[1e308, -1e308] * 5))

    assert DRIFT not in broken.policy
    assert TRUST not in broken.policy
    assert extreme.policy[DRIFT].criticals == 0


def test_a_slope_is_exact_on_a_line() -> None:
    """Least squares find the line that the values lie on."""
    assert slope([3.0, 5.0, 7.0, 9.0]) == 2.0
    assert slope([4.0, 4.0]) == 0.0


def test_entropy_and_clipping_are_correlated_over_their_newest_ten() -> None:
    """Opposite moves are -1, whatever was before; few pairs and numbers that do not vary have none."""

    def updates_of(*pairs: tuple[float, float]) -> list:  # type: ignore[type-arg]  # events of one kind
        return [
            fakes.policy(START_NS + n, n, entropy=entropy, clip_fraction=clip)
            for n, (entropy, clip) in enumerate(pairs, start=1)
        ]

    opposite = [(0.9 - 0.05 * n, 0.1 + 0.02 * n) for n in range(10)]
    moved = fakes.folded(updates_of((0.1, 0.1), (0.9, 0.9), *opposite))
    few = fakes.folded(updates_of(*opposite[:4]))
    still = fakes.folded(updates_of(*[(0.5, 0.1 + 0.01 * n) for n in range(10)]))

    assert moved.policy[TOGETHER].value == pytest.approx(-1.0)
    assert TOGETHER not in few.policy
    assert TOGETHER not in still.policy


def test_a_pair_of_which_one_is_not_finite_is_left_out() -> None:
    """The others keep their partners."""
    events = [
        fakes.policy(START_NS + n, n, entropy=0.1 * n, clip_fraction=math.nan if n == 4 else 0.1 * n)
        for n in range(1, 9)
    ]

    assert fakes.folded(events).policy[TOGETHER].value == pytest.approx(1.0)


def test_the_spread_of_values_is_a_multiple_of_that_after_fifty_updates() -> None:
    """None before; 1 at first, then what it grew to; a critic that had no range yet begins later."""

    def updates_of(*ranges: float) -> list:  # type: ignore[type-arg]  # events of one kind
        return [
            fakes.policy(START_NS + n, n, value_min=-wide / 2, value_max=wide / 2)
            for n, wide in enumerate(ranges, start=1)
        ]

    early = [3.0] * (SPREAD_FROM - 1)
    assert SPREAD not in fakes.folded(updates_of(*early)).policy
    assert fakes.folded(updates_of(*early, 2.0)).policy[SPREAD].value == 1.0
    grown = fakes.folded(updates_of(*early, 2.0, 4.0, 12.0)).policy[SPREAD]
    assert (grown.value, grown.highest) == (6.0, 6.0)
    assert fakes.folded(updates_of(*early, 0.0, 5.0, 10.0)).policy[SPREAD].value == 2.0


def test_a_correlation_lies_between_its_ends() -> None:
    """A line is 1 exactly; sums that overflow have none."""
    assert correlation([(0.1 * n, 0.3 * n) for n in range(7)]) == pytest.approx(1.0)
    assert abs(correlation([(0.1 * n, 0.1 * n) for n in range(7)]) or 0.0) <= 1.0
    assert correlation([(1e200, 1.0), (-1e200, 2.0)]) is None


def test_a_run_in_half_precision_may_start_from_another_ratio() -> None:
    """What half precision scatters is no mismatch there; without a declared precision it is."""
    mismatch = "overwatch.policy.initial_mismatch"
    judged = [
        fakes.folded(
            [fakes.started(START_NS, config=config), fakes.policy(START_NS + 1, 1, first_ratio_error=error)]
        )
        .policy[mismatch]
        .warnings
        for config in ({"precision": "bf16"}, {"precision": "fp32"}, {})
        for error in (5e-3, 2e-2)
    ]

    assert judged == [0, 1, 1, 1, 1, 1]
