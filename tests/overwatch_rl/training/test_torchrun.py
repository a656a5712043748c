"""The real torchrun: two ranks of the command over gloo, one of them killed, and a resume of the run."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from overwatch_rl.checkpoints.reading import find_checkpoint

DEADLINE_S = 180
TOY = ("--world", "goodhart:small", "--envs", "8", "--steps", "16", "--checkpoint-every", "1")
ALWAYS = ("--no-telemetry", "--log", "json")


def started(*words: str | Path) -> subprocess.Popen[str]:
    """Two ranks; their lines on standard output. Behind `--` torchrun leaves every flag to the command."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*command, "-m", "overwatch_rl.cli", "--", "train", *map(str, words), *ALWAYS],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def lines(run: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    """What it logs until it ends."""
    assert run.stdout is not None
    return (json.loads(line) for line in run.stdout if line.startswith("{"))


def rank(run: subprocess.Popen[str], number: int) -> psutil.Process:
    """The process of one rank."""
    return next(one for one in psutil.Process(run.pid).children() if one.environ().get("RANK") == str(number))


@pytest.mark.timeout(DEADLINE_S)
def test_a_run_whose_rank_was_killed_ends_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The other rank does not wait for ever; after the resume every update is there, once."""
    folder = tmp_path / "run"
    with started(*TOY, "--seconds", DEADLINE_S, "--out", folder) as run:
        try:
            next(line for line in lines(run) if line["event"] == "checkpoint_saved")
            rank(run, 1).kill()
            list(lines(run))
        finally:
            run.terminate()
    assert run.returncode == 1
    assert json.loads((folder / "summary.json").read_text())["outcome"] != "completed"
    kept = find_checkpoint(folder).state

    with started("--resume", folder, "--updates", kept.updates + 2) as resumed:
        logged = list(lines(resumed))
    assert resumed.returncode == 0
    assert [line["outcome"] for line in logged if line["event"] == "run ended"] == ["completed"]
    after = find_checkpoint(folder).state
    assert (after.lineage, after.updates, after.run_id) == (kept.lineage + 1, kept.updates + 2, kept.run_id)
    rows = (folder / "updates.csv").read_text().splitlines()[1:]
    assert [int(row.partition(",")[0]) for row in rows] == list(range(1, after.updates + 1))
