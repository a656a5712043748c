"""Stable-Baselines3's own CartPole example, watched: everything on the board, nothing to complain about."""

import os
import re
import subprocess
import sys
from pathlib import Path

from overwatch import codec
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

EXAMPLE = """
import gymnasium as gym
from stable_baselines3 import PPO

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, verbose=1)
model.learn(total_timesteps=10_000)
"""
"""As in the library's documentation, without the window that shows the cart."""
PAGE = Path(__file__).parents[2] / "docs/adapters/sb3.md"
UPDATES = 5


def _watched() -> str:
    """The documented program: the example with one line added and one argument."""
    found = re.search(r"```python\n(.*?OverwatchCallback\(\).*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    added = "from overwatch.adapters.sb3 import OverwatchCallback\n"
    argument = ", callback=OverwatchCallback()"
    assert found[1].replace(added, "").replace(argument, "").strip() == EXAMPLE.strip()
    return found[1]


def test_a_stock_sb3_run_is_shown_whole_and_raises_no_finding(tmp_path: Path) -> None:
    """Ten thousand steps with the defaults: no finding at any time, env row, policy pulse, a clean end."""
    with collecting(tmp_path) as endpoints:
        environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": str(endpoints.otlp_http),
            "OVERWATCH_RUN_ID": "sb3",
            "OMP_NUM_THREADS": "1",
        }
        subprocess.run(
            [sys.executable, "-c", _watched()],
            env=environment, check=True, timeout=150, cwd=tmp_path, stdout=subprocess.DEVNULL,
        )  # fmt: skip

        def ended() -> Snapshot | None:
            snapshot = snapshot_of(endpoints, "sb3")
            return snapshot if snapshot is not None and snapshot.run.outcome else None

        snapshot = until(ended, "the end of the run")

    recorded = [codec.decode(line) for line in (tmp_path / "snapshots.jsonl").read_bytes().splitlines()]
    # One snapshot a second is recorded and a finding stays for five, so one that ever was is in there.
    assert recorded[-1].run.update == UPDATES
    assert [seen.findings for seen in recorded if seen.findings] == []
    assert_run(snapshot)
    assert_policy(snapshot)
    assert_board(snapshot)


def assert_run(snapshot: Snapshot) -> None:
    """Who trained, how far, and that it ended well."""
    run = snapshot.run
    assert (run.task, run.algo, run.n_envs, run.devices) == ("CartPole-v1", "ppo", 1, ("cpu",))
    assert (run.update, run.updates, run.steps, run.outcome) == (UPDATES, UPDATES, 10_240, "completed")
    assert run.episode is not None
    assert run.episode > 50


def assert_policy(snapshot: Snapshot) -> None:
    """The pulse of five updates; what SB3 does not log is absent, never 0."""
    policy = snapshot.policy
    shown = ("kl_divergence", "clip_fraction", "explained_variance", "policy_loss", "value_loss", "entropy")
    for name in (*shown, "learning_rate", "return", "update_time", "total_loss", "entropy_nats"):
        assert policy[name].value is not None, name
        assert len(policy[name].history) == UPDATES, name
    assert {policy[name].status for name in shown} <= {"ok", "warning"}
    assert policy["learning_rate"].value == 3e-4
    entropy = policy["entropy"].value
    assert entropy is not None
    assert 0.5 < entropy <= 1.0
    assert [policy[name].status for name in ("grad_norm", "kl_max")] == ["absent", "absent"]


def assert_board(snapshot: Snapshot) -> None:
    """The one env, with its return, reward and pace, on the policy's lane."""
    (env,) = snapshot.envs
    assert (env.env_id, env.gpu_id, env.reward) == (0, "cpu", 1.0)
    assert env.episode_return is not None
    assert 9 < env.episode_return <= 500
    assert env.fps is not None
    assert env.anomaly.score == 0
    assert {"return", "fps"} <= set(snapshot.board.columns)
