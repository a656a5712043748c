"""Distributed training on this machine: orchestrator, replay server, learner, actors; a collector if asked.

Owns which processes run, what each is given, and where everything lies. The embedded form needs nothing but
files; Redis, an object store and a database are taken by URL. Must not know how any of them works.
"""

import random
import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from overwatch_rl.actor.service import TABLE
from overwatch_rl.artifacts.signing import KEY_FILE, make_key
from overwatch_rl.cluster.supervision import GaveUpError, Part, Supervisor
from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.replay.settings import table_words

NICENESS: Final = 10
"""Of actors: they give way to the learner."""
_REPLAY: Final = re.compile(r"replay server at (grpcs?://[^,\s]+)")
_ORCHESTRATOR: Final = re.compile(r"orchestrator API at (https?://[^/,\s]+)")
_POLL_INTERVAL_S: Final = 0.1
_LEARNER_END_S: Final = 120.0
"""The last checkpoint and the last weights of a learner may take so long."""
_COLLECTOR: Final = re.compile(r"otlp_http at (https?://[^,\s]+)")
_FIRST_PORT: Final = 14318
_PORTS: Final = 6
"""Of a collector, in a row."""
_TRIES: Final = 5
FILE: Final = "cluster.json"
"""What a folder that is used again goes on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A training on this machine."""

    config: LearnerConfig
    run_id: str
    out: Path
    actors: int
    updates: int | None
    env_steps: int | None
    redis: str | None
    """URL of the version key."""
    bucket: str | None
    """URL of checkpoints and weights."""
    store: str | None
    """URL of the orchestrator's database."""
    has_collector: bool
    endpoint: str | None
    is_reporting: bool
    is_text: bool
    """Whether the learner's lines are for a person."""
    trace: Path | None = None
    """File of which steps are in the weights."""
    replay: str | None = None
    """URL of the place of experience; `None` starts a replay server."""
    replay_token: Path | None = None
    """File of its bearer token, or of the password of Redis."""
    replay_ca: Path | None = None


class Remembered(msgspec.Struct, frozen=True):
    """What a cluster writes into its folder."""

    run_id: str
    config: dict[str, Any]


def remembered(out: Path) -> Remembered | None:
    """Of the cluster that ran in a folder before; `None` where none did."""
    file = out / FILE
    return msgspec.json.decode(file.read_bytes(), type=Remembered) if file.exists() else None


