"""Seed 1's manual check by machine: a learning rate that is far too high is seen on the screen."""

import subprocess
import sys
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

pytestmark = pytest.mark.timeout(240)

HEALTHY_LR = 3e-3


def test_a_learning_rate_times_thirty_turns_kl_critical_on_screen(tmp_path: Path) -> None:
    """Within a few updates KL is critical in the snapshot, and the terminal's text says CRIT beside it."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "train", "--world", "morphogenesis"]
    command += ["--envs", "8", "--slots", "2", "--updates", "6", "--seed", "0", "--run-id", "hot"]
    with collecting(tmp_path) as endpoints:
        assert endpoints.otlp_http is not None
        assert endpoints.view is not None
        trainer = subprocess.run(
            [*command, "--lr", str(HEALTHY_LR * 30), "--endpoint", endpoints.otlp_http],
            check=False, timeout=180, capture_output=True, text=True,
        )  # fmt: skip
        assert trainer.returncode == 0, trainer.stderr
        last = until(
            lambda: (s := snapshot_of(endpoints, "hot")) and s.run.outcome and s, "the end of the run"
        )
        look = [sys.executable, "-m", "overwatch.cli", "tui", "--run", "hot", "--once"]
        shown = subprocess.run(
            [*look, "--connect", endpoints.view], check=True, timeout=60, capture_output=True, text=True
        ).stdout
    statuses = {
        reading.value: reading.status
        for reading in (snapshot.policy["kl_divergence"] for snapshot in _log(tmp_path))
    }

    assert "critical" in statuses.values()
    assert all(
        (status == "critical") == (value > 0.03) for value, status in statuses.items() if value is not None
    )
    kl_line = next(line for line in shown.splitlines() if "KL " in line)
    assert last.policy["kl_divergence"].text in kl_line


def _log(folder: Path) -> list[Snapshot]:
    return [codec.decode(line) for line in (folder / "snapshots.jsonl").read_bytes().splitlines()]
