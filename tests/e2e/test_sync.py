"""What a killed trainer left is delivered: by `overwatch sync`, and by the next start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import overwatch.sdk
from overwatch.events import LogLine
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.ports import free_port

TRAINER = """
import os, signal, sys, overwatch.sdk
run = overwatch.sdk.start(run_id="killed", endpoint=sys.argv[1], sample=False)
for update in range(50):
    run.update(update=update, kl_divergence=0.01)
run.log("last words")
if sys.argv[2] == "both":
    os.kill(run.exporter_pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _own(folder: Path) -> dict[str, str]:
    return {"OVERWATCH_SPOOL_DIR": str(folder / "spool"), "OVERWATCH_RING_DIR": str(folder / "rings")}


def _killed(folder: Path, endpoint: str, owner: str) -> None:
    command = [sys.executable, "-c", TRAINER, endpoint, owner]
    done = subprocess.run(command, env={**os.environ, **_own(folder)}, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def _sync(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overwatch.cli", "sync", *options]
    environment = {**os.environ, **_own(folder)}
    return subprocess.run(command, env=environment, check=False, timeout=120, capture_output=True, text=True)


def _lines(sink: Sink) -> list[str]:
    return [event.message for event in sink.events(LogLine)]


def test_sync_delivers_what_a_killed_pair_left(tmp_path: Path) -> None:
    """Trainer and exporter died: what lay in the rings arrives once; without a collector it stays."""
    port = free_port()
    _killed(tmp_path, f"http://127.0.0.1:{port}", "both")
    away = _sync(tmp_path, "--timeout", "2")
    assert (away.returncode, "kept for the next time" in away.stdout) == (1, True), away
    with http_sink(port) as sink:
        done = _sync(tmp_path)
        assert done.returncode == 0, done
        assert done.stdout == "killed: 51 records delivered\n"
        assert _lines(sink) == ["last words"]
        assert len({record.seq for record in sink.records()}) == len(sink.records())
    assert _sync(tmp_path).stdout == "nothing to deliver\n"
    assert list((tmp_path / "rings").iterdir()) == list((tmp_path / "spool").iterdir()) == []


def test_sync_may_go_elsewhere_and_take_one_spool(tmp_path: Path) -> None:
    """The trainer's collector never came: another endpoint takes the one spool that is named."""
    _killed(tmp_path, f"http://127.0.0.1:{free_port()}", "both")
    assert _sync(tmp_path, "--timeout", "1").returncode == 1
    (spool,) = (tmp_path / "spool").iterdir()
    with http_sink() as sink:
        assert _sync(tmp_path, str(spool), "--endpoint", sink.endpoint).returncode == 0
        assert _lines(sink) == ["last words"]


def test_the_next_start_delivers_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has delivered something of its own."""
    port = free_port()
    _killed(tmp_path, f"http://127.0.0.1:{port}", "both")
    for name, value in _own(tmp_path).items():
        monkeypatch.setenv(name, value)
    with http_sink(port) as sink:
        with overwatch.sdk.start(run_id="next", endpoint=sink.endpoint, sample=False) as run:
            run.log("mine")
            sink.wait(lambda sink: {"mine", "last words"} <= set(_lines(sink)))
        runs = {record.origin.run_id for record in sink.records()}
    assert runs == {"killed", "next"}
