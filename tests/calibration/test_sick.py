"""Real trainings that went wrong get the verdict that a person gives, and as soon."""

import pytest

from tests.calibration.recorded import Recording
from tests.calibration.replaying import replay
from tests.calibration.sick import SICK, sick_recordings

RECORDINGS = list(sick_recordings())


def test_all_of_them_are_recorded() -> None:
    """One file each."""
    assert {recording.name for recording in RECORDINGS} == set(SICK)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_a_sick_run_is_called_what_a_person_calls_it(recording: Recording) -> None:
    """Critical in time and under the right name; or, of one that learns all the same, not critical at all."""
    sick, result = SICK[recording.name], replay(recording)
    critical = [seen for seen in result.found if seen.severity == "critical"]

    if not sick.codes:
        assert recording.reached >= recording.reaches
        assert critical == []
        return
    assert recording.reached < recording.reaches / 2
    assert critical[0].update <= sick.by
    assert critical[0].code in sick.codes
