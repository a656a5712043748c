"""Each recipe of `examples/launchers` names its runs, ranks and attempts right, as it is started there."""

import os
import sys
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.libraries.examples import FOLDER, Example
from tests.libraries.running import LIMIT_S, Seen, python_of, watched

RECIPES: Final = FOLDER / "launchers"
HERE: Final = Path(sys.executable)
FAKE: Final = Path(__file__).with_name("fake_slurm.py")
one_of: Final = pytest.mark.sampled(1, of="launchers")
pytestmark = pytest.mark.timeout(LIMIT_S)


def _slurm(recipe: str, folder: Path, *arguments: str, up: Path | None = None) -> Seen:
    """A job of the fake Slurm, which starts the recipe's own script."""
    (commands := folder / "bin").mkdir()
    (state := folder / "slurm").mkdir()
    for name in ("sbatch", "srun", "scontrol"):
        (commands / name).write_text(f'#!/bin/sh\nexec "{HERE}" "{FAKE}" {name} "$@"\n')
        (commands / name).chmod(0o755)
    (folder / "work").mkdir()
    (folder / "work" / "train.py").symlink_to(RECIPES / "train.py")
    env = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "FAKE_SLURM": str(state)}
    if up is not None:
        env["FAKE_SLURM_UP"] = str(up)
    return watched(["sbatch", "--wait", str(RECIPES / recipe), *arguments], HERE, folder, env)


def _assert_whole(seen: Seen, run_id: str, ranks: int, updates: int) -> None:
    """One run that completed, with each update once and the envs of all ranks, each once."""
    assert seen.status == 0, seen.output[-3000:]
    snapshot = seen.runs[run_id]
    assert list(seen.runs) == [run_id]
    assert (snapshot.run.outcome, snapshot.run.ranks, snapshot.run.update) == ("completed", ranks, updates)
    assert snapshot.counters["updates"] == updates
    assert sorted(env.env_id for env in snapshot.envs) == list(range(16 * ranks))
    assert {env.gpu_id for env in snapshot.envs} == {"cpu"}
    assert "critical" not in seen.findings, seen.findings


@one_of
def test_two_ranks_of_torchrun_are_one_run(tmp_path: Path) -> None:
    """Its `--standalone` gives them an id."""
    seen = watched(["sh", str(RECIPES / "torchrun.sh")], HERE, tmp_path)

    _assert_whole(seen, next(iter(seen.runs), ""), ranks=2, updates=60)


@pytest.mark.long
def test_two_ranks_of_accelerate_are_one_run(tmp_path: Path) -> None:
    """It gives them no id: the run is named after its task."""
    needed = (Requirement((RECIPES / "accelerate.txt").read_text().strip()),)
    python = python_of(Example(name="accelerate", script=RECIPES / "train.py", requirements=needed))
    seen = watched(["sh", str(RECIPES / "accelerate.sh")], python, tmp_path)

    name = next(iter(seen.runs), "")
    assert name.startswith("bandit-")
    _assert_whole(seen, name, ranks=2, updates=60)


@one_of
def test_a_requeued_job_goes_on_with_its_run(tmp_path: Path) -> None:
    """Stopped by USR1 at its first checkpoint; the second life does what was left, under the same id."""
    up = tmp_path / "work" / "checkpoint.pt"
    seen = _slurm("slurm.sbatch", tmp_path, "--updates=1500", up=up)

    _assert_whole(seen, "slurm-1001.0", ranks=2, updates=1500)
    assert seen.runs["slurm-1001.0"].run.attempt == 1


@one_of
def test_a_job_array_is_a_run_for_each_task(tmp_path: Path) -> None:
    """Called as `squeue` calls the tasks, in one group."""
    seen = _slurm("slurm-array.sbatch", tmp_path)

    assert seen.status == 0, seen.output[-3000:]
    assert sorted(seen.runs) == ["slurm-1001_1.0", "slurm-1001_2.0", "slurm-1001_3.0"]
    assert {(one.run.outcome, one.run.group, one.run.ranks) for one in seen.runs.values()} == {
        ("completed", "bandit", 1)
    }


@one_of
def test_a_torchrun_on_each_node_of_a_job_is_one_run(tmp_path: Path) -> None:
    """Two agents with two ranks each, which the rendezvous gives the job's id."""
    _assert_whole(_slurm("slurm-torchrun.sbatch", tmp_path), "slurm-1001", ranks=4, updates=60)


@one_of
def test_a_heterogeneous_job_is_a_cluster(tmp_path: Path) -> None:
    """Its components are one run with its services; when the learner is done, nothing of the job goes on."""
    seen = _slurm("slurm-hetjob.sbatch", tmp_path, str(RECIPES / "run.yaml"), "--updates=3")

    assert seen.status == 0, seen.output[-3000:]
    snapshot = seen.runs["slurm-1001"]
    assert list(seen.runs) == ["slurm-1001"]
    assert (snapshot.run.outcome, snapshot.run.update) == ("completed", 3)
    assert snapshot.envs
    shown = {(one.role, one.rank) for one in snapshot.services.values()}
    assert shown == {("learner", 0), ("replay", 0), ("orchestrator", 0), ("actor", 0), ("actor", 1)}
    assert (tmp_path / "work/slurm-1001/learner.token").stat().st_mode & 0o77 == 0
