"""A value against its row's limits."""

import pytest

from overwatch.catalog import KL
from overwatch.catalog.metric import Limit, Limits, Side, above, below, between
from overwatch.catalog.policy import GRAD_NORM
from overwatch.state.policy import Status, judge


@pytest.mark.parametrize(
    ("value", "status", "threshold"),
    [
        (0.0, Status.OK, 0.015),
        (0.015, Status.OK, 0.015),
        (0.0150001, Status.WARNING, 0.015),
        (0.03, Status.WARNING, 0.015),
        (0.0300001, Status.CRITICAL, 0.03),
    ],
)
def test_kl_is_judged_to_the_letter(value: float, status: Status, threshold: float) -> None:
    """TELE-110: a limit itself is still on the better side."""
    judgement = judge(value, KL.limits, median=None)

    assert (judgement.status, judgement.threshold) == (status, threshold)


def test_a_relative_limit_waits_for_a_median() -> None:
    """Without a median of its own the run is not judged by multiples of it."""
    assert judge(1000.0, GRAD_NORM.limits, median=None).status is Status.OK
    assert judge(1000.0, GRAD_NORM.limits, median=None).limit is None
    assert judge(1000.0, GRAD_NORM.limits, median=10.0).status is Status.CRITICAL


@pytest.mark.parametrize(
    ("side", "status"),
    [
        (Side.ABOVE, Status.OK),
        (Side.AT_OR_ABOVE, Status.WARNING),
        (Side.BELOW, Status.OK),
        (Side.AT_OR_BELOW, Status.WARNING),
    ],
)
def test_inclusivity_decides_at_the_limit(side: Side, status: Status) -> None:
    """The limit's own value is bad only on inclusive sides."""
    limits = Limits(warning=Limit(side=side, value=1.0))

    assert judge(1.0, limits, median=None).status is status


def test_a_row_without_limits_is_ok() -> None:
    """No limits, nothing to cross."""
    assert judge(1e9, Limits(), median=None).status is Status.OK


@pytest.mark.parametrize(
    ("value", "status", "threshold"),
    [
        (0.05, Status.CRITICAL, 0.1),
        (0.3, Status.WARNING, 0.5),
        (0.6, Status.OK, 0.5),
        (1.9, Status.OK, 2.0),
        (2.5, Status.WARNING, 2.0),
        (3.5, Status.CRITICAL, 3.0),
    ],
)
def test_a_row_may_be_healthy_in_between(value: float, status: Status, threshold: float) -> None:
    """Both sides are judged, and the limit in use is the one crossed or else the nearer one."""
    judgement = judge(value, between(below(0.5, 0.1), above(2.0, 3.0)), median=None)

    assert (judgement.status, judgement.threshold) == (status, threshold)
