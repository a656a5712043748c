"""A training that is killed (`kill -9`) at random places and goes on, as a real collector counts it."""

import csv
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

ENVS, STEPS, EVERY = 3, 7, 3
TRAIN = ("--world", "morphogenesis", "--envs", ENVS, "--slots", 2, "--steps", STEPS, "--set", "steps=9")
PATIENCE_S = 300.0
"""On a machine with much other work."""


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Of one of the run's own tables."""
    path = folder / name
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def started(folder: Path, endpoint: str, *words: object) -> "subprocess.Popen[bytes]":
    """A life of the training."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "train", *words, "--endpoint", endpoint]
    command += ["--checkpoint-every", EVERY, "--log", "json"]
    with (folder / "training.log").open("ab") as log:
        return subprocess.Popen(
            [str(word) for word in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env=os.environ | {"OVERWATCH_SPOOL_DIR": str(folder / "spool"), "OVERWATCH_QUIET": "1"},
        )  # fmt: skip


@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_training_that_is_killed_counts_every_end_once(tmp_path: Path, kills: int) -> None:
    """The collector counts the updates, steps and episodes of the line that was kept, each once."""
    run, reached = tmp_path / "run", 0
    with collecting(tmp_path) as endpoints:
        where = str(endpoints.otlp_http)
        words: tuple[object, ...] = (*TRAIN, "--out", run, "--run-id", "killed")
        for _ in range(kills):
            goal = reached + EVERY + random.randrange(1, 2 * EVERY + 1)  # noqa: S311 where it is killed
            with started(tmp_path, where, *words, "--updates", 100_000) as life:
                try:
                    until(lambda goal=goal: len(rows(run, "updates.csv")) >= goal, "updates", PATIENCE_S)  # type: ignore[misc] # bound now
                    until((run / "checkpoints" / "latest").exists, "a checkpoint", PATIENCE_S)
                finally:
                    life.kill()
            reached = len(rows(run, "updates.csv"))
            words = ("--resume", run)
        planned = reached + 2 * EVERY
        with started(tmp_path, where, *words, "--updates", planned) as last:
            assert last.wait(PATIENCE_S) == 0, (tmp_path / "training.log").read_text()[-2000:]

        def ended() -> Snapshot | None:
            shown = snapshot_of(endpoints, "killed")
            return shown if shown is not None and shown.run.outcome == "completed" else None

        counted = until(ended, "the end of the run", PATIENCE_S).counters
    episodes = {(row["env"], row["step"]) for row in rows(run, "episodes.csv")}
    assert len(rows(run, "updates.csv")) == planned
    assert (counted["updates"], counted["steps"]) == (planned, planned * STEPS * ENVS)
    assert counted["episodes"] == len(episodes) == len(rows(run, "episodes.csv"))
