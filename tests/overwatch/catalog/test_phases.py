"""Phases by any of their names."""

import pytest

from overwatch.catalog.phases import Phase, is_pause, parse_phase


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("rollout", Phase.ROLLOUT),
        ("Collect", Phase.ROLLOUT),
        ("all-reduce", Phase.SYNC),
        ("GAE", Phase.ADVANTAGE),
        ("logging", Phase.LOG),
        ("warm-up", Phase.WARM_UP),
    ],
)
def test_a_phase_is_known_by_its_other_names(name: str, phase: Phase) -> None:
    """Case and separators do not matter."""
    assert parse_phase(name) is phase


def test_an_unknown_phase_is_none() -> None:
    """It is measured and shown; it explains nothing."""
    assert parse_phase("tea") is None


@pytest.mark.parametrize(
    ("name", "pauses"),
    [("log", False), ("collect", False), ("warm-up", True), ("eval", True), ("save", True), ("tea", True)],
)
def test_a_pause_is_what_no_update_repeats(name: str, *, pauses: bool) -> None:
    """The numbers of each update are made up in each; a warm-up comes once and takes what it takes."""
    assert is_pause(name) is pauses
