"""The command: flags, ends, exit codes."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

from overwatch.extras import TENSORBOARD
from overwatch_rl.cli import COMMANDS, Stop, main
from overwatch_rl.types import Step
from overwatch_rl.worlds import WORLDS
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.world import Morphogenesis
from tests.overwatch_rl.worlds.gym_envs import HERE

SMALL = ["--envs", "2", "--slots", "1", "--no-telemetry", "--log", "text"]
DEADLINE_S = 60.0


class Breaking(Morphogenesis):
    """A world that dies at its third step."""

    def __init__(self, _: str, config: WorldConfig, settings: dict[str, object]) -> None:
        super().__init__(config, MorphogenesisConfig(slots=int(str(settings["slots"]))))
        self._left = 3

    def step(self, actions: torch.Tensor) -> Step:
        """Two steps, then an error."""
        self._left -= 1
        if not self._left:
            raise RuntimeError("the world broke")
        return super().step(actions)


@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        (["--envs", "0"], "envs is 0; use 1 to 65536"),
        (["--slots", "0"], "slots is 0; use 1 to 64"),
        (["--world", "mars"], "world 'mars' does not exist; use one of "),
        (["--lr", "nan"], "nan is no finite number"),
        (["--lr", "-1"], "learning_rate is -1.0; use a number above 0"),
        (["--updates", "0"], "updates is 0; use 1 or more"),
        (["--seconds", "0"], "seconds is 0.0; use a number above 0"),
        (["--threads", "0"], "threads is 0; use 1 or more"),
        (["--seed", "-1"], "seed is -1; use 0 or more"),
        (["--gamma", "2"], "gamma is 2.0; use a number from 0 to 1"),
        (["--anneal-updates", "0"], "anneal_updates is 0; use 1 or more"),
        (
            ["--world", "goodhart:small", "--set", "gamma=0.8"],
            "gamma of goodhart:small is 0.8 and the learner's is 0.99; give --gamma alone",
        ),
        (["--telemetry", "--endpoint", "nowhere"], "endpoint 'nowhere' is no URL"),
    ],
)
def test_a_wrong_flag_is_a_usage_error_that_names_value_and_fix(flags: list[str], stated: str) -> None:
    """Exit 2, and nothing is trained."""
    result = CliRunner().invoke(main, ["train", *SMALL, *flags])

    assert result.exit_code == 2
    assert stated in result.output
    assert "update 1" not in result.output


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN"])
def test_no_option_of_any_command_takes_a_number_that_is_not_finite(value: str) -> None:
    """A comparison with NaN refuses nothing, so a range alone lets it pass."""
    numbers = [
        (f"{command.name} {option.opts[0]}", option.type)
        for command in COMMANDS
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType)
    ]
    passed = []
    for name, kind in numbers:
        with contextlib.suppress(click.BadParameter):
            kind.convert(value, None, None)
            passed.append(name)

    assert len(numbers) > 20
    assert passed == []


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """The error names the folder; what cannot be trained begins nothing."""
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["train", *SMALL, "--out", str(tmp_path / "file" / "below")])
    few = CliRunner().invoke(main, ["train", *SMALL, "--steps", "1", "--out", str(tmp_path / "few")])

    assert (result.exit_code, few.exit_code) == (2, 2)
    assert "below cannot be written" in result.output
    assert "1 steps of 2 envs are too few for 4 minibatches" in few.output
    assert not (tmp_path / "few").exists()


def test_training_and_evaluating_end_to_end(tmp_path: Path) -> None:
    """Two updates leave numbers, a summary and a policy; evaluating compares it with the baselines."""
    trained = CliRunner().invoke(main, ["train", *SMALL, "--updates", "2", "--out", str(tmp_path)])
    table = CliRunner().invoke(main, ["evaluate", str(tmp_path), "--episodes", "2"])
    figures = CliRunner().invoke(main, ["evaluate", str(tmp_path), "--episodes", "2", "--json"])

    assert (trained.exit_code, table.exit_code, figures.exit_code) == (0, 0, 0), trained.output
    assert trained.output.count("update ") == 2
    assert [json.loads(line)["update"] for line in (tmp_path / "updates.jsonl").read_text().splitlines()] == [
        1,
        2,
    ]
    assert json.loads((tmp_path / "summary.json").read_text())["outcome"] == "completed"
    assert list(json.loads(figures.output)) == ["policy", "always-wait", "random", "schedule"]
    assert [line.split()[0] for line in table.output.splitlines()[1:]] == list(json.loads(figures.output))


def test_event_files_are_written_beside_the_tables(tmp_path: Path) -> None:
    """The flag may be followed by a folder, or by the next flag; a file of settings gives it too."""
    board, out = tmp_path / "board", tmp_path / "out"
    (tmp_path / "run.toml").write_text(f"tensorboard = '{board}'\n")
    for words in (["--tensorboard"], ["--tensorboard", str(board)], ["--config", str(tmp_path / "run.toml")]):
        flags = [*SMALL, *words, "--steps", "4", "--updates", "1", "--out", str(out)]
        assert CliRunner().invoke(main, ["train", *flags]).exit_code == 0

    assert [len(list((out / "tensorboard" / name).iterdir())) for name in ("updates", "episodes")] == [1, 1]
    assert [len(list((board / name).iterdir())) for name in ("updates", "episodes")] == [2, 2]


def test_event_files_without_their_package_are_an_error_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that installs it; nothing is trained."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    result = CliRunner().invoke(main, ["train", *SMALL, "--tensorboard", "--out", str(tmp_path / "out")])

    assert (result.exit_code, result.output) == (1, f"Error: {TENSORBOARD.need}\n")
    assert not (tmp_path / "out").exists()


def test_baselines_need_no_policy() -> None:
    """Without a folder there are the baselines and the best schedule; one episode is too few."""
    words = ["evaluate", "--episodes", "2", "--slots", "1", "--json"]
    result = CliRunner().invoke(main, [*words, "--search"])
    refused = CliRunner().invoke(main, ["evaluate", "--episodes", "1"])

    *first, best = json.loads(result.output)
    assert first == ["always-wait", "random", "schedule"]
    assert best.startswith("best: ")
    assert (refused.exit_code, "episodes is 1; use 2 or more" in refused.output) == (2, True)


def test_an_exception_closes_the_run_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1, the outcome and the reason in the summary, and the exception is not swallowed."""
    monkeypatch.setitem(WORLDS, "breaking", f"{__name__}:Breaking")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    result = CliRunner().invoke(main, ["train", *SMALL, "--world", "breaking", "--out", str(tmp_path)])
    summary = json.loads((tmp_path / "summary.json").read_text())

    assert result.exit_code == 1
    assert isinstance(result.exception, RuntimeError)
    assert (summary["outcome"], summary["reason"]) == ("failed", "RuntimeError: the world broke")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_as_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """The step is finished, the run closed; the status shows a launcher that the job is not done."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "train", *SMALL, "--updates", "100000"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        until = time.monotonic() + DEADLINE_S
        lines = tmp_path / "updates.jsonl"
        while not (lines.exists() and lines.read_text()):
            assert time.monotonic() < until, "no update within the deadline"
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        stated, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 128 + number, stated
    assert json.loads((tmp_path / "summary.json").read_text())["outcome"] == "interrupted"
    assert stated.endswith("run interrupted\n")


def test_time_over_is_a_completed_run() -> None:
    """A limit in seconds ends the run at the next step, and without `--updates` nothing else does."""
    result = CliRunner().invoke(main, ["train", *SMALL, "--seconds", "0.2"])

    assert result.exit_code == 0
    assert result.output.endswith("run completed\n")


def test_a_signal_wins_over_the_clock() -> None:
    """A stop that was asked for is reported as one."""
    stop = Stop(1e-9)
    assert stop.outcome() == "completed"
    stop.query()
    assert stop.outcome() == "interrupted"


def test_flags_come_before_the_environment_and_that_before_a_file(tmp_path: Path) -> None:
    """Each setting is taken from the first of the three that gives it; the world's own may be in a table."""
    file = tmp_path / "run.toml"
    file.write_text(
        "updates = 1\nsteps = 4\nenvs = 3\nlr = 0.5\ntelemetry = false\ngamma = 0.5\nanneal-updates = 9\n"
        "normalise-observations = false\n[world-settings]\nslots = 2\n"
    )
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main, ["train", "--config", str(file), "--envs", "2", "--gamma", "0.75", "--out", str(out)],
        env={
            "OVERWATCH_RL_LR": "0.001", "OVERWATCH_RL_ENVS": "5", "OVERWATCH_RL_GAMMA": "0.6",
            "OVERWATCH_RL_ANNEAL_UPDATES": "3", "OVERWATCH_RL_NORMALISE_OBSERVATIONS": "true",
        },
    )  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())
    config = summary["config"]

    assert result.exit_code == 0, result.output
    assert (summary["updates"], summary["steps"]) == (1, 4)
    assert (config["envs"], config["settings"], config["ppo"]["learning_rate"]) == (
        2,
        {"slots": "2", "gamma": 0.75},
        0.001,
    )
    assert config["ppo"]["gamma"] == 0.75
    assert (config["ppo"]["anneal_updates"], config["ppo"]["normalise_observations"]) == (3, True)


