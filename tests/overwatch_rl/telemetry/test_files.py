"""A run's own numbers in its folder, whatever becomes of the trainer or the process that writes them."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from overwatch_rl.telemetry import files
from overwatch_rl.telemetry.files import Files
from overwatch_rl.types import Rolled

LONG_S = 120.0
STEPS, ENVS = 4, 3


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Files]:
    """In a folder below, closed in the end."""
    made = Files(tmp_path / "run", {"run_id": "r"})
    yield made
    made.close(outcome="failed")


def rolled(
    number: int = 0, *, ends: tuple[tuple[int, int], ...] = ((1, 2), (3, 0)), **columns: Tensor
) -> Rolled:
    """A rollout in which episodes end at these steps of these envs, the last by truncation."""
    terminated, truncated = (torch.zeros(STEPS, ENVS, dtype=torch.bool) for _ in range(2))
    for step, env in ends[:-1]:
        terminated[step, env] = True
    for step, env in ends[-1:]:
        truncated[step, env] = True
    values = torch.arange(STEPS * ENVS).view(STEPS, ENVS)
    return Rolled(
        first_step=number * STEPS + 1, at_first=1.0, at_last=2.0, actions=torch.zeros(STEPS, ENVS, 1),
        rewards=torch.zeros(STEPS, ENVS), terminated=terminated, truncated=truncated,
        episode_return=values.double() / 7, episode_length=values.int(),
        columns={"metric": values.float(), **columns}, seen=torch.zeros(3),
    )  # fmt: skip


def stand_still(pid: int) -> None:
    """Return when a child has stopped."""
    os.kill(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])


def end(pid: int) -> None:
    """Return when a child was killed."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def rows(path: Path) -> list[dict[str, str]]:
    """Of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary(folder: Path) -> dict[str, Any]:
    """How it ended; waits for a process that goes on alone."""
    until = time.monotonic() + LONG_S
    while not (folder / "summary.json").exists():
        assert time.monotonic() < until, sorted(one.name for one in folder.iterdir())
        time.sleep(0.02)
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag, as TensorBoard reads them."""
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def as_curves(found: list[dict[str, str]], tags: dict[str, str], step: str | None) -> dict[str, object]:
    """Columns of a CSV file as `curves` has them: 32 bits a value, nothing where a cell is empty."""
    return {
        tag: [
            (number if step is None else int(row[step]), pytest.approx(float(row[name]), rel=1e-7))
            for number, row in enumerate(found, start=1)
            if row[name]
        ]
        for name, tag in tags.items()
    }


def test_every_episode_has_a_row_in_its_own_numbers(opened: Files, tmp_path: Path) -> None:
    """Env, update, step, return, length, end, metric and the world's columns; a slot's columns stay out."""
    half = torch.full((STEPS, ENVS), 0.5, dtype=torch.bfloat16)
    half[1, 2] = math.nan
    opened.rollout(rolled(0, food=half, stage=torch.zeros(STEPS, ENVS, 2)))
    opened.rollout(rolled(1, ends=((0, 0),), food=half))
    opened.close(outcome="completed")

    assert rows(tmp_path / "run/episodes.csv") == [
        {"env": "2", "update": "1", "step": "2", "return": repr(5 / 7), "length": "5", "ended": "terminated",
         "metric": "5.0", "food": ""},
        {"env": "0", "update": "1", "step": "4", "return": repr(9 / 7), "length": "9", "ended": "truncated",
         "metric": "9.0", "food": "0.5"},
        {"env": "0", "update": "2", "step": "5", "return": "0.0", "length": "0", "ended": "truncated",
         "metric": "0.0", "food": "0.5"},
    ]  # fmt: skip
    found = summary(tmp_path / "run")
    assert (found["run_id"], found["steps"], found["episodes"]) == ("r", 8, 3)


def test_every_update_has_a_row_to_the_last_bit(opened: Files, tmp_path: Path) -> None:
    """Undefined is empty and absent, a fault a word; the summary has the last; closing twice is once."""
    opened.update(1, {"return": 0.1 + 0.2, "norm": math.inf})
    opened.update(2, {"return": -1e-300, "norm": math.nan, "entropy": 0.5})
    opened.close(outcome="failed", reason="why")
    opened.close(outcome="completed")
    folder = tmp_path / "run"

    assert rows(folder / "updates.csv") == [
        {"update": "1", "return": "0.30000000000000004", "norm": "Infinity", "entropy": ""},
        {"update": "2", "return": "-1e-300", "norm": "NaN", "entropy": "0.5"},
    ]
    lines = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
    assert lines[0] == {"update": 1, "return": 0.1 + 0.2, "norm": "Infinity"}
    found = summary(folder)
    assert (found["outcome"], found["reason"], found["updates"], found["last"]) == (
        "failed",
        "why",
        2,
        lines[1],
    )
    assert set(found["dropped"].values()) == {0}


