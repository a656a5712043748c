"""Rows that are judged by the mean of many values."""

from overwatch.catalog import KL, find
from overwatch.state.policy import Many, Status, new_series, observe, observe_conflated

K1 = find("overwatch.policy.kl_k1")


def test_a_noisy_estimate_is_judged_by_the_mean_of_ten_updates() -> None:
    """Single values beyond the limit are no breach; a mean beyond it is, and fewer than ten judge nothing."""
    assert K1 is not None
    calm, high = new_series(), new_series()
    for update in range(20):
        observe(calm, K1, K1.limits, 0.06 if update % 2 else -0.05)
        observe(high, K1, K1.limits, 0.12 if update % 2 else -0.05)
        assert (calm.judgement is None) == (update < 9)

    assert (calm.warnings, calm.criticals) == (0, 0)
    assert high.judgement is not None
    assert high.judgement.status is Status.CRITICAL


def test_extremes_of_a_noisy_estimate_are_no_breaches() -> None:
    """Of many updates sent as one, only a row judged by single values counts the worst."""
    assert K1 is not None
    many = Many(n=20, low=-0.2, high=0.2, warnings=3, criticals=7)
    noisy, plain = new_series(), new_series()
    observe_conflated(noisy, K1, K1.limits, 0.001, many)
    observe_conflated(plain, KL, KL.limits, 0.001, many)

    assert (noisy.warnings, noisy.criticals) == (0, 0)
    assert (plain.warnings, plain.criticals) == (3, 7)
