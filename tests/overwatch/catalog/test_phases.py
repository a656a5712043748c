"""Phases by any of their names."""

import pytest

from overwatch.catalog.phases import Phase, parse_phase


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("rollout", Phase.ROLLOUT),
        ("Collect", Phase.ROLLOUT),
        ("all-reduce", Phase.SYNC),
        ("GAE", Phase.ADVANTAGE),
    ],
)
def test_a_phase_is_known_by_its_other_names(name: str, phase: Phase) -> None:
    """Case and separators do not matter."""
    assert parse_phase(name) is phase


def test_an_unknown_phase_is_none() -> None:
    """It is measured and shown; it explains nothing."""
    assert parse_phase("tea") is None
