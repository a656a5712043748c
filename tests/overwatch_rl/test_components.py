"""A user's own world, network and algorithm, by `module:name` from the folder that the command runs in."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.cli import main

OWN = Path(__file__).parents[2] / "examples/own"
ARGUMENTS = (
    "train", "--world", "gym:parts:Steep-v0", "--network", "parts:wide", "--algorithm", "parts:Ranked",
    "--ppo", "clip=0.1", "--no-telemetry", "--log", "text", "--steps", "16", "--envs", "2", "--updates",
)  # fmt: skip


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the example."""
    monkeypatch.chdir(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))


def run(*words: str) -> str:
    """Output and errors of a command, which must succeed."""
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("here")
def test_the_example_trains_goes_on_and_is_evaluated(tmp_path: Path) -> None:
    """With the presets and options of PPO, whose class it extends."""
    run(*ARGUMENTS, "1", "--out", str(tmp_path))
    run("train", "--resume", str(tmp_path), "--updates", "2", "--no-telemetry", "--log", "text")
    config = json.loads((tmp_path / "summary.json").read_text())["config"]

    assert (config["parts:Ranked"]["clip"], config["parts:Ranked"]["gamma"]) == (0.1, 0.99)
    assert "policy " in run("evaluate", str(tmp_path), "--episodes", "2")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("flag", ["world", "network", "algorithm"])
def test_a_name_that_a_module_has_not_is_an_error_of_use(flag: str) -> None:
    """Naming the module."""
    result = CliRunner().invoke(main, ["train", f"--{flag}", "parts:nothing", "--no-telemetry"])

    assert (result.exit_code, "module parts has no 'nothing'" in result.output) == (2, True)
