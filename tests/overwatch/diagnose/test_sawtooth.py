"""A lane that works and rests in turn is distinct from one that idles, works, starts or stops."""

import pytest

from overwatch.diagnose.lane_signals import Sawtooth, sawtooth
from overwatch.state.machines import Gauge
from tests.fakes import SECOND, START_NS


def _saw(*values: float) -> Sawtooth | None:
    gauge = Gauge(value=0.0, at=0, stamp=0)
    for number, value in enumerate(values):
        gauge.history.push(value)
        gauge.times.push(START_NS + number * SECOND)
    return sawtooth(gauge)


def test_a_saw_has_levels_and_a_period() -> None:
    """Two seconds of work, two of rest."""
    found = _saw(0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 0.1, 0.1, 0.9, 0.9)

    assert found is not None
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.9))
    assert found.period_s == pytest.approx(4, abs=1)


@pytest.mark.parametrize(
    "values",
    [
        (0.9,) * 10,
        (0.6, 0.7, 0.8, 0.9, 0.8, 0.7, 0.6, 0.7, 0.8, 0.9),
        (0.1,) * 5 + (0.9,) * 5,
        (0.9,) * 4 + (0.1,) + (0.9,) * 5,
        (0.9, 0.1, 0.9),
        (),
    ],
    ids=["steady", "small teeth", "it started", "one dip", "too few", "none"],
)
def test_no_saw(values: tuple[float, ...]) -> None:
    """Neither a start nor a single dip is one."""
    assert _saw(*values) is None
