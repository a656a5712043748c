"""`overwatch replay --summary`: a run in a few lines, made of its snapshots."""

from pathlib import Path

import pytest

from overwatch.cli.outline import idle_line
from overwatch.snapshot import System
from tests.overwatch.simulate.runs import overwatch, record


def test_a_recording_is_told_in_a_few_lines(tmp_path: Path) -> None:
    """How it ended, what it got done, its lanes, what rest cost, and what was found on the way."""
    size = ("--gpus", "2", "--envs", "4", "--slots", "0", "--rate", "5", "--seconds", "60")
    folder = record(tmp_path / "run", *size, "--fault", "io-starvation@20", "--run-id", "starved")
    told = overwatch("replay", folder, "--summary")
    lines = told.output.splitlines()

    assert told.exit_code == 0, told.output
    assert lines[0].startswith("run starved: completed, 60 updates, ")
    assert lines[1].startswith("  warning     completed; ended in io starvation (open ")
    assert lines[2] == "  throughput  40 steps/s"
    assert lines[3].startswith("  gpu0        IO-BOUND: loader 0/8, util ")
    assert "; step p50 " in lines[3]
    assert "; update p50 1.00s p95 1.00s" in lines[3]
    assert lines[5].startswith("  idle ")
    assert " GPU-seconds: io " in lines[5]
    assert lines[6:] == ["  warning     io-starvation: io starvation: loader 0/8; 2 lanes wait"]


@pytest.mark.parametrize(
    ("idle", "said"),
    [
        ({}, "0 GPU-seconds"),
        ({"io": 0.0, "sync": 0.0}, "0 GPU-seconds"),
        ({"io": 48.2, "sync": 1100.0, "idle": 0.1}, "1,148 GPU-seconds: sync 1,100, io 48"),
    ],
)
def test_what_rest_cost_is_told_with_the_largest_first(idle: dict[str, float], said: str) -> None:
    """What is nothing is not named."""
    assert idle_line(System(idle_gpu_s=idle)) == said


def test_a_summary_is_one_way_to_print() -> None:
    """It excludes the others."""
    result = overwatch("replay", Path(), "--summary", "--digest")

    assert result.exit_code == 2
    assert "exclude one another" in result.output