def test_a_wrong_name_in_a_file_lists_what_that_command_has(tmp_path: Path) -> None:
    """The table of the world is of `train` alone."""
    (tmp_path / "c.toml").write_text("lisen = 3")
    for command, has in (("train", True), ("rollouts", False)):
        result = CliRunner().invoke(main, [command, "--config", str(tmp_path / "c.toml")])
        assert ("world-settings" in result.output) is has


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("updatez = 3", "has 'updatez'; its names are those of the flags"),
        ("updates = ", "cannot be read"),
        ('updates = "many"', "'many' is not a valid integer"),
        ("world-settings = 3", "write it as a table"),
    ],
)
def test_a_wrong_file_is_a_usage_error(tmp_path: Path, text: str, stated: str) -> None:
    """The error names what is wrong and what may stand there."""
    (tmp_path / "run.toml").write_text(text)
    result = CliRunner().invoke(main, ["train", *SMALL, "--config", str(tmp_path / "run.toml")])

    assert result.exit_code == 2
    assert stated in " ".join(result.output.split())


@pytest.mark.parametrize("kind", ["Nan", "Inf", "None"])
def test_a_reward_that_is_no_number_leaves_its_episode_without_a_return(tmp_path: Path, kind: str) -> None:
    """Others have theirs; it is absent from tables, not 0, and the words name how many and the fix."""
    world = f"gym:{HERE}:Unpaid{kind}-v0"
    flags = ["--world", world, "--envs", "1", "--steps", "16", "--updates", "1", "--out", str(tmp_path)]
    trained = CliRunner().invoke(main, ["train", *flags, "--no-telemetry", "--log", "text"])
    assert trained.exit_code == 0, trained.output
    [update] = [json.loads(line) for line in (tmp_path / "updates.jsonl").read_text().splitlines()]
    _, *rows = (tmp_path / "episodes.csv").read_text().splitlines()
    table = CliRunner().invoke(main, ["evaluate", str(tmp_path), "--episodes", "2"])
    posted = CliRunner().invoke(main, ["evaluate", str(tmp_path), "--episodes", "2", "--post"])

    assert table.exit_code == 0, table.output
    assert [row.split(",")[3] for row in rows] == ["", "4.0", "", "4.0"]
    assert update["return"] == 4.0
    assert "2 rewards of update 1 are no finite numbers" in trained.output
    assert "mend the world's rewards" in trained.output
    assert "policy: 2 of 2 episodes have a reward that is no finite number" in table.output
    [row] = [
        line for line in table.output.splitlines() if line.startswith("policy  ") and "return" not in line
    ]
    assert set(row.split()[1:]) == {"-"}
    assert (posted.exit_code, "nothing to post" in posted.output) == (2, True)
