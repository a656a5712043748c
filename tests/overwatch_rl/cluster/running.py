"""A small cluster of real processes, driven step by step."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

from overwatch_rl.cluster.process import Cluster, ClusterSettings
from overwatch_rl.cluster.supervision import Part
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.trace import Began, Trained
from overwatch_rl.replay.client import ReplayClient
from tests.overwatch_rl.servers import SlowWire

WAIT_S = 240.0
"""So long one thing may take on a machine with much else to do."""


def surviving(file: Path) -> list[Trained]:
    """The updates that the weights of the last life descend from, in order; a torn last line is left out."""
    found: list[Trained] = []
    for line in file.read_bytes().split(b"\n")[:-1]:
        one = msgspec.json.decode(line, type=Began | Trained)
        found = [update for update in found if update.updates < one.updates + isinstance(one, Began)]
        if isinstance(one, Trained):
            found.append(one)
    return found


def config(**given: Any) -> LearnerConfig:
    """Updates of a few milliseconds."""
    small = {
        "world": "goodhart:small", "seed": 3, "batch": {"steps": 16, "envs": 8, "ahead": 1, "max_age": None},
        "ppo": {"epochs": 1, "minibatches": 2}, "checkpoint": {"every_steps": 256, "keep": 3},
        "heartbeat_s": 5,
    }  # fmt: skip
    return learner_config(small, given)


def settings(out: Path, given: LearnerConfig, **own: Any) -> ClusterSettings:
    """Without telemetry."""
    usual = {
        "run_id": "run-1", "actors": 2, "updates": None, "env_steps": None, "redis": None, "bucket": None,
        "store": None, "has_collector": False, "endpoint": None, "is_reporting": False, "is_text": False,
        "trace": out / "trace.jsonl",
    }  # fmt: skip
    return ClusterSettings(config=given, out=out, **(usual | own))


def behind_a_slow_wire(stack: ExitStack, late_s: float) -> type[Cluster]:
    """A cluster whose learner gets what replay answers so late, piece by piece."""

    class Late(Cluster):
        def _learner(self) -> Part:
            part, address = super()._learner(), self.places["replay"]
            wire = stack.enter_context(SlowWire(int(address.rpartition(":")[2]), late_s))
            words = [f"grpc://{wire.address}" if word == address else word for word in part.words]
            return replace(part, words=tuple(words))

    return Late


class Running:
    """A cluster that goes on while it is waited for something."""

    def __init__(self, made: ClusterSettings, kind: type[Cluster] = Cluster) -> None:
        self.settings = made
        self.lines: list[tuple[str, str]] = []
        self.cluster = kind(made, lambda name, line: self.lines.append((name, line)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Go on until it is so."""
        ends = time.monotonic() + WAIT_S

        def stop() -> str | None:
            if is_so():
                return "so"
            return "late" if time.monotonic() > ends else None

        outcome = self.cluster.run(stop)
        assert outcome == "so", f"{outcome}: {what}\n" + "\n".join(f"{n}: {t}" for n, t in self.lines[-40:])

    def updates(self) -> int:
        """That the surviving weights have had."""
        file = self.settings.trace
        assert file is not None
        found = surviving(file) if file.exists() else []
        return found[-1].updates if found else 0

    def more(self, count: int, what: str) -> None:
        """So many updates more than now."""
        wanted = self.updates() + count
        self.until(lambda: self.updates() >= wanted, what)

    def kill(self, name: str) -> None:
        """Without a warning; wait until another one is in its place."""
        pid = self.cluster.supervisor.pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.cluster.supervisor.pid(name) not in (None, pid), f"{name} again")

    def end(self, name: str) -> None:
        """End one, and start no other in its place."""
        one = self.cluster.supervisor._running.pop(name)
        assert one.child is not None
        one.child.end()
        one.log.close()

    def kill_amid_leases(self) -> None:
        """Kill the learner at moments when it holds leases, until it got some of their items again."""
        while not self._experience("redelivered"):
            self.until(self._is_stopped_amid_leases, "a lease of the learner")
            self.kill("learner")
            self.more(1, "after the learner was killed")

    def _is_stopped_amid_leases(self) -> bool:
        pid = self.cluster.supervisor.pid("learner")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        if self._experience("leases"):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    def _experience(self, field: str) -> int:
        """A number of the replay server's tables."""

        async def found() -> int:
            client = ReplayClient([str(self.cluster.places["replay"])])
            try:
                return sum(getattr(table, field) or 0 for own in await client.stats() for table in own)
            finally:
                await client.close()

        return asyncio.run(found())
