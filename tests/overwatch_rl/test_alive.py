"""The sign of life: a file's time follows progress, and no disk disturbs training."""

import os
from pathlib import Path

from click.testing import CliRunner

from overwatch_rl.alive import EVERY_S, Alive
from overwatch_rl.cli import Stop, main

SMALL = ("--envs", "2", "--slots", "1", "--no-telemetry", "--log", "text", "--updates", "1")


class Clock:
    """Seconds that are set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Of now."""
        return self.now


def _age(file: Path) -> None:
    """Make it look old."""
    os.utime(file, (0, 0))


def test_each_progress_makes_the_file_young_but_no_more_than_once_a_second(tmp_path: Path) -> None:
    """Its owner asks a clock in between, and nothing else."""
    clock = Clock()
    alive = Alive(tmp_path / "alive", clock, {})
    assert not alive.file.exists()

    alive.touch()
    assert alive.file == tmp_path / "alive/0"
    _age(alive.file)
    clock.now = EVERY_S / 2
    alive.touch()
    assert alive.file.stat().st_mtime == 0
    clock.now = EVERY_S
    alive.touch()
    assert alive.file.stat().st_mtime > 0


def test_processes_of_torchrun_have_a_file_each_and_begin_without_an_earlier_ones(tmp_path: Path) -> None:
    """A start that hangs would look alive by what the process before it left."""
    found = [Alive(tmp_path, environment={"LOCAL_RANK": rank}) for rank in ("0", "1")]
    for one in found:
        one.touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]

    Alive(tmp_path, environment={"LOCAL_RANK": "1"})
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_a_disk_that_fails_later_is_no_error_of_training(tmp_path: Path) -> None:
    """The file only stays away."""
    alive = Alive(tmp_path / "alive", environment={})
    (tmp_path / "alive").rmdir()
    alive.touch()
    assert not alive.file.exists()


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """Else a probe would end a training that goes on."""
    (tmp_path / "file").write_text("")
    found = CliRunner().invoke(main, ["train", *SMALL, "--alive", str(tmp_path / "file/below")])

    assert found.exit_code == 2
    assert "file/below, which cannot be written" in found.output


def test_who_asks_whether_to_end_is_alive(tmp_path: Path) -> None:
    """Also once it was asked to."""
    clock = Clock()
    alive = Alive(tmp_path, clock, {})
    stop = Stop(None, alive=alive)
    assert not alive.file.exists()
    assert stop.outcome() is None
    assert alive.file.exists()

    stop.query()
    _age(alive.file)
    clock.now += EVERY_S
    assert stop.outcome() == "interrupted"
    assert alive.file.stat().st_mtime > 0


def test_a_training_leaves_its_file(tmp_path: Path) -> None:
    """By the command."""
    found = CliRunner().invoke(main, ["train", *SMALL, "--alive", str(tmp_path / "alive")])

    assert found.exit_code == 0, found.output
    assert [path.name for path in (tmp_path / "alive").iterdir()] == ["0"]
