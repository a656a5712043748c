"""Trainings of other libraries are judged by the little that they send, and broken ones are named."""

import pytest

from tests.calibration.libraries import KEPT
from tests.calibration.recorded import Recording, read
from tests.calibration.replaying import Replayed, replay
from tests.libraries.judged import BROKEN, CASES, HEALTHY, NAMED_WITHIN, OF_TIME

NAMES = sorted({path.stem.rpartition("-")[0] for path in KEPT.glob("*.bin")})
each = pytest.mark.parametrize("name", NAMES)


def _judged(name: str, kind: str) -> tuple[Recording, Replayed]:
    recording = read(KEPT / f"{name}-{kind}.bin")
    return recording, replay(recording)


def test_both_runs_of_a_case_are_recorded() -> None:
    """Under the name that the case has."""
    assert {path.stem for path in KEPT.glob("*.bin")} == {
        f"{name}-{kind}" for name in NAMES for kind in (HEALTHY, BROKEN)
    }
    assert set(NAMES) <= set(CASES)


@each
def test_a_run_that_learns_is_not_called_ill(name: str) -> None:
    """No critical finding, and one warning at most in a hundred updates."""
    _, result = _judged(name, HEALTHY)

    assert result.of("critical") == []
    assert len(result.of("warning")) <= max(1, result.updates // 100), result.of("warning")


@each
def test_a_run_that_cannot_learn_is_named(name: str) -> None:
    """By what it does, and not by its time."""
    _, result = _judged(name, BROKEN)
    bad = [one for one in result.found if one.severity != "info" and one.code not in OF_TIME]

    assert bad
    assert min(one.update for one in bad) <= NAMED_WITHIN
