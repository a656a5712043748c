"""Dips of utilisation: their share of the window, and how long they are."""

import pytest

from overwatch.catalog.machine import DIP_LENGTH, DIP_SHARE
from overwatch.sdk.exporter.dips import DIP_BELOW, WINDOW_S, Dips

STEP_S = 0.05


def read(dips: Dips, *intervals: tuple[float, float], begin: float = 0.0) -> float:
    """Readings of so many seconds at so high a utilisation, one after the other; when the last spell ends."""
    count = 0
    for seconds, utilization in intervals:
        for _ in range(round(seconds / STEP_S)):
            dips.add(begin + count * STEP_S, utilization)
            count += 1
    return begin + count * STEP_S


def test_no_reading_and_a_single_one_are_no_number() -> None:
    """Neither shows anything of a stretch of time."""
    dips = Dips()
    assert dips.numbers() == {}
    dips.add(0.0, 0.0)
    assert dips.numbers() == {}


def test_a_busy_gpu_has_a_share_of_zero_and_no_length() -> None:
    """What did not happen has no length; a utilisation at the limit is no dip."""
    dips = Dips()
    read(dips, (2.0, DIP_BELOW))
    assert dips.numbers() == {DIP_SHARE.name: 0.0}


def test_dips_have_a_share_and_the_length_of_nearly_all() -> None:
    """Nineteen of 0.1 s and one of 2 s: 95 of 100 are no longer than 0.1 s."""
    dips = Dips()
    read(dips, *[(0.4, 0.9), (0.1, 0.1)] * 19, (4.5, 0.9), (2.0, 0.0), (0.05, 0.9))
    numbers = dips.numbers()
    assert numbers[DIP_SHARE.name] == pytest.approx((19 * 0.1 + 2.0) / (19 * 0.5 + 6.5))
    assert numbers[DIP_LENGTH.name] == pytest.approx(0.1)


def test_a_dip_that_goes_on_counts_as_long_as_it_is() -> None:
    """Its end is not waited for, and an idle GPU is one dip as long as the window."""
    dips = Dips()
    read(dips, (1.0, 0.9), (3.05, 0.2))
    assert dips.numbers()[DIP_LENGTH.name] == pytest.approx(3.0)
    read(dips, (2 * WINDOW_S, 0.0), begin=4.05)
    assert dips.numbers() == pytest.approx({DIP_SHARE.name: 1.0, DIP_LENGTH.name: WINDOW_S})


def test_what_is_older_than_the_window_is_forgotten() -> None:
    """A dip leaves the numbers as it leaves the window."""
    dips = Dips()
    end = read(dips, (5.0, 0.0))
    read(dips, (WINDOW_S + 1.0, 1.0), begin=end)
    assert dips.numbers() == {DIP_SHARE.name: 0.0}


def test_a_stretch_without_readings_is_neither_busy_nor_a_dip() -> None:
    """A call that hung for ten seconds ends a dip and counts for nothing."""
    dips = Dips()
    read(dips, (0.55, 0.0))
    read(dips, (0.55, 0.0), begin=10.0)
    numbers = dips.numbers()
    assert numbers[DIP_SHARE.name] == 1.0
    assert numbers[DIP_LENGTH.name] == pytest.approx(0.5)
