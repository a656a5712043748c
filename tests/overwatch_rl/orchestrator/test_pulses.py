"""Heartbeats by a clock that never goes back."""

import pytest

from overwatch_rl.orchestrator.states import Pace, Pulses


def test_a_heartbeat_too_soon_is_given_its_time() -> None:
    """Each run has its own."""
    pulses = Pulses(Pace(), 100.0)

    assert pulses.early_s("a", 100.0) == 0
    assert pulses.beat("a", 100.0) is None
    assert pulses.early_s("a", 101.5) == 3.5
    assert pulses.early_s("a", 105.0) == 0
    assert pulses.early_s("b", 101.0) == 0


def test_silence_is_noticed_once_each_time_it_becomes_worse() -> None:
    """And its end once."""
    pulses = Pulses(Pace(), 0.0)
    pulses.beat("a", 10.0)

    seen = [pulses.noticed("a", "running", now) for now in (11, 54.9, 55, 56, 144.9, 145, 500)]
    assert seen == [None, None, "stale", None, None, "unresponsive", None]
    assert pulses.beat("a", 501.0) == "healthy"
    assert pulses.beat("a", 516.0) is None
    assert pulses.noticed("a", "paused", 561.0) == "stale"


def test_no_learner_is_awaited_before_the_beginning_and_after_the_end() -> None:
    """Then there is no health at all."""
    pulses = Pulses(Pace(), 0.0)
    pulses.beat("a", 1.0)

    for state in ("pending", "completed", "failed", "terminated"):
        assert pulses.health("a", state, 1e6) is None
        assert pulses.noticed("a", state, 1e6) is None


def test_after_a_restart_of_the_server_silence_counts_from_there() -> None:
    """It is not known yet whether a run is healthy; one that stays silent is found."""
    pulses = Pulses(Pace(), 1000.0)

    assert pulses.health("a", "running", 1044.0) is None
    assert pulses.silence_s("a", 1044.0) is None
    assert pulses.noticed("a", "running", 1045.0) == "stale"
    assert pulses.beat("a", 1050.0) == "healthy"
    assert pulses.health("a", "running", 1050.0) == "healthy"


def test_a_pace_must_rise() -> None:
    """The error names the numbers."""
    with pytest.raises(ValueError, match=r"stale-s 4, unresponsive-s 135; use rising numbers"):
        Pace(stale_s=4.0)
