"""`overwatch simulate`: recordings byte by byte, real collectors, and what a wrong command line prints."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from overwatch import codec
from overwatch.cli import simulate as simulation
from overwatch.cli.viewclient import ViewUnreachableError, fetch_snapshot
from overwatch.collector import Service
from overwatch.feeds.player import Player
from overwatch.feeds.recording import open_recording
from overwatch.snapshot import Snapshot, View
from tests.fakes import SECOND
from tests.overwatch.collector.running import eventually, running
from tests.overwatch.simulate.runs import overwatch, record

SMALL = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "8")


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_recording_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    """Again, and in another process with another order of hashes; another seed is another recording."""
    flags = (*SMALL, "--fault", "cull-storm@2", "--fault", "nan@3")
    first = _files(record(tmp_path / "a", *flags))
    again = tmp_path / "b"
    command = [sys.executable, "-m", "overwatch.cli", "simulate", "--out", str(again), *flags]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True)

    assert set(first) == {"otlp/index.jsonl", "otlp/logs.jsonl", "snapshots.jsonl"}
    assert _files(again) == first
    assert _files(record(tmp_path / "c", *flags, "--seed", "1")) != first


@pytest.mark.parametrize("size", [("1", "4", "3"), ("2", "32", "6"), ("1", "2", "0")])
def test_a_recording_replays_to_its_own_snapshots(tmp_path: Path, size: tuple[str, str, str]) -> None:
    """The index and the OTLP lines give the lines of snapshots.jsonl, one a second, to the end."""
    gpus, envs, slots = size
    flags = ("--gpus", gpus, "--envs", envs, "--slots", slots, "--seconds", "12")
    folder = record(tmp_path, *flags, "--fault", "thermal-throttle@4")
    lines = (folder / "snapshots.jsonl").read_bytes().splitlines()
    last = codec.decode(lines[-1])

    assert [codec.encode(snapshot) for snapshot in open_recording(folder).recorded()] == lines
    assert len(lines) == 13
    assert (last.run.outcome, last.run.update, last.link.state) == ("completed", 12, "ended")
    assert (last.run.n_envs, len(last.run.slots)) == (int(gpus) * int(envs), int(slots))
    assert len(last.envs) == int(gpus) * int(envs)


def test_a_recording_has_checkpoints_from_which_any_place_is_near(tmp_path: Path) -> None:
    """As a collector leaves them: its last frame needs no fold of the whole run, and is the same frame."""
    folder = record(tmp_path, "--gpus", "1", "--envs", "2", "--slots", "0", "--seconds", "125", "--rate", "1")
    player = Player(open_recording(folder))
    last = codec.decode((folder / "snapshots.jsonl").read_bytes().splitlines()[-1])
    begun = player.folded
    player.seek(int(last.time) * SECOND)

    assert player.folded - begun < 100
    assert player.look(None, View()) == last


def test_a_run_that_goes_silent_is_found_stale(tmp_path: Path) -> None:
    """Nothing is reported after the fault, not even an end; the snapshots state it."""
    folder = record(tmp_path, *SMALL[:-1], "20", "--fault", "stale@5")
    last = codec.decode((folder / "snapshots.jsonl").read_bytes().splitlines()[-1])

    assert (last.run.outcome, last.link.state) == (None, "stale")
    assert [finding.code for finding in last.findings] == ["telemetry-stale"]


def _findings(folder: Path) -> set[str]:
    lines = (folder / "snapshots.jsonl").read_bytes().splitlines()
    return {finding.code for line in lines for finding in codec.decode(line).findings}


@pytest.mark.parametrize("size", [("1", "4", "3"), ("2", "32", "6")], ids=["1x4x3", "2x32x6"])
def test_a_healthy_run_has_no_findings(tmp_path: Path, size: tuple[str, str, str]) -> None:
    """A minute of each acceptance size without a fault is a minute without an alarm."""
    gpus, envs, slots = size

    assert _findings(record(tmp_path, "--gpus", gpus, "--envs", envs, "--slots", slots)) == set()


@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        (("--fault", "crash-strom@2"), "did you mean crash-storm?"),
        (("--fault", "meteor@2"), "there are: crash-storm"),
        (("--fault", "nan@9"), "nan@9 begins after the run's 8 s"),
        (("--gpus", "0"), "gpus is 0"),
        (("--rate", "0"), "rate is 0.0 Hz"),
        (("--endpoint", "http://127.0.0.1:1"), "--endpoint and --out exclude one another"),
    ],
)
def test_a_wrong_command_line_is_bad_usage(tmp_path: Path, flags: tuple[str, ...], stated: str) -> None:
    """Exit code 2, the value and the fix, and nothing written."""
    result = overwatch("simulate", *SMALL, "--out", tmp_path / "out", *flags)

    assert result.exit_code == 2
    assert stated in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_with_a_recording_is_left_alone(tmp_path: Path) -> None:
    """A second run does not mix into the first."""
    folder = record(tmp_path, *SMALL)
    before = _files(folder)
    result = overwatch("simulate", *SMALL, "--out", folder)

    assert result.exit_code == 2
    assert "holds a recording already" in result.output
    assert _files(folder) == before


def test_a_recording_that_was_interrupted_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written until then is no recording, and the second time leaves what one time leaves."""
    whole = record(tmp_path / "whole", *SMALL)
    skip, calls = simulation.Fold.skip, iter(range(1_000))

    def interrupted(fold: Any, tick: int, batches: Any) -> Any:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return skip(fold, tick, batches)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(simulation.Fold, "skip", interrupted)
        first = overwatch("simulate", *SMALL, "--out", out)
    left = [path.name for path in out.iterdir()]
    (out / simulation.PART).mkdir()
    (out / simulation.PART / "snapshots.jsonl").write_text("of one that was killed\n")
    second = overwatch("simulate", *SMALL, "--out", out)

    assert (first.exit_code, left, second.exit_code) == (130, [], 0)
    assert _files(out) == _files(whole)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """A file stands where the folder should be: exit code 1 and the reason."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "otlp").write_text("in the way")
    result = overwatch("simulate", *SMALL, "--out", tmp_path / "out")

    assert result.exit_code == 1
    assert "cannot be written" in result.output


def _seen(service: Service, run_id: str) -> Snapshot | None:
    try:
        return fetch_snapshot(str(service.endpoints.view), run_id)
    except ViewUnreachableError:
        return None


def test_a_collector_sees_the_run_as_it_happens(tmp_path: Path) -> None:
    """Played in real time over HTTP: the run is live, then completed, and nothing is lost."""
    with running(tmp_path) as service:
        began = time.monotonic()
        result = overwatch(
            "simulate", "--gpus", "2", "--envs", "4", "--slots", "2", "--seconds", "3", "--run-id", "live",
            "--endpoint", str(service.endpoints.otlp_http),
        )  # fmt: skip
        took = time.monotonic() - began
        last = eventually(lambda: (s := _seen(service, "live")) and s.run.outcome and s)

    assert result.exit_code == 0, result.output
    assert took >= 3
    assert (last.run.outcome, last.run.update, last.counters["updates"]) == ("completed", 3, 3)
    assert last.link.dropped in (None, 0)
    assert "records delivered" in result.output


def test_ctrl_c_ends_the_run_as_interrupted(tmp_path: Path) -> None:
    """The end is sent to the collector, and the status is that of Ctrl-C."""
    with running(tmp_path) as service:
        command = [
            sys.executable, "-m", "overwatch.cli", "simulate", "--gpus", "1", "--envs", "2", "--slots", "1",
            "--seconds", "600", "--run-id", "cut", "--endpoint", str(service.endpoints.otlp_http),
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            eventually(lambda: _seen(service, "cut"), within_s=30)
            process.send_signal(signal.SIGINT)
            stated, _ = process.communicate(timeout=30)
        last = eventually(lambda: (s := _seen(service, "cut")) and s.run.outcome and s)

    assert process.returncode == 130, stated
    assert (last.run.outcome, last.run.reason) == ("interrupted", "ended by the user")


def test_a_collector_that_is_away_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be delivered is counted with the reason, and the exit code is 1."""
    monkeypatch.setattr(simulation, "DRAIN_S", 0.2)
    with running(tmp_path) as service:
        gone = str(service.endpoints.otlp_http)
    result = overwatch("simulate", *SMALL[:-1], "1", "--endpoint", gone)

    assert result.exit_code == 1
    assert "the collector does not take it yet" in result.output
    assert "not delivered in time" in result.output
    assert "0 records delivered" in result.output


def test_without_an_address_the_announced_collector_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The discovery file of this machine names the collector; without one it is the default port."""
    monkeypatch.setattr(simulation, "DRAIN_S", 0.0)
    monkeypatch.setattr(simulation, "DEFAULT_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    alone = overwatch("simulate", *SMALL[:-1], "1")
    (tmp_path / "overwatch").mkdir(exist_ok=True)
    found = {"pid": os.getpid(), "otlp_http": "http://127.0.0.1:2"}
    (tmp_path / "overwatch" / "collector.json").write_bytes(msgspec.json.encode(found))
    announced = overwatch("simulate", *SMALL[:-1], "1")

    assert "to http://127.0.0.1:1 " in alone.output
    assert "to http://127.0.0.1:2 " in announced.output


def test_the_digest_is_that_of_the_snapshots(tmp_path: Path) -> None:
    """`sha256sum snapshots.jsonl` and `overwatch replay --digest` print the same."""
    folder = record(tmp_path, *SMALL)
    result = overwatch("replay", folder, "--digest")

    assert result.output.strip() == hashlib.sha256((folder / "snapshots.jsonl").read_bytes()).hexdigest()
