"""The stack's probes of liveness with real processes: the kept manifests' own commands.

Time that passes is an older file: what was touched a while ago is distinguished from what is touched now.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from overwatch_rl.orchestrator.core import CLOCKS
from tests.e2e.collecting import until
from tests.overwatch_rl.orchestrator.threaded import in_thread
from tests.overwatch_rl.replay.serving import served
from tests.real.helm.charts import CHART, kept
from tests.real.helm.test_stack import SINGLE, parts

DEADLINE_S = 300
FOLDER = "/tmp/alive"
TOY = {"world": "goodhart:small", "seed": 3, "batch": {"steps": 16, "envs": 8},
       "ppo": {"epochs": 1, "minibatches": 2}}  # fmt: skip


class Probe:
    """The liveness of one part, for processes whose folder is another one."""

    def __init__(self, part: str, values: Path, folder: Path) -> None:
        (container,) = [one for name, one in parts(kept(values)) if name == part]
        assert [
            container["args"][at + 1] for at, word in enumerate(container["args"]) if word == "--alive"
        ] == [FOLDER]
        self.folder = folder
        self.words: Sequence[str] = container["livenessProbe"]["exec"]["command"]
        self.stale_s = _seconds(values)

    def succeeds(self) -> bool:
        """Now."""
        words = [word.replace(FOLDER, str(self.folder)) for word in self.words]
        return subprocess.run(words, check=False, capture_output=True, timeout=60).returncode == 0

    def later(self) -> None:
        """So much time passes that what is not touched again is too old."""
        old = time.time() - self.stale_s - 1
        for file in self.folder.iterdir():
            os.utime(file, (old, old))

    def follows(self, process: psutil.Process) -> None:
        """It succeeds while the process runs, fails while that is stopped, succeeds after that goes on."""
        until(self.succeeds, "the first progress", DEADLINE_S)
        self.later()
        until(self.succeeds, "progress", DEADLINE_S)
        process.suspend()
        until(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
        self.later()
        assert not self.succeeds()
        process.resume()
        until(self.succeeds, "progress after the stop", DEADLINE_S)


def _seconds(values: Path) -> int:
    """The chart's limit, which no values file here changes."""
    assert "livenessSeconds" not in values.read_text()
    return int(yaml.safe_load((CHART / "values.yaml").read_text())["stack"]["livenessSeconds"])


@contextmanager
def started(folder: Path, *words: str | Path | int) -> Iterator[psutil.Process]:
    """A command without telemetry, its lines in a file; ended by SIGTERM, killed where that is not enough."""
    name = next(str(word) for word in words if word in ("learner", "actor", "train"))
    with (folder / f"{name}.log").open("wb") as log:
        made = subprocess.Popen(
            [sys.executable, "-m", *map(str, words), "--no-telemetry", "--log", "json"],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )  # fmt: skip
    try:
        yield psutil.Process(made.pid)
    finally:
        os.killpg(made.pid, signal.SIGCONT)
        made.terminate()
        try:
            made.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(made.pid, signal.SIGKILL)
            made.wait(60)


@pytest.mark.timeout(4 * DEADLINE_S)
def test_the_probes_of_learner_and_actor_follow_their_processes(tmp_path: Path) -> None:
    """The actor begins before the learner has registered, waits for it, and is alive meanwhile."""
    (tmp_path / "run.json").write_text(json.dumps(TOY))
    probes = {part: Probe(part, SINGLE, tmp_path / part) for part in ("learner", "actors")}
    clocks: dict[str, Any] = {"clocks": CLOCKS}
    with in_thread(**clocks) as orchestrator, served(tmp_path) as replay:
        common = ("--run-id", "r", "--config", tmp_path / "run.json", "--replay", replay.address,
                  "--orchestrator", orchestrator.url)  # fmt: skip
        weights = ("--weights", tmp_path / "out")
        alive = ("--alive", tmp_path / "actors")
        with started(tmp_path, "overwatch_rl.cli", "actor", *common, *weights, *alive) as actor:
            probes["actors"].follows(actor)
            waited = (tmp_path / "actor.log").read_text()
            assert "waits up to 300 s for the learner of run r to register" in waited
            assert not probes["learner"].succeeds()
            words = ("overwatch_rl.cli", "learner", *common, "--out", tmp_path / "out")
            with started(tmp_path, *words, "--alive", tmp_path / "learner") as learner:
                probes["learner"].follows(learner)
                until((tmp_path / "out/updates.csv").exists, "an update", DEADLINE_S)
                probes["actors"].follows(actor)
                probes["learner"].follows(learner)
    assert "the learner of run r has registered" in (tmp_path / "actor.log").read_text()


@pytest.mark.timeout(4 * DEADLINE_S)
def test_a_trainers_probe_fails_where_one_of_its_ranks_hangs(tmp_path: Path) -> None:
    """Real torchrun of the processes that the probe counts; one that never began is missing too."""
    values = CHART / "ci/stack-airgapped-values.yaml"
    probe = Probe("trainer", values, tmp_path / "alive")
    count = sum(word.startswith(FOLDER) for word in probe.words)
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", count)
    train = ("-m", "overwatch_rl.cli", "--", "train", "--world", "goodhart:small", "--envs", 8, "--steps", 16)
    with started(tmp_path, *torchrun, *train, "--seconds", 4 * DEADLINE_S, "--alive", probe.folder) as agent:
        until(probe.succeeds, "the first progress", DEADLINE_S)
        last = next(one for one in agent.children() if one.environ().get("RANK") == str(count - 1))
        probe.follows(last)
    (probe.folder / "0").unlink()
    assert not probe.succeeds()
