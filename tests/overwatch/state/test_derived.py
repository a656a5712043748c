"""Rows of the policy that the fold works out."""

import math

import pytest

from overwatch.state.derived import slope
from tests import fakes
from tests.fakes import START_NS

DRIFT = "overwatch.policy.kl_drift"
TRUST = "overwatch.policy.trust_region"


def _updates(*values: float, **also: float) -> list:  # type: ignore[type-arg]  # events of one kind
    return [fakes.policy(START_NS + n, n, kl_divergence=kl, **also) for n, kl in enumerate(values, start=1)]


def test_the_drift_of_kl_is_the_slope_of_its_newest_ten() -> None:
    """A rise of a thousandth an update is told as that, whatever was before; few values have no slope."""
    rising = fakes.folded(_updates(*[0.5] * 5, *(0.001 * n for n in range(10))))
    few = fakes.folded(_updates(0.001, 0.002, 0.003, 0.004))

    assert rising.policy[DRIFT].value == pytest.approx(0.001)
    assert DRIFT not in few.policy


def test_trust_is_the_joint_move_over_the_target() -> None:
    """The run's own target where it declared one, else where KL warns; the joint policy where it is told."""
    own = fakes.folded(
        [fakes.started(START_NS, config={"target_kl": "0.02"}), *_updates(0.01, kl_joint=0.03)]
    )
    plain = fakes.folded(_updates(0.03))

    assert own.policy[TRUST].value == pytest.approx(1.5)
    assert plain.policy[TRUST].value == pytest.approx(2.0)


def test_what_the_trainer_told_itself_stays() -> None:
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
