"""SB3 writes its files for real while `overwatch follow` watches: judged as its adapter's run is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.feeds.inputs import open_input
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

TRAIN = """
import sys
from stable_baselines3 import PPO
from overwatch import sdk
from stable_baselines3.common.logger import configure
from overwatch.adapters.sb3 import OverwatchCallback

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=10, learning_rate=0.03, seed=1)
model.set_logger(configure(sys.argv[1], sys.argv[2:]))
model.learn(64 * 40, callback=OverwatchCallback(sdk.start(algo="ppo")))
model.logger.close()
sys.stdin.readline()
"""
"""A learning rate a hundred times too high; the adapter reports the same training beside the files."""
WRITERS = ("tensorboard", "csv", "json")
UPDATES = 39
"""SB3 never writes the numbers of the last update."""


NAMED = frozenset({"policy-kl-divergence", "steps-too-large", "kl-spike", "policy-collapse"})
"""The trouble: which of these is shown, and when, depends on how many updates come between two ticks; a
collapse takes the others in."""


def _named(snapshot: Snapshot | None) -> bool:
    """Whether a run's trouble is found."""
    return snapshot is not None and any(finding.code in NAMED for finding in snapshot.findings)


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
        with subprocess.Popen(program, env=environment, cwd=tmp_path, stdin=subprocess.PIPE) as trainer:
            command = [
                sys.executable, "-m", "overwatch.cli", "follow", str(logs), "--pid", str(trainer.pid),
                "--endpoint", str(endpoints.otlp_http), "--config", "n_actions=2",
            ]  # fmt: skip
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as follow:
                try:
                    for run_id in ("adapter", "logs"):
                        until(
                            lambda run_id=run_id: _named(snapshot_of(endpoints, run_id)),
                            f"trouble of {run_id}",
                        )
                except BaseException:
                    trainer.kill()
                    follow.kill()
                    raise
                trainer.communicate(b"\n", 60)
                printed = follow.communicate(timeout=60)[1]
            assert (trainer.returncode, follow.returncode) == (0, 0), printed

        def ended() -> Snapshot | None:
            snapshot = snapshot_of(endpoints, "logs")
            return snapshot if snapshot is not None and snapshot.run.outcome else None

        followed = until(ended, "the end of the run")
    out = tmp_path / "imported"
    overwatch = [sys.executable, "-m", "overwatch.cli", "import", str(logs), "-o", str(out)]
    subprocess.run([*overwatch, "--config", "n_actions=2"], check=True, capture_output=True, timeout=60)

    assert followed.counters["updates"] == UPDATES
    assert followed.run.outcome == "completed"
    assert any(map(_named, open_input(out).recorded()))
