"""A quarter of a year of runs in minutes: many of different sizes, and what a collector made of them.

A collector process is measured from outside while runs come and go, and is restarted between them.
"""

import http.client
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import numpy as np

from overwatch.catalog import Scope
from overwatch.events import Column, Event, LogLine, Measured, Origin, Record, RunFinished, Severity
from overwatch.feeds.recording import Recording
from overwatch.otlp.encode import request
from overwatch.snapshot import Snapshot
from tests import fakes
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector

SIZES: Final = (64, 256, 1024, 4096)
STEPS: Final = 4
"""Requests of a run between its first and its last."""
_PAGE: Final = 4096
_LOOK_S: Final = 0.05


@dataclass(slots=True)
class Flown:
    """One run: what it emits next, and what was acknowledged of it."""

    run_id: str
    n_envs: int
    step: int = 0
    seq: int = 1
    lines: int = 0
    """Log lines that were acknowledged."""

    @property
    def is_over(self) -> bool:
        """Whether its end was emitted."""
        return self.step > STEPS + 1

    def events(self) -> list[Event]:
        """What the next request holds."""
        at = time.time_ns()
        line = LogLine(at=at, severity=Severity.INFO, message=f"step {self.step}")
        if self.step == 0:
            return [fakes.started(at, n_envs=self.n_envs, slots=("r0c0", "r0c1")), line]
        if self.step > STEPS:
            return [line, RunFinished(at=at, outcome="completed")]
        ids = Column.of(range(self.n_envs))
        draws = np.random.default_rng(self.step).normal(1.0, 0.1, self.n_envs)
        values = {
            "overwatch.env.reward": Column.of(draws.tolist()),
            "overwatch.env.step_time": Column.of(np.abs(draws).tolist()),
        }
        step = Measured(at=at, scope=Scope.ENV, keys={"env_id": ids}, values=values, index=self.step)
        return [step, fakes.policy(at, self.step, kl_divergence=0.01, entropy=0.6), line]

    def body(self) -> bytes:
        """The same as a request."""
        origin = Origin(run_id=self.run_id, epoch=f"epoch-{self.run_id}", ours=True)
        numbered = enumerate(self.events(), start=self.seq)
        return request([Record(origin=origin, event=event, seq=seq) for seq, event in numbered], {})

    def acknowledged(self) -> None:
        """The request is kept."""
        self.seq += 2 if self.step in (0, STEPS + 1) else 3
        self.lines += 1
        self.step += 1


@dataclass(slots=True)
class Measures:
    """What was measured of the collector's process and folder."""

    rss: int = 0
    """Most bytes."""
    disk: int = 0
    """Most bytes."""
    refusals: Counter[int] = field(default_factory=Counter)
    """Statuses other than 200."""


class Watch:
    """Measures a collector until it is stopped."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.most = Measures()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        looks = 0
        while not self._stopping.wait(_LOOK_S):
            process = self._collector._process
            if process is not None:
                self.most.rss = max(self.most.rss, resident(process.pid))
            looks += 1
            if looks % 20 == 0:
                self.most.disk = max(self.most.disk, on_disk(self._collector.folder))


def resident(pid: int) -> int:
    """Bytes that a process has in memory; 0 of one that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def on_disk(folder: Path) -> int:
    """Bytes of all that a collector keeps below its data folder."""
    total = 0
    # `os.walk` passes over a folder that is removed meanwhile, `rglob` does not.
    for parent, folders, files in os.walk(folder):
        if "pycache" in folders:
            folders.remove("pycache")
        for name in files:
            try:
                total += (Path(parent) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


class Quarter:
    """Runs that come and go, so many at a time, and a collector that is restarted now and then."""

    def __init__(self, folder: Path, *sets: str, sizes: Sequence[int] = SIZES, seed: int = 7) -> None:
        self.collector = Collector(folder, *sets)
        self.flown: list[Flown] = []
        self._sizes = sizes
        self._random = random.Random(seed)  # noqa: S311 sizes of runs  # noqa: S311 sizes of runs

    def pass_by(self, runs: int, at_once: int, restarts: int) -> Measures:
        """All runs from first to last; every living one must be shown whole before it ends."""
        every = max(1, runs // (restarts + 1))
        living: list[Flown] = []
        with Watch(self.collector) as watch:
            while len(self.flown) < runs or living:
                while len(living) < at_once and len(self.flown) < runs:
                    number = len(self.flown)
                    run = Flown(f"run-{number:05}", self._random.choice(self._sizes))
                    self.flown.append(run)
                    living.append(run)
                    if number and number % every == 0:
                        self._restart(number // every)
                for run in living:
                    self.emit(run, watch.most)
                if runs_before_end := [run for run in living if run.step == STEPS + 1]:
                    self._check_whole(runs_before_end)
                living = [run for run in living if not run.is_over]
            return watch.most

    def shown(self, run: Flown) -> Snapshot | None:
        """What the collector shows of a run."""
        endpoints = self.collector.endpoints
        assert endpoints is not None
        return snapshot_of(endpoints, run.run_id)

    def shown_ended(self, run: Flown) -> Snapshot | None:
        """The same once its end is shown."""
        shown = self.shown(run)
        return None if shown is None or shown.run.outcome is None else shown

    def recorded_lines(self) -> Counter[str]:
        """Log lines by run in the recording."""
        found = Counter[str]()
        for _, decoded in Recording(self.collector.folder / "otlp").reported():
            lines = (record for record in decoded.records if isinstance(record.event, LogLine))
            found.update(record.origin.run_id for record in lines)
        return found

    def _restart(self, number: int) -> None:
        if number % 2:
            self.collector.kill()
        else:
            self.collector.stop()
        self.collector.start()

    def check_alive(self) -> None:
        """The process of this life goes on."""
        process = self.collector._process
        assert process is not None
        assert process.poll() is None, self.collector.log

    def emit(self, run: Flown, most: Measures) -> None:
        """The run's next request, until it is acknowledged."""
        body = run.body()

        def is_acknowledged() -> bool:
            status = self._post(body)
            if status != 200:
                most.refusals[status] += 1
            return status == 200

        until(is_acknowledged, f"{run.run_id} to be acknowledged", 120)
        run.acknowledged()

    def _post(self, body: bytes) -> int:
        endpoints = self.collector.endpoints
        assert endpoints is not None
        place = urlsplit(str(endpoints.otlp_http))
        with closing(http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)) as connection:
            try:
                connection.request("POST", "/v1/logs", body, {"Content-Type": "application/x-protobuf"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                return 0
            return answer.status

    def _check_whole(self, runs: list[Flown]) -> None:
        def envs(run: Flown) -> int:
            shown = self.shown(run)
            return 0 if shown is None else sum(shown.board.counts.values())

        for run in runs:
            until(lambda run=run: envs(run) == run.n_envs, f"{run.n_envs} envs of {run.run_id}", 60)
