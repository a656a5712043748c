"""Simulated storms at the acceptance sizes: the offender and its reason are on the first screen, unasked."""

import re
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.simulate.faults import FAULTS
from overwatch.snapshot import Snapshot
from overwatch.tui import once
from tests.calibration.corpus import CASES
from tests.e2e.conftest import SIZES, StormMaker
from tests.overwatch.simulate.runs import record

SHOWN: dict[str, tuple[int, str]] = {
    "crash-storm": (12, r"CRIT .*crash"),
    "cull-storm": (40, r"WARN .*cull storm"),
    "policy-collapse": (15, r"CRIT .*(KL|policy|entropy)"),
    "nan": (4, r"CRIT .*(nan|non-finite)"),
    "thermal-throttle": (15, r"CRIT .*thermal"),
    "oom-climb": (45, r"(CRIT|WARN) .*(memory|OOM)"),
    "io-starvation": (20, r"(CRIT|WARN) .*(loader|IO|data)"),
    "straggler": (20, r"(CRIT|WARN) .*(straggler|slow|step)"),
    "reward-collapse": (25, r"(CRIT|WARN) .*return"),
    "curriculum-step": (25, r"OK .*healthy"),
    "stale": (15, r"CRIT .*(no telemetry|silent)"),
}
"""Seconds after its beginning at which a fault must be seen, and how it must read."""

SCREENS = (120, 40), (80, 24)
ONE_LANE = {"straggler"}
"""Faults that need a second lane to be distinguished from a slow run."""


def _snapshot(recording: Path, at_s: int) -> Snapshot:
    """What the log has for a second; that a replay shows the same to the bit is `test_same_bytes`'s."""
    lines = (recording / "snapshots.jsonl").read_bytes().splitlines()
    began = codec.decode(lines[0]).time
    return next(one for one in map(codec.decode, lines) if one.time >= began + at_s - 1)


def test_every_fault_is_expected() -> None:
    """A fault that the simulator learns needs a line here or in the corpus."""
    assert set(SHOWN) | {case.name for case in CASES if case.name} == set(FAULTS)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", SHOWN)
def test_the_offender_is_on_the_first_screen(storm: StormMaker, fault: str, size: str) -> None:
    """Without a key press the text names what is wrong and how bad it is, on large and small terminals."""
    if fault in ONE_LANE and size.startswith("1x"):
        pytest.skip(f"{fault} is defined between lanes, and this size has one")
    wait, reads = SHOWN[fault]
    snapshot = _snapshot(*storm(fault, size, wait))

    for screen in SCREENS:
        text = once(snapshot, "text", *screen)
        assert re.search(reads, text), text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", SIZES)
def test_a_healthy_run_is_calm(size: str, tmp_path: Path) -> None:
    """Two minutes without a fault: no finding in any recorded snapshot."""
    gpus, envs, slots = SIZES[size]
    words = ("--gpus", gpus, "--envs", envs, "--slots", slots, "--seconds", "120", "--seed", "7")
    out = record(tmp_path / "sim", *words)
    lines = (out / "snapshots.jsonl").read_bytes().splitlines()
    found = {finding.id: finding.message for line in lines for finding in codec.decode(line).findings}

    assert len(lines) >= 120
    assert found == {}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fault", "code"), [("cull-storm", "cull-storm"), ("reward-collapse", "reward-collapse")]
)
def test_a_storm_that_goes_on_never_becomes_usual(fault: str, code: str, tmp_path: Path) -> None:
    """Once reported, the finding stands in every later snapshot while its cause lasts."""
    words = ("--gpus", "2", "--envs", "32", "--slots", "6", "--seconds", "130", "--seed", "5")
    out = record(tmp_path / "sim", *words, "--fault", f"{fault}@30")
    lines = [codec.decode(line) for line in (out / "snapshots.jsonl").read_bytes().splitlines()[:-1]]
    reported = [any(f.code == code and f.cleared_at is None for f in snapshot.findings) for snapshot in lines]
    first = reported.index(True)

    assert 30 < first < 70
    assert all(reported[first:])
