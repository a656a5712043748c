"""A system that has nothing of what only Linux has: from the trainer to the terminal in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

BARE = Path(__file__).with_name("bare")
UPDATES = 300
TRAINER = """
import json, os, sys
import overwatch.sdk
assert not hasattr(os, "fdatasync") and not os.path.exists("/proc"), "nothing was taken away"
run = overwatch.sdk.start(run_id="bare", task="digits", n_envs=2, endpoint=sys.argv[1])
for update in range(1, int(sys.argv[2]) + 1):
    run.update(update=update, entropy=0.5, kl=0.001)
    run.envs(step=update, reward=[1.0, 2.0])
pid, report = run.exporter_pid, run.close(timeout=60)
print(json.dumps([pid, report.delivered, report.kept, report.dropped]))
"""
OVERWATCH = (sys.executable, "-m", "overwatch.cli")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every process that this test starts lacks what only Linux has."""
    ways = [str(BARE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(ways))
    monkeypatch.delenv("OVERWATCH_RING_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("hidden", ["linux", "psutil"])
def test_data_arrives_whole_where_nothing_of_linux_is_there(
    hidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer, exporter, collector, replay and terminal run."""
    monkeypatch.setenv("OVERWATCH_BARE", hidden)
    with collecting(tmp_path) as endpoints:
        words = (sys.executable, "-c", TRAINER, endpoints.otlp_http or "", str(UPDATES))
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert not ended.returncode, ended.stderr
        pid, delivered, kept, dropped = json.loads(ended.stdout)
        live = until(lambda: _ended(snapshot_of(endpoints, "bare")), "the run's end")
    # The exporter is a process here too, not a thread of the trainer.
    assert pid is not None
    assert (delivered, kept, dropped) == (True, 0, {})
    _is_whole(live)
    replayed = _overwatch("replay", str(tmp_path / "otlp"), "--format", "json").splitlines()[-1]
    assert replayed.encode() == (tmp_path / "snapshots.jsonl").read_bytes().splitlines()[-1]
    frame = _overwatch("tui", "--replay", str(tmp_path / "otlp"), "--once")
    assert "bare  digits" in frame
    assert f"update {UPDATES}" in frame


def _ended(snapshot: Snapshot | None) -> Snapshot | None:
    return snapshot if snapshot is not None and snapshot.run.outcome else None


def _is_whole(snapshot: Snapshot) -> None:
    """Everything that was sent is there."""
    assert snapshot.run.outcome == "completed"
    assert (snapshot.run.update, snapshot.run.steps) == (UPDATES, 2 * UPDATES)
    assert snapshot.link.dropped is None
    assert not snapshot.system.gpus


def _overwatch(*words: str) -> str:
    done = subprocess.run([*OVERWATCH, *words], capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    return done.stdout