def test_event_files_have_the_values_of_the_tables(tmp_path: Path) -> None:
    """Each number at its update, each episode at its number; what is undefined is in neither."""
    board, folder = tmp_path / "board", tmp_path / "run"
    made = Files(folder, tensorboard=board)
    for number in range(3):
        made.rollout(rolled(number))
        made.update(number + 1, {"return": 0.1 * number} | ({} if number == 1 else {"entropy/op": 1e-30}))
    made.close(outcome="completed")
    names = {"return": "policy/return", "entropy/op": "policy/entropy/op"}

    assert curves(board / "updates") == as_curves(rows(folder / "updates.csv"), names, "update")
    assert [step for step, _ in curves(board / "updates")["policy/entropy/op"]] == [1, 3]
    tags = {"return": "episode/return", "length": "episode/length"}
    assert curves(board / "episodes") == as_curves(rows(folder / "episodes.csv"), tags, None)
    assert len(curves(board / "episodes")["episode/return"]) == 6


def test_a_run_that_goes_on_replaces_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    """As in the tables: both files lie there, and TensorBoard shows the line that was kept."""
    board, folder = tmp_path / "board", tmp_path / "run"
    for done, count in ((0, 3), (1, 1)):
        made = Files(folder, done=(done, done * STEPS), tensorboard=board)
        for number in range(done, done + count):
            made.rollout(rolled(number))
            made.update(number + 1, {"return": 10.0 * done + number})
        made.close(outcome="completed")

    assert curves(board / "updates") == {"policy/return": [(1, 0.0), (2, 11.0)]}
    tags = {"return": "episode/return", "length": "episode/length"}
    assert curves(board / "episodes") == as_curves(rows(folder / "episodes.csv"), tags, None)
    assert len(curves(board / "episodes")["episode/return"]) == 4


@pytest.mark.parametrize(("room", "expected"), [(files.MOST_BYTES, range(1)), (0, range(16, 21))])
def test_a_process_that_stands_still_stops_nobody(
    opened: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, expected: range
) -> None:
    """Rollouts and updates wait and come when it goes on; rollouts without room are dropped and counted."""
    monkeypatch.setattr(files, "MOST_BYTES", room)
    stand_still(opened._sender.pid)
    for number in range(20):
        opened.rollout(rolled(number))
        opened.update(number + 1, {"return": float(number)})
    dropped = opened._dropped["rollouts"]
    os.kill(opened._sender.pid, signal.SIGCONT)
    opened.close(outcome="completed")
    found = summary(tmp_path / "run")

    assert dropped in expected
    assert found["dropped"] == {"rollouts": dropped, "updates": 0, "rows_without_room": 0}
    assert [row["update"] for row in rows(tmp_path / "run/updates.csv")] == [str(n + 1) for n in range(20)]
    assert len(rows(tmp_path / "run/episodes.csv")) == found["episodes"] == 2 * (20 - dropped)