class Cluster:
    """The processes; `close` it."""

    def __init__(self, settings: ClusterSettings, report: Callable[[str, str], None]) -> None:
        """Start all; `report` is given a name and a line. Raises `GaveUpError` where one does not run."""
        self._settings = settings
        settings.out.mkdir(parents=True, exist_ok=True)
        config = settings.config.model_dump(mode="json")
        kept = Remembered(run_id=settings.run_id, config=config)
        (settings.out / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
        self._config = settings.out / "config.json"
        self._config.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=1) + b"\n")
        self._public = make_key(settings.out / KEY_FILE).public
        self.supervisor = Supervisor(settings.out / "logs", report)
        self.places: dict[str, str] = {"run": settings.run_id, "folder": str(settings.out)}
        """Where things are, for a person."""
        with ExitStack() as undo:
            undo.callback(self.supervisor.close)
            self._start()
            undo.pop_all()

    def run(self, stop: Callable[[], str | None], learned: Callable[[], None] = lambda: None) -> str:
        """Keep them running until the learner is done or it is asked to stop; the outcome.

        `learned` is called once, when the first update is there.
        """
        least: int | None = self._numbers()
        while (outcome := stop()) is None:
            if self.supervisor.look():
                return "completed"
            # A learner that goes on first drops what its checkpoint lacks; the file grows by updates alone.
            if least is not None:
                size = self._numbers()
                if size > least:
                    learned()
                least = None if size > least else size
            time.sleep(_POLL_INTERVAL_S)
        return outcome

    def _numbers(self) -> int:
        """Bytes of the learner's numbers."""
        file = self._settings.out / "updates.jsonl"
        return file.stat().st_size if file.exists() else 0

    def close(self) -> None:
        """End all of them, the learner first."""
        self.supervisor.close()

    def _start(self) -> None:
        settings, supervisor = self._settings, self.supervisor
        if settings.has_collector:
            self.places |= start_collector(supervisor, settings.out / "tower")
        self.places["orchestrator"] = str(supervisor.start(self._orchestrator()))
        if settings.replay is None:
            self.places["replay"] = str(supervisor.start(self._replay()))
        else:
            self.places["replay"] = without_password(settings.replay)
        for rank in range(settings.actors):
            supervisor.start(self._actor(rank))
        supervisor.start(self._learner())
        self.places["checkpoints and weights"] = settings.bucket or str(settings.out)
        if settings.redis is not None:
            self.places["version key"] = settings.redis

    def _reporting(self) -> list[str]:
        settings = self._settings
        if not settings.is_reporting:
            return ["--no-telemetry"]
        endpoint = self.places.get("tower", settings.endpoint)
        return ["--run-id", settings.run_id, *(() if endpoint is None else ("--endpoint", endpoint))]

    def _orchestrator(self) -> Part:
        store = self._settings.store or f"sqlite:///{(self._settings.out / 'orchestrator.sqlite').absolute()}"
        words = ("orchestrator", "--listen", "127.0.0.1:0", "--store", store, *self._reporting())
        return Part(name="orchestrator", words=words, address=_ORCHESTRATOR)

    def _replay(self) -> Part:
        table = self._settings.config.table(TABLE)
        words = ["replay-server", "--listen", "127.0.0.1:0", *self._reporting()]
        words += [] if table is None else ["--table", table_words(table)]
        return Part(name="replay", words=tuple(words), address=_REPLAY)

    def _common(self) -> list[str]:
        settings = self._settings
        words = ["--config", str(self._config), "--replay", settings.replay or self.places["replay"]]
        for flag, file in {
            "--replay-token": settings.replay_token,
            "--replay-ca": settings.replay_ca,
        }.items():
            words += [] if file is None else [flag, str(file)]
        reporting = self._reporting()
        return (
            [*words, *reporting]
            if "--run-id" in reporting
            else [*words, "--run-id", settings.run_id, *reporting]
        )

    def _actor(self, rank: int) -> Part:
        settings = self._settings
        words = ["actor", *self._common(), "--rank", str(rank)]
        artifacts = settings.bucket or str(settings.out)
        words += ["--weights", settings.redis or artifacts, "--weights-key", self._public]
        if settings.redis is not None:
            words += ["--artifacts", artifacts]
        return Part(name=f"actor-{rank}", words=tuple(words), niceness=NICENESS)

    def _learner(self) -> Part:
        settings = self._settings
        words = ["learner", *self._common(), "--out", str(settings.out)]
        words += ["--orchestrator", self.places["orchestrator"]]
        words += ["--log", "text" if settings.is_text else "json"]
        for flag, value in {
            "--bucket": settings.bucket, "--weights": settings.redis, "--updates": settings.updates,
            "--env-steps": settings.env_steps, "--trace": settings.trace,
        }.items():  # fmt: skip
            words += [] if value is None else [flag, str(value)]
        return Part(name="learner", words=tuple(words), is_main=True, end_s=_LEARNER_END_S)


def without_password(url: str) -> str:
    """An address that may be shown.

    >>> without_password("rediss://user:secret@redis:6379/0?max_mib=64")
    'rediss://redis:6379/0?max_mib=64'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def start_collector(supervisor: Supervisor, data: Path) -> dict[str, str]:
    """Where it and its view are; where another takes its ports at the same moment, at others."""
    first = _FIRST_PORT
    for left in reversed(range(_TRIES)):
        base = _free_ports(first, _PORTS)
        words = ("collect", "--data", str(data), "--port-base", str(base))
        part = Part(name="collector", module="overwatch.cli", words=words, address=_COLLECTOR)
        try:
            tower = supervisor.start(part)
        except GaveUpError:
            if not left:
                raise
            first = base + 10 * random.randint(1, 100)  # noqa: S311 apart from who tries beside
        else:
            return {"tower": str(tower), "view": f"overwatch tui --connect 127.0.0.1:{base + 3}"}
    raise AssertionError("the last try returns or raises")


def _free_ports(first: int, count: int) -> int:
    """The first of so many ports in a row that are free."""
    for base in range(first, 60_000, 10):
        with ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    one = stack.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise OSError(f"no {count} ports in a row are free")
