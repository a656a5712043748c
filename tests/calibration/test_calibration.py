"""Real trainings that reach their return are not called ill, from their first update to their last."""

import zlib

import msgspec
import pytest

from tests.calibration.recorded import FOLDER, Recording, read, recordings, write
from tests.calibration.replaying import Replayed, replay

NAMES = [path.stem for path in sorted(FOLDER.glob("*.bin"))]
LARGEST = 300_000
"""Bytes of one recording in the repository."""


def _allowed(updates: int) -> int:
    """Warning findings of a healthy run: one in a hundred updates, and one in a run that is shorter."""
    return max(1, updates // 100)


def _is_healthy(recording: Recording, replayed: Replayed) -> None:
    assert recording.reached >= recording.reaches
    assert [seen for seen in replayed.found if seen.severity == "critical"] == []
    assert len(replayed.of("warning")) <= _allowed(replayed.updates), replayed.of("warning")


@pytest.fixture(scope="module")
def replayed() -> dict[str, tuple[Recording, Replayed]]:
    """Every recording, judged once."""
    return {recording.name: (recording, replay(recording)) for recording in recordings()}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_reaches_its_return_is_healthy(
    replayed: dict[str, tuple[Recording, Replayed]], name: str
) -> None:
    """No critical finding, and at most one warning finding in a hundred updates."""
    recording, result = replayed[name]

    assert result.updates == len(recording.updates) > 40
    _is_healthy(recording, result)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cleanrl")])
def test_a_slower_machine_makes_no_findings(
    replayed: dict[str, tuple[Recording, Replayed]], name: str
) -> None:
    """The same training at a tenth of its speed, so that no cooldown hides what opens again."""
    recording, _ = replayed[name]
    slower = [
        msgspec.structs.replace(reported, after_ns=10 * reported.after_ns) for reported in recording.reported
    ]

    _is_healthy(recording, replay(recording.but(tuple(slower))))


def test_what_was_not_healthy_would_be_seen(replayed: dict[str, tuple[Recording, Replayed]]) -> None:
    """The same judgement of the same run, with the steps of its second half too large, finds it."""
    recording, _ = replayed["cartpole-0"]
    half = recording.updates[len(recording.updates) // 2].after_ns
    ill = [reported if reported.after_ns < half else reported.worse(12.0) for reported in recording.reported]
    result = replay(recording.but(tuple(ill)))

    assert {seen.code for seen in result.found} & {"policy-kl-divergence", "steps-too-large"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_and_whole(name: str) -> None:
    """What is written is what was read, and the file has its place in a repository."""
    data = (FOLDER / f"{name}.bin").read_bytes()

    assert len(data) <= LARGEST
    assert zlib.decompress(write(read(FOLDER / f"{name}.bin"))) == zlib.decompress(data)
