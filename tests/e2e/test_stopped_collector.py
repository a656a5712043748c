"""A collector that is stopped while trainers go on: by SIGSTOP, as in a VM that is moved."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

import msgspec

from overwatch.discovery import Endpoints
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

STOPPED_S = 8.0
"""Longer than the silence that is a finding."""
TRAINER = """
import select, sys, overwatch.sdk
run = overwatch.sdk.start(run_id=sys.argv[1], endpoint=sys.argv[2], sample=False)
print(run.exporter_pid, flush=True)
update = 0
while not select.select([sys.stdin], [], [], 0.1)[0]:
    update += 1
    run.update(update=update, kl_divergence=0.01)
run.close(timeout=60)
"""


class Trainer:
    """A program that sends an update every 0.1 s until it is to end."""

    def __init__(self, folder: Path, run_id: str, endpoint: str) -> None:
        self.run_id = run_id
        # Trainers of one runtime folder share the process that sends.
        names = "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR", "XDG_RUNTIME_DIR"
        own = {name: str(folder / run_id / name) for name in names}
        (folder / run_id).mkdir()
        for place in own.values():
            Path(place).mkdir(mode=0o700)
        self._process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, run_id, endpoint],
            env={**os.environ, **own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with _open(self._process.stdout) as printed:
            self._exporter = int(printed.readline())

    def die(self) -> None:
        """It and what sends for it are killed, so that nobody reports its end."""
        self._process.send_signal(signal.SIGSTOP)
        os.kill(self._exporter, signal.SIGKILL)
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        """End it, if it runs."""
        _open(self._process.stdin).close()
        self._process.wait(90)


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@contextmanager
def training(folder: Path, run_id: str, endpoints: Endpoints) -> Iterator[Trainer]:
    """A trainer whose updates have come in; it ends with the block."""
    trainer = Trainer(folder, run_id, endpoints.otlp_http or "")
    try:
        until(lambda: _updates(endpoints, run_id) > 20, f"updates of {run_id}")
        yield trainer
    finally:
        trainer.wait()


def _updates(endpoints: Endpoints, run_id: str) -> int:
    snapshot = snapshot_of(endpoints, run_id)
    return 0 if snapshot is None else snapshot.run.update or 0


def _codes(snapshot: Snapshot | None) -> set[str]:
    return set() if snapshot is None else {finding.code for finding in snapshot.findings}


def _replayed(folder: Path) -> list[bytes]:
    command = [sys.executable, "-m", "overwatch.cli", "replay", str(folder), "--format", "json"]
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.splitlines()


def test_a_stopped_collector_finds_no_fault_with_trainers_that_went_on(tmp_path: Path) -> None:
    """One that lives is never silent; one that died meanwhile is, seconds after the return; replays agree."""
    with collecting(tmp_path) as endpoints:
        with (
            training(tmp_path, "lives", endpoints) as alive,
            training(tmp_path, "dies", endpoints) as dying,
        ):
            os.kill(endpoints.pid, signal.SIGSTOP)
            try:
                dying.die()
                time.sleep(STOPPED_S)
            finally:
                os.kill(endpoints.pid, signal.SIGCONT)
            returned = time.time()
            until(lambda: "telemetry-stale" in _codes(snapshot_of(endpoints, "dies")), "a silent trainer")
            known = _updates(endpoints, "lives")
            until(lambda: _updates(endpoints, "lives") > known, "updates after the return")
            alive.wait()
        until(lambda: snapshot_of(endpoints, "lives").link.state == "ended", "the end")  # type: ignore[union-attr]
    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    shown = [msgspec.json.decode(line, type=Snapshot) for line in live]
    silent = {"telemetry-stale", "run-lost", "run-silent", "producer-gone"}
    of_the_living = [one for one in shown if one.run.run_id == "lives"]
    stale = [one.time for one in shown if _codes(one) & silent]

    assert not set().union(*map(_codes, of_the_living)) & silent
    assert min(stale) > returned
    assert max(later.time - one.time for one, later in pairwise(of_the_living)) > 5
    assert "nothing was received or folded" in (tmp_path / "collector.log").read_text()
    assert _replayed(tmp_path / "otlp") == live
    # What came in the last part of a second is shown of a journal too, which holds no stop.
    lines = _replayed(tmp_path / "journal" / "journal")
    journalled = [line for line in lines if msgspec.json.decode(line, type=Snapshot).time % 1 == 0]
    assert journalled == live[: len(journalled)]
    assert shown[len(journalled) - 1].time > returned
