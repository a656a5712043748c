"""`overwatch replay --summary`: a run in a few lines, made of its snapshots."""

import json
from pathlib import Path

import msgspec
import pytest

from overwatch.cli.outline import idle_line
from overwatch.snapshot import Snapshot, System
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
    assert lines[6:] == [
        "  warning     io-starvation: io starvation: loader 0/8; 2 lanes wait, open at the end"
    ]


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


def test_summary_query_and_audit_agree_on_severity(tmp_path: Path) -> None:
    """A finding that was critical and is a warning at the end counts at its worst everywhere."""
    size = ("--gpus", "1", "--envs", "4", "--slots", "0", "--seconds", "30", "--run-id", "eased")
    folder = record(tmp_path / "run", *size, "--fault", "thermal-throttle@8")
    decode, lines = msgspec.json.Decoder(Snapshot).decode, []
    for line in (folder / "snapshots.jsonl").read_bytes().splitlines():
        snapshot = decode(line)
        eased = tuple(
            msgspec.structs.replace(one, severity="critical" if snapshot.time - one.since < 4 else "warning")
            for one in snapshot.findings
        )
        lines.append(msgspec.json.encode(msgspec.structs.replace(snapshot, findings=eased)) + b"\n")
    eased_file = tmp_path / "eased.jsonl"
    eased_file.write_bytes(b"".join(lines))
    summary = overwatch("replay", eased_file, "--summary").stdout.splitlines()
    answer = overwatch("query", eased_file, "what=finding", "--format", "json").stdout
    found = [json.loads(row) for row in answer.splitlines()]

    assert found
    for row in found:
        assert any(line.split()[:1] == [row["severity"]] and row["text"] in line for line in summary)
    assert {row["severity"] for row in found} == {"critical"}
    assert overwatch("audit", eased_file).exit_code == 1


def test_a_summary_is_one_way_to_print() -> None:
    """It excludes the others."""
    result = overwatch("replay", Path(), "--summary", "--digest")

    assert result.exit_code == 2
    assert "exclude one another" in result.output
