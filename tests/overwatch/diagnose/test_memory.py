"""Time to a full memory: reported where peaks rise beyond their noise, and kept quiet where they do not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.diagnose.lane_signals import MemoryTrend, memory_trend
from overwatch.state.machines import Gauge, Peaks
from tests.fakes import SECOND, START_NS

GIB = float(1 << 30)
TOTAL = 80 * GIB


def _trend(readings: list[float], every_s: float = 1.0) -> MemoryTrend | None:
    """The trend after these readings, GiB."""
    gauge, peaks = Gauge(value=0.0, at=0, stamp=0), Peaks()
    for number, reading in enumerate(readings):
        at = START_NS + int(number * every_s * SECOND)
        gauge.value, gauge.at = reading * GIB, at
        gauge.history.push(reading * GIB)
        gauge.times.push(at)
        peaks.note(at, reading * GIB)
    return memory_trend(gauge, peaks, TOTAL)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_a_leak_over_minutes_is_reported_with_its_time(noise: float) -> None:
    """50 MiB a second from 50 GiB: after five minutes some 300 s are left, noise or not."""
    dice = random.Random(3)  # noqa: S311 no secret
    trend = _trend([50 + 0.05 * second + dice.gauss(0, noise) for second in range(300)])

    assert trend is not None
    assert trend.oom_s == pytest.approx((80 - 65) / 0.05, rel=0.2)
    assert 0.5 <= trend.confidence <= 0.95


def test_a_leak_under_a_saw_is_found_by_its_peaks() -> None:
    """Buffers that fill and empty with every update hide nothing."""
    trend = _trend([40 + 20 * (second % 7) / 6 + 0.04 * second for second in range(300)])

    assert trend is not None
    assert trend.rate == pytest.approx(0.04 * GIB, rel=0.2)


def test_a_leak_of_seconds_is_found_within_them() -> None:
    """Half a GiB a second needs seven readings, noise or not."""
    dice = random.Random(5)  # noqa: S311 no secret
    trend = _trend([60 + dice.gauss(0, 0.1) for _ in range(40)] + [60 + 0.5 * rise for rise in range(1, 8)])

    assert trend is not None
    assert trend.oom_s == pytest.approx((80 - 63.5) / 0.5, rel=0.1)


@pytest.mark.parametrize(
    "readings",
    [
        [60.0] * 300,
        [40 + 20 * (second % 7) / 6 for second in range(300)],
        [40 + 20 * (second % 60) / 59 for second in range(300)],
        [min(70.0, 5.0 + second) for second in range(300)],
        [70 - 0.05 * second for second in range(300)],
        [60 + 0.001 * second for second in range(300)],
        [60.0] * 40 + [66.0] * 40,
        [60.0] * 40 + [60.0 + second for second in range(6)] + [66.0] * 30,
        [60.0] * 40 + [62.0] * 2 + [64.0] * 3,
        [60.0, 61.0, 62.0],
    ],
    ids=[
        "level",
        "saw",
        "long saw",
        "filled at the start",
        "falls",
        "hardly rises",
        "one step",
        "filled in seconds",
        "two steps",
        "too few",
    ],
)
def test_memory_that_does_not_leak_has_no_trend(readings: list[float]) -> None:
    """Level, up and down, filled once, falling, or too little known."""
    assert _trend(readings) is None


@given(st.integers(0, 2**32), st.floats(0.01, 2.0), st.integers(9, 330))
def test_noise_has_no_trend(seed: int, noise: float, length: int) -> None:
    """Readings that scatter around a level, however much and however long."""
    dice = random.Random(seed)  # noqa: S311 no secret

    assert _trend([60 + dice.uniform(-noise, noise) for _ in range(length)]) is None