def test_what_waits_is_handed_over_before_a_checkpoint(
    opened: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that is killed then makes none of those rows again; the wait has an end."""
    stand_still(opened._sender.pid)
    for number in range(30):
        opened.rollout(rolled(number))
        opened.update(number + 1, {"return": float(number)})
    monkeypatch.setattr(files, "CHECKPOINT_S", 0.1)
    with opened.phase("checkpoint"):
        assert opened._rollouts
        assert opened._waiting
    monkeypatch.setattr(files, "CHECKPOINT_S", LONG_S)
    os.kill(opened._sender.pid, signal.SIGCONT)
    with opened.phase("update"):
        assert opened._rollouts
    with opened.phase("checkpoint"):
        assert not opened._rollouts
        assert not opened._waiting


def test_updates_that_wait_are_bounded(
    opened: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is more is counted; a rollout above the limit is too."""
    monkeypatch.setattr(files, "MOST_WAITING", 3)
    count = files._NOTES + 20
    monkeypatch.setattr(files, "MOST_ROWS", STEPS * ENVS - 1)
    opened.rollout(rolled())
    stand_still(opened._sender.pid)
    for number in range(count):
        opened.update(number + 1, {"return": float(number)})
    os.kill(opened._sender.pid, signal.SIGCONT)
    opened.close(outcome="completed")
    found = summary(tmp_path / "run")

    written = len(rows(tmp_path / "run/updates.csv"))
    assert (found["dropped"]["rollouts"], found["dropped"]["updates"]) == (1, count - written)
    assert files._NOTES <= written < count


@pytest.mark.parametrize("stopped", [False, True], ids=["idle", "with work in hand"])
def test_a_killed_writer_costs_no_row(opened: Files, tmp_path: Path, *, stopped: bool) -> None:
    """Killed again and again, at its work or between it: each row is there once, and the summary too."""
    updates = 30
    for number in range(updates):
        if stopped and number % 10 == 4:
            stand_still(opened._sender.pid)
        opened.rollout(rolled(number))
        opened.update(number + 1, {"return": 0.5 * number})
        if number % 10 == 5:
            end(opened._sender.pid)
    end(opened._sender.pid)
    opened.close(outcome="completed")
    folder = tmp_path / "run"

    assert [row["update"] for row in rows(folder / "updates.csv")] == [str(n + 1) for n in range(updates)]
    lines = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
    assert [line["return"] for line in lines] == [0.5 * number for number in range(updates)]
    assert [row["step"] for row in rows(folder / "episodes.csv")] == [
        str(number * STEPS + step) for number in range(updates) for step in (2, 4)
    ]
    found = summary(folder)
    assert (found["updates"], found["episodes"], found["last"]) == (updates, 2 * updates, lines[-1])
    assert set(found["dropped"].values()) == {0}


def test_a_writer_that_never_lives_is_given_up(
    opened: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, and the end names what is missing."""
    monkeypatch.setattr(opened._sender, "_words", [sys.executable, "-c", "raise SystemExit(1)"])
    end(opened._sender.pid)
    for number in range(3 * files.MOST_STARTS):
        opened.update(number + 1, {"return": 0.0})
    opened.close(outcome="completed")

    assert "files are not complete" in caplog.text
    assert not (tmp_path / "run/summary.json").exists()


def killed(folder: Path, *more: str) -> None:
    """A trainer with two updates, which is killed; its statements `more` come just before."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from overwatch_rl.telemetry.files import Files\n"
        "from tests.overwatch_rl.telemetry.test_files import rolled\n"
        f"folder = Path({str(folder)!r})\n"
        "made = Files(folder, {'run_id': 'r'}, tensorboard=folder / 'board')\n"
        "for number in range(2):\n"
        "    made.rollout(rolled(number)); made.update(number + 1, {'return': float(number)})\n"
        + "".join(f"{line}\n" for line in more)
        + "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    ran = subprocess.run([sys.executable, "-c", program], check=False, env=env, stderr=subprocess.DEVNULL)
    assert ran.returncode == -signal.SIGKILL


def test_a_run_that_goes_on_waits_for_what_a_killed_trainer_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else rows of before its checkpoint would be written into files that are no more, and be missing."""
    where = tmp_path / "pid"
    killed(
        tmp_path,
        "os.kill(made._sender.pid, signal.SIGSTOP)",
        "made.rollout(rolled(2)); made.update(3, {'return': 2.0})",
        f"Path({str(where)!r}).write_text(str(made._sender.pid))",
    )
    pid = int(where.read_text())
    try:
        monkeypatch.setattr(files, "BUSY_S", 0.1)
        with pytest.raises(ValueError, match="another process writes a run"):
            Files(tmp_path, done=(3, 3 * STEPS))
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.setattr(files, "BUSY_S", LONG_S)
    Files(tmp_path, done=(3, 3 * STEPS)).close(outcome="completed")

    assert [row["update"] for row in rows(tmp_path / "updates.csv")] == ["1", "2", "3"]
    assert len(rows(tmp_path / "episodes.csv")) == 6


def test_a_killed_trainer_leaves_whole_files_and_a_lost_run(tmp_path: Path) -> None:
    """What was handed over is written, every line whole."""
    killed(tmp_path)
    found = summary(tmp_path)

    assert (found["outcome"], found["run_id"]) == ("lost", "r")
    ended, updated = rows(tmp_path / "episodes.csv"), rows(tmp_path / "updates.csv")
    assert len(ended) == found["episodes"] == 4
    assert [row["update"] for row in updated] == ["1", "2"]
    for name in ("episodes.csv", "updates.csv", "updates.jsonl"):
        assert (tmp_path / name).read_text().endswith("\n")
    assert curves(tmp_path / "board/updates") == as_curves(updated, {"return": "policy/return"}, "update")
    assert len(curves(tmp_path / "board/episodes")["episode/return"]) == 4


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With the fix."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"below cannot be written: .*; name another --out folder"):
        Files(tmp_path / "file" / "below")
    with pytest.raises(ValueError, match=r"below cannot be written: .*; name another --tensorboard folder"):
        Files(tmp_path / "run", tensorboard=tmp_path / "file" / "below")
