"""One training by a cluster of processes on this machine, and what it costs beside one process."""

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil

from overwatch_rl.cluster.process import Cluster, ClusterSettings
from overwatch_rl.handover.children import child
from overwatch_rl.learner.config import LearnerConfig, learner_config

ACTORS: Final = 2
_POLL_INTERVAL_S: Final = 0.1
_WARM: Final = 5
"""Updates before the first measurement: processes load, and memory is found."""


class Cost(msgspec.Struct, frozen=True):
    """Env steps for each second of CPU, of all threads of all processes together."""

    cluster: float
    alone: float

    @property
    def ratio(self) -> float:
        """What of the steps of one process the cluster takes by the same CPU."""
        return self.cluster / self.alone


def config_of(world: str, settings: dict[str, object], seed: int) -> LearnerConfig:
    """The preset of the world, as `overwatch-rl cluster --local` takes it."""
    return learner_config({"world": world, "settings": settings, "seed": seed})


def trained(config: LearnerConfig, updates: int) -> tuple[list[float], float]:
    """The return of each update, NaN where no episode ended; and env steps a second of CPU."""
    with tempfile.TemporaryDirectory(prefix="overwatch-learning-") as folder:
        out = Path(folder) / "run"
        settings = ClusterSettings(
            config=config, run_id="learning", out=out, actors=ACTORS, updates=updates, env_steps=None,
            redis=None, bucket=None, store=None, has_collector=False, endpoint=None, is_reporting=False,
            is_text=False,
        )  # fmt: skip
        lines: list[str] = []
        cluster = Cluster(settings, lambda name, line: lines.append(f"{name} {line}"))
        samples: list[tuple[int, float]] = []
        try:
            outcome = cluster.run(lambda: _sample(out, cluster.supervisor.pids(), samples))
        finally:
            cluster.close()
        if outcome != "completed" or cluster.supervisor.restarts:
            raise RuntimeError("\n".join(lines[-20:]))
        rows = _rows(out)
    return [row.get("return", float("nan")) for row in rows], _rate(samples, config.rows)


def cost(config: LearnerConfig, updates: int) -> Cost:
    """Of a cluster and of one process, one after the other."""
    return Cost(trained(config, updates)[1], alone(config, updates))


def alone(config: LearnerConfig, updates: int) -> float:
    """Env steps a second of CPU of `overwatch-rl train`, which writes the same numbers and checkpoints."""
    with tempfile.TemporaryDirectory(prefix="overwatch-learning-") as folder:
        own = [part for name, value in config.settings.items() for part in ("--set", f"{name}={value}")]
        words = [
            "train",
            "--world",
            config.world,
            "--seed",
            str(config.seed),
            "--updates",
            str(updates),
            *own,
        ]
        words += ["--plan", "plain", "--no-telemetry", "--out", folder]
        samples: list[tuple[int, float]] = []
        with child("train", words) as process:
            while process.process.poll() is None:
                _sample(Path(folder), [process.process.pid], samples)
                time.sleep(_POLL_INTERVAL_S)
    return _rate(samples, config.rows)


def _rate(samples: list[tuple[int, float]], rows: int) -> float:
    """Env steps a second of CPU, from the first measurement after the beginning to the last."""
    first = next(one for one in samples if one[0] >= _WARM)
    return (samples[-1][0] - first[0]) * rows / (samples[-1][1] - first[1])


def _sample(out: Path, pids: list[int], samples: list[tuple[int, float]]) -> None:
    """Take the CPU of all processes where there is a new update."""
    updates = len(_rows(out))
    if not samples or updates > samples[-1][0]:
        samples.append((updates, sum(_cpu(pid) for pid in pids)))


def _cpu(pid: int) -> float:
    """Of a process and of those that it started."""
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        for one in (process := psutil.Process(pid), *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                seconds += times.user + times.system
    return seconds


def _rows(out: Path) -> list[dict[str, float]]:
    """The numbers of each update, as the learner wrote them."""
    file = out / "updates.jsonl"
    if not file.exists():
        return []
    whole = [line for line in file.read_bytes().split(b"\n")[:-1] if line]
    return [msgspec.json.decode(line) for line in whole]
