"""A cluster, `overwatch-rl cluster --local`, of real processes, one of which fails after a while.

A process is stopped (SIGSTOP) and goes on later, so that nobody starts it again; or replay forgets, the store
of checkpoints is gone or slow, a copy of the weights that actors read gets no new ones, the way from the
learner to its orchestrator is cut, rewards become larger than numbers are. What is reported is what the
processes report.
"""

import argparse
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from overwatch_rl.cluster.process import Cluster, ClusterSettings
from overwatch_rl.cluster.supervision import Part
from overwatch_rl.learner.config import learner_config
from tests.overwatch_rl.cluster.running import config, settings
from tests.overwatch_rl.servers import CREDENTIALS, FaultProxy, moto, s3_url

HELD: Final = ("replay", "orchestrator", "learner")
OTHERS: Final = ("none", "wiped", "unstored", "unmirrored", "unreached", "slow-store", "overflowing")
BEGIN_S: Final = 6.0
"""Of training before the fault."""
END_S: Final = 8.0
"""Of training after it."""
MOST_S: Final = 180.0
"""That anything is waited for, on a machine with much else to do."""
SLOW_S: Final = 0.6
"""Before the slow store takes a request, and before each quarter of what it answers."""
WEIGHTS: Final = "weights"


class Mirrored(Cluster):
    """Actors read weights from a copy of the place where the learner publishes them."""

    def _actor(self, rank: int) -> Part:
        part, out = super()._actor(rank), self._settings.out
        copy = out / "copy"
        copy.mkdir(exist_ok=True)
        if not (copy / WEIGHTS).exists():
            (out / WEIGHTS).mkdir(exist_ok=True)
            (copy / WEIGHTS).symlink_to((out / WEIGHTS).absolute())
        words = list(part.words)
        words[words.index("--weights") + 1] = str(copy)
        return replace(part, words=tuple(words))


class Apart(Cluster):
    """The learner reaches its orchestrator by a way that can be cut."""

    way: FaultProxy | None = None

    def _learner(self) -> Part:
        part, url = super()._learner(), self.places["orchestrator"]
        self.way = FaultProxy(url, rate=0.0, kinds=("error",))
        self.way.__enter__()
        words = [self.way.address if word == url else word for word in part.words]
        return replace(part, words=tuple(words))

    def close(self) -> None:
        """The way ends behind what went over it."""
        super().close()
        if self.way is not None:
            self.way.__exit__()


KINDS: Final[dict[str, type[Cluster]]] = {"unmirrored": Mirrored, "unreached": Apart}
"""What differs from the usual from the start."""


def held(cluster: Cluster, name: str, seconds: float) -> None:
    """Stop a process for so long."""
    pid = cluster.supervisor.pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    train(cluster, seconds)
    os.kill(pid, signal.SIGCONT)


def wiped(cluster: Cluster, out: Path) -> None:
    """Replay and the learner are killed at once, and all that replay kept is gone."""
    pids = [cluster.supervisor.pid(name) for name in ("learner", "replay")]
    for pid in pids:
        os.kill(pid or 0, signal.SIGKILL)
    shutil.rmtree(out / "replay")


def unstored(out: Path) -> None:
    """Where checkpoints lie is a file now."""
    (out / "checkpoints").rename(out / "gone")
    (out / "checkpoints").write_text("no folder")


def unmirrored(out: Path) -> None:
    """The copy that actors read goes on to name the newest weights, and gets no more of them."""
    fresh = out / "copy" / "fresh"
    fresh.mkdir()
    for file in (out / WEIGHTS).glob("*.safetensors"):
        shutil.copy(file, fresh)
    (fresh / "current.json").symlink_to((out / WEIGHTS / "current.json").absolute())
    (out / "copy" / WEIGHTS).unlink()
    fresh.rename(out / "copy" / WEIGHTS)


@contextmanager
def store(fault: str) -> Iterator[str | None]:
    """The bucket of a run whose store is slow; `None` for its folder."""
    if fault != "slow-store":
        yield None
        return
    os.environ |= CREDENTIALS
    with moto() as address, FaultProxy(address, rate=1.0, kinds=("slow",)) as proxy:
        proxy.slow_s = SLOW_S
        yield s3_url(proxy.address, "slow")


def train(cluster: Cluster, seconds: float) -> None:
    """Let it train."""
    until = time.monotonic() + seconds
    cluster.run(lambda: "over" if time.monotonic() > until else None)


def trained(cluster: Cluster, is_so: Callable[[], bool]) -> None:
    """Let it train until it is so."""
    until = time.monotonic() + MOST_S
    cluster.run(lambda: "so" if is_so() or time.monotonic() > until else None)


def made(flags: argparse.Namespace, bucket: str | None) -> ClusterSettings:
    """Two actors, a learner, replay, an orchestrator."""
    given: dict[str, Any] = {"checkpoint": {"every_steps": 512, "keep": 3}}
    if flags.fault == "overflowing":
        world = "gym:tests.live.worlds:Overflowing-v0"
        given |= {"world": world, "ppo": {"popart": False}, "recovery": {"rollback_after": 2}}
    own = {"run_id": flags.run_id, "endpoint": flags.endpoint, "is_reporting": True, "trace": None}
    own["bucket"] = bucket
    return settings(flags.out, learner_config(config().model_dump(), given), **own)


def main() -> None:
    """Train, fail, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--fault", choices=(*OTHERS, *HELD), default="none")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which the fault is there")
    parser.add_argument("--until", default="", help="the seconds begin when a line of a process holds this")
    flags = parser.parse_args()
    lines: list[str] = []

    def emit(name: str, line: str) -> None:
        lines.append(line)
        print(f"{name}: {line}", flush=True)

    with store(flags.fault) as bucket:
        cluster = KINDS.get(flags.fault, Cluster)(made(flags, bucket), emit)
        try:
            if bucket is None:
                trained(cluster, lambda: any((flags.out / "checkpoints").glob("*/MANIFEST.json")))
            train(cluster, BEGIN_S)
            fail(cluster, flags)
            if flags.until:
                trained(cluster, lambda: any(flags.until in line for line in lines))
            train(cluster, END_S if flags.fault in HELD else flags.seconds)
        finally:
            cluster.close()


def fail(cluster: Cluster, flags: argparse.Namespace) -> None:
    """Plant the fault; what is only stopped goes on when this returns."""
    if flags.fault in HELD:
        held(cluster, flags.fault, flags.seconds)
    elif flags.fault == "wiped":
        wiped(cluster, flags.out)
    elif flags.fault == "unstored":
        unstored(flags.out)
    elif flags.fault == "unmirrored":
        unmirrored(flags.out)
    elif isinstance(cluster, Apart) and cluster.way is not None:
        cluster.way.rate = 1.0


if __name__ == "__main__":
    main()
