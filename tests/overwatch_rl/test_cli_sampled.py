"""Commands of distributed training with an algorithm that samples: what does not fit is refused at once."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.cli import main

DQN = ("--set", "world=gym:CartPole-v1", "--set", "algorithm=dqn")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("cluster", "--local", "--algorithm", "sarsa"), "algorithm is 'sarsa'; use one of ppo, dqn"),
        (
            ("cluster", "--local", "--algorithm", "dqn", "--set", "ppo.clip=0.1"),
            "ppo.clip is a setting of ppo, and algorithm is dqn",
        ),
        (
            ("cluster", "--local", "--algorithm", "dqn", "--trace", "trace.jsonl"),
            "--trace is of steps that are used once; dqn samples: leave it out",
        ),
        (("learner", "--run-id", "r", *DQN, "--trace", "trace.jsonl"), "--trace is of steps that are used"),
        (
            ("learner", "--run-id", "r", *DQN, "--replay", "a:1", "--replay", "b:1"),
            "2 replay servers are named; dqn samples from one",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], error: str
) -> None:
    """With the value and the fix."""
    out = tmp_path / "run"
    refused = CliRunner().invoke(main, [*words, "--no-telemetry", "--out", str(out)])
    assert refused.exit_code == 2
    assert error in refused.output
    assert not out.exists()
