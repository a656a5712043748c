"""SB3 writes its files for real while `overwatch follow` watches: judged as its adapter's run is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.inputs import open_input
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

TRAIN = """
import sys
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from overwatch.adapters.sb3 import OverwatchCallback

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=10, learning_rate=0.03, seed=1)
model.set_logger(configure(sys.argv[1], sys.argv[2:]))
model.learn(64 * 40, callback=OverwatchCallback())
model.logger.close()
"""
"""A learning rate a hundred times too high; the adapter reports the same training beside the files."""
WRITERS = ("tensorboard", "csv", "json")
UPDATES = 39
"""SB3 never writes the numbers of the last update."""


NAMED = {"steps-too-large"}
"""What is wrong, whatever the machine's speed; KL and clipping, its symptoms, may be shown beside it."""


def _named(snapshots: list[Snapshot]) -> set[str]:
    """Those of `NAMED` that were found."""
    return {finding.code for snapshot in snapshots for finding in snapshot.findings} & NAMED


@pytest.mark.parametrize("writer", WRITERS)
def test_a_followed_run_is_judged_as_the_adapters_run(tmp_path: Path, writer: str) -> None:
    """One training, two reports of it: the same findings of the policy; an import finds them again."""
    logs = tmp_path / "logs"
    with collecting(tmp_path) as endpoints:
        environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": str(endpoints.otlp_http),
            "OVERWATCH_RUN_ID": "adapter",
            "OMP_NUM_THREADS": "1",
        }
        program = [sys.executable, "-c", TRAIN, str(logs), writer]
        with subprocess.Popen(program, env=environment, cwd=tmp_path) as trainer:
            command = [
                sys.executable, "-m", "overwatch.cli", "follow", str(logs), "--pid", str(trainer.pid),
                "--endpoint", str(endpoints.otlp_http), "--config", "n_actions=2",
            ]  # fmt: skip
            follow = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
            assert trainer.wait(60) == 0
        assert follow.returncode == 0, follow.stderr

        def ended() -> Snapshot | None:
            snapshot = snapshot_of(endpoints, "logs")
            return snapshot if snapshot is not None and snapshot.run.outcome else None

        followed = until(ended, "the end of the run")
    recorded = [codec.decode(line) for line in (tmp_path / "snapshots.jsonl").read_bytes().splitlines()]
    of = {name: [one for one in recorded if one.run.run_id == name] for name in ("adapter", "logs")}
    out = tmp_path / "imported"
    overwatch = [sys.executable, "-m", "overwatch.cli", "import", str(logs), "-o", str(out)]
    subprocess.run([*overwatch, "--config", "n_actions=2"], check=True, capture_output=True, timeout=60)

    assert followed.counters["updates"] == UPDATES
    assert followed.run.outcome == "completed"
    assert _named(of["adapter"]) == NAMED
    assert _named(of["logs"]) == NAMED
    assert _named(list(open_input(out).recorded())) == NAMED
