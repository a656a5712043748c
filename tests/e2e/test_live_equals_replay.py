"""What was shown live is what a replay shows: every line of `snapshots.jsonl`, byte for byte."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.overwatch.collector.running import running

STORMS = ("crash-storm@6", "cull-storm@9", "policy-collapse@14", "thermal-throttle@17")
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")


def _overwatch(*words: str, python: str = sys.executable) -> str:
    done = subprocess.run([python, "-m", "overwatch.cli", *words], check=True, capture_output=True, text=True)
    return done.stdout


def _recorded_live(folder: Path, seconds: int, *sets: str) -> bytes:
    """A storm sent to a collector in real time; returns what it logged of it."""
    size = ("--gpus", "2", "--envs", "16", "--slots", "3", "--seconds", str(seconds), "--run-id", "storm")
    flags = [word for storm in STORMS for word in ("--fault", storm)]
    with running(folder, *sets) as service:
        _overwatch("simulate", *size, *flags, "--endpoint", service.endpoints.otlp_http or "")
    return (folder / "snapshots.jsonl").read_bytes()


def _check(folder: Path, live: bytes, seconds: int) -> None:
    assert live.count(b"\n") >= seconds
    replayed = _overwatch("replay", str(folder / "otlp"), "--format", "json").encode()
    assert replayed.splitlines() == live.splitlines()
    assert replayed == live
    digests = {_overwatch("replay", str(folder / "otlp"), "--digest") for _ in range(2)}
    for python in PYTHONS:
        if _can_import_overwatch(python):
            digests.add(_overwatch("replay", str(folder / "otlp"), "--digest", python=python))
    assert len(digests) == 1


@cache
def _can_import_overwatch(python: str) -> bool:
    found = shutil.which(python)
    code = "import overwatch.cli.replay, overwatch.feeds.inputs"
    if found is None:
        return False
    return subprocess.run([found, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "sets", [(), ("exporters.aggregator.preset=esper",)], ids=["as shipped", "another preset"]
)
def test_a_short_storm_replays_to_the_bytes_that_were_live(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """Twenty seconds in real time, with four faults, under the shipped limits and under others."""
    _check(tmp_path, _recorded_live(tmp_path, 20, *sets), 20)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_ten_minutes_of_storms_replay_to_the_bytes_that_were_live(tmp_path: Path) -> None:
    """Ten minutes in real time; OVERWATCH_STORM_SECONDS makes it longer."""
    seconds = int(os.environ.get("OVERWATCH_STORM_SECONDS", "600"))
    _check(tmp_path, _recorded_live(tmp_path, seconds), seconds)
