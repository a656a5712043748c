"""`overwatch-rl train --algorithm dqn`, run whole: trained, kept, gone on with, evaluated, and refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.cli import main
from overwatch_rl.trained import load_policy

SMALL = ("--dqn", "first_at=64", "--dqn", "gradient_steps=4", "--dqn", "target_every=4", "--steps", "32")


def run(*arguments: object) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates."""
    made = tmp_path_factory.mktemp("dqn") / "run"
    trained = run(
        "train", "--no-telemetry", "--algorithm", "dqn", "--world", "gym:CartPole-v1", "--updates", "4",
        "--lr", "0.001", "--gamma", "0.9", "--out", made, *SMALL,
    )  # fmt: skip
    assert trained.exit_code == 0, trained.output
    return made


def test_a_run_is_kept_with_its_algorithm(folder: Path) -> None:
    """Settings under its name, weights that act, counts; an evaluation reads them."""
    loaded, state = load_policy(folder), find_checkpoint(folder).state
    assert (loaded.algorithm, loaded.updates) == ("dqn", 4)
    assert state.config["dqn"]["learning_rate"] == 0.001  # type: ignore[index]  # of JSON
    assert "ppo" not in state.config
    rows = [line.split(",") for line in (folder / "updates.csv").read_text(encoding="utf-8").splitlines()]
    assert "value_loss" in rows[0]
    evaluated = run("evaluate", folder, "--episodes", "2", "--json")
    assert json.loads(evaluated.output)["policy"]["return"] > 0
    titles = run("evaluate", folder, "--episodes", "2").output.splitlines()[0].split()
    assert titles == ["policy", "return", "metric"]


def test_a_run_goes_on_and_its_settings_may_not_differ(folder: Path, tmp_path: Path) -> None:
    """Without naming the algorithm; another one, or another value, is an error that names both."""
    same = ("train", "--no-telemetry", "--resume", folder)
    more = run(*same, "--updates", "5", "--out", tmp_path / "more")
    assert more.exit_code == 0, more.output
    assert load_policy(tmp_path / "more").updates == 5
    for words, error in (
        (("--algorithm", "ppo"), "--algorithm is ppo, the checkpoint was trained with dqn"),
        (("--gamma", "0.5"), "--gamma is 0.5, the checkpoint was trained with 0.9"),
        (("--dqn", "batch=8"), "--dqn batch is 8, the checkpoint was trained with 64"),
    ):
        refused = run(*same, "--updates", "6", *words)
        assert refused.exit_code == 2
        assert error in refused.output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--algorithm", "sarsa"), "algorithm is 'sarsa'; use one of ppo, dqn"),
        (("--algorithm", "dqn", "--epochs", "3"), "--epochs is a setting of another algorithm than dqn"),
        (("--dqn", "batch=3"), "--dqn is a setting of another algorithm than ppo"),
        (
            ("--algorithm", "dqn", "--dqn", "bach=3"),
            "dqn has no setting 'bach'; its settings are alpha",
        ),
        (("--algorithm", "dqn", "--world", "morphogenesis"), "dqn acts by one choice; "),
    ],
)
def test_what_does_not_fit_is_refused(words: tuple[str, ...], error: str) -> None:
    """With what to use."""
    refused = run("train", "--no-telemetry", "--world", "gym:CartPole-v1", "--updates", "1", *words)
    assert refused.exit_code == 2
    assert error in refused.output
