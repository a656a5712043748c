"""Trainers of several modes: read as they write, ended together."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.cli import main
from overwatch_rl.modes import Modes

UPDATE = '{"event": "update", "update": 1, "values": {}, "view": ["ab"]}'
SMALL = ["--world", "goodhart:small", "--envs", "2", "--steps", "4", "--no-telemetry"]


def test_lines_become_rows_a_view_and_an_outcome() -> None:
    """What is no line of a trainer is passed over, and a trainer that cannot start leaves its words."""
    with Modes([("one", ["train", "--world", "nowhere"])]) as modes:
        (mode,) = modes.modes
        mode.process.wait(60)
        modes.stop()
        for line in ("Usage: x", "3", UPDATE, '{"event": "memory"}'):
            mode.take(line)
        values, view = modes.snapshot(mode)

    assert (values, view, mode.history("return")) == ([{"update": 1}], ["ab"], [None])
    assert (mode.outcome, modes.status(), modes.is_training) == (None, 2, False)
    assert "world 'nowhere' does not exist" in " ".join(mode.errors)


@pytest.mark.sampled(1, of="all modes at once")
def test_all_modes_train_at_once_each_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """A line an update and one at the end of each; a mode that the world has not is a usage error."""
    result = subprocess.run(
        [sys.executable, "-m", "overwatch_rl.cli", "train", *SMALL, "--mode", "all", "--updates", "2",
         "--out", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    lines = [line.split() for line in result.stdout.splitlines()]

    assert result.returncode == 0, result.stderr
    for mode in ("ground_truth", "proxy", "proxy_jammed"):
        assert [line[1] for line in lines if line[0] == mode] == ["update", "update", "completed"]
        assert json.loads((tmp_path / mode / "summary.json").read_text())["outcome"] == "completed"


@pytest.mark.sampled(1, of="all modes at once")
def test_a_signal_ends_all_of_them(tmp_path: Path) -> None:
    """Ctrl-C is passed on once; each closes its run as interrupted."""
    command = [
        sys.executable,
        "-m",
        "overwatch_rl.cli",
        "train",
        *SMALL,
        "--mode",
        "all",
        "--updates",
        "100000",
    ]
    with subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen: set[str] = set()
        while len(seen) < 3:
            seen.add(process.stdout.readline().split()[0])
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=120)[0].splitlines()

    assert process.returncode == 130
    assert sorted(line.split()[1] for line in rest[-3:]) == ["interrupted"] * 3
    for mode in seen:
        assert json.loads((tmp_path / mode / "summary.json").read_text())["outcome"] == "interrupted"


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--mode", "all", "--world", "morphogenesis"], "has no modes; leave --mode and --dashboard out"),
        (["--mode", "blind", "--dashboard"], "mode is 'blind'; use one of all, ground_truth, proxy"),
        (["--mode", "all", "--lr", "-1"], "learning_rate is -1.0"),
    ],
)
def test_a_wrong_flag_starts_nothing(flags: list[str], error: str) -> None:
    """It is a usage error before any process is started."""
    result = CliRunner().invoke(main, ["train", *SMALL, *flags])

    assert result.exit_code == 2
    assert error in result.output
