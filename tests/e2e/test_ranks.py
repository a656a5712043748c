"""Several processes are exactly the right runs: torchrun in its launch styles, and steps of one Slurm job."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from overwatch.events import RunFinished
from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.snapshot import Snapshot, View
from tests.fakes import START_NS
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.ports import free_port

TRAINER = """
import sys
import overwatch.sdk
run = overwatch.sdk.start(task="ant", n_envs=2, endpoint=sys.argv[1], sample=False)
run.update(update=1, entropy=0.5)
run.envs(step=1, reward=[1.0, 2.0])
run.close(timeout=60)
"""
DEADLINE_S = 120


def _torchrun(sink: Sink, script: Path, *options: str) -> subprocess.Popen[bytes]:
    pytest.importorskip("torch", reason="torchrun comes with PyTorch")
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), sink.endpoint]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    return subprocess.Popen(command, env={**environment, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL)


def _snapshots(sink: Sink, ranks: int) -> dict[str, Snapshot]:
    """What the tower makes of all requests, by run."""
    sink.wait(lambda sink: len(sink.events(RunFinished)) == ranks)
    fold, bodies = Fold(), [body for path, body in sink.bodies if path == "/v1/logs"]
    batches = [
        Batch(sequence=number, stamp=START_NS + number, signal=Signal.LOGS, body=body)
        for number, body in enumerate(bodies, start=1)
    ]
    frame = fold.advance(next_tick(START_NS + len(bodies)) + FAST_NS, batches, ())
    return {run: snapshot for (run, view), snapshot in frame.snapshots.items() if view == View()}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A trainer of two lines."""
    path = tmp_path / "train.py"
    path.write_text(TRAINER)
    return path


@pytest.mark.sampled(1)
@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("style", ["standalone", "static", "rendezvous"])
def test_four_ranks_of_torchrun_are_one_run(script: Path, style: str) -> None:
    """Whether torchrun gives an id or states `none`; the envs of all ranks are there, each once."""
    port = free_port()
    options = {
        "standalone": ["--standalone"],
        "static": ["--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}"],
        "rendezvous": ["--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"],
    }[style]
    with http_sink() as sink:
        launch = _torchrun(sink, script, "--nproc-per-node=4", *options)
        assert launch.wait(DEADLINE_S) == 0
        (snapshot,) = _snapshots(sink, ranks=4).values()
    assert [row.env_id for row in sorted(snapshot.envs, key=lambda row: row.env_id)] == list(range(8))
    assert (snapshot.run.n_envs, snapshot.run.update, snapshot.counters["updates"]) == (8, 1, 1)


@pytest.mark.timeout(DEADLINE_S)
def test_ranks_on_two_machines_are_one_run_whoever_comes_first(script: Path) -> None:
    """Two agents that share only a meeting point: rank 0's announcement gathers what was pending."""
    port = free_port()
    with http_sink() as sink:
        options = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
        agents = [_torchrun(sink, script, *options, f"--node-rank={node}") for node in (0, 1)]
        assert [agent.wait(DEADLINE_S) for agent in agents] == [0, 0]
        runs = _snapshots(sink, ranks=4)
        bodies = list(sink.bodies)
        sink.bodies[:] = sorted(bodies, key=lambda item: b"pending-" not in item[1])
        reordered = _snapshots(sink, ranks=4)
    assert len(runs) == len(reordered) == 1
    assert list(runs) == list(reordered)
    assert not next(iter(runs)).startswith("pending-")
    assert {row.env_id for row in next(iter(reordered.values())).envs} == set(range(8))


def test_steps_of_one_slurm_job_are_a_run_each(script: Path) -> None:
    """An allocation runs many steps; the tasks of a step are ranks of one run."""
    with http_sink() as sink:
        tasks = []
        for step in (0, 1):
            for rank in (0, 1):
                slurm = {
                    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": str(step), "SLURM_PROCID": str(rank),
                    "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank),
                }  # fmt: skip
                tasks.append(
                    subprocess.Popen(
                        [sys.executable, str(script), sink.endpoint], env={**os.environ, **slurm}
                    )
                )
        assert [task.wait(DEADLINE_S) for task in tasks] == [0] * 4
        runs = _snapshots(sink, ranks=4)
    assert Counter({run: len(snapshot.envs) for run, snapshot in runs.items()}) == {
        "slurm-77.0": 4,
        "slurm-77.1": 4,
    }
