"""Returns that are at their best, and a run in trouble: by medians, never by one update."""

from collections.abc import Sequence

from overwatch.catalog import KL, NO_LIMITS
from overwatch.catalog.policy import RETURN
from overwatch.state.policy import Health, Series, at_its_best, health_of, new_series, observe


def _series(values: Sequence[float]) -> Series:
    series = new_series()
    for value in values:
        observe(series, RETURN, NO_LIMITS, value)
    return series


def test_a_run_is_well_by_its_returns_and_in_trouble_by_its_rows() -> None:
    """A critical row is no trouble while returns are at their best; without returns it is."""
    kl = new_series()
    for _ in range(5):
        observe(kl, KL, KL.limits, 0.2)
    best, fallen = _series([100.0] * 30), _series([100.0] * 20 + [10.0] * 10)

    assert at_its_best(best)
    assert not at_its_best(fallen)
    assert health_of({KL.name: kl, RETURN.name: best}) is Health.WELL
    assert health_of({KL.name: kl, RETURN.name: fallen}) is Health.TROUBLE
    assert health_of({KL.name: kl}) is Health.TROUBLE
    assert health_of({RETURN.name: fallen}) is Health.UNKNOWN
