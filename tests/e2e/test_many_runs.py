"""Very many live runs at a collector on one core: no loss, verdicts soon, ended runs free their memory."""

import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from overwatch.discovery import Endpoints
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector
from tests.overwatch.collector.running import http

MOST_VERDICT_S = 2.0
LOOK_S = 0.1
SOON = "exporters.aggregator.ended_days=0.00005"
"""A run that is over is evicted after four seconds."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Runs that live at once."""

    runs: int
    envs: int
    seconds: float
    probes: int
    most_mib: float
    """Of a live run."""


@contextmanager
def on_one_core(collector: Collector) -> Iterator[Endpoints]:
    """A life of a collector whose threads, and processes of its own, share the first core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        endpoints = collector.start()
    finally:
        os.sched_setaffinity(0, cores)
    try:
        yield endpoints
        collector.stop()
    finally:
        collector.kill()


@dataclass(slots=True)
class Watched:
    """What was seen from outside while runs lived."""

    base_mib: float
    most_mib: float = 0.0
    last_mib: float = 0.0
    verdicts_s: list[float] = field(default_factory=list)
    account: dict[str, float] = field(default_factory=dict)


def live(endpoints: Endpoints, name: str, of: Generation) -> Watched:
    """Have all of them live at 10 Hz, and look for the verdict of each that breaks."""
    process = psutil.Process(endpoints.pid)
    watched, looking = Watched(process.memory_info().rss / (1 << 20)), list[threading.Thread]()
    plan = {"endpoint": endpoints.otlp_http, "runs": of.runs, "envs": of.envs, "seconds": of.seconds,
            "name": name, "probes": of.probes}  # fmt: skip
    command = [sys.executable, "-m", "tests.e2e.many_senders", json.dumps(plan)]
    ended = threading.Event()

    def measure() -> None:
        while not ended.wait(LOOK_S):
            with suppress(psutil.Error):
                watched.most_mib = max(watched.most_mib, process.memory_info().rss / (1 << 20))

    def look(run_id: str, at_ns: int) -> None:
        def judged() -> bool:
            found = snapshot_of(endpoints, run_id)
            return found is not None and any(finding.code == "non-finite" for finding in found.findings)

        until(judged, f"the verdict of {run_id}", 120)
        watched.verdicts_s.append((time.time_ns() - at_ns) / 1e9)

    looking.append(threading.Thread(target=measure))
    looking[0].start()
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sending:
            assert sending.stdout is not None
            for line in sending.stdout:
                words = line.split()
                if words[0] == "probe":
                    looking.append(threading.Thread(target=look, args=(words[1], int(words[2]))))
                    looking[-1].start()
                elif words[0] != "ready":
                    watched.account = json.loads(line)
        assert sending.returncode == 0
    finally:
        ended.set()
        for thread in looking:
            thread.join()
    watched.last_mib = process.memory_info().rss / (1 << 20)
    assert len(watched.verdicts_s) == of.probes
    return watched


def counted(endpoints: Endpoints, name: str) -> float:
    """A counter of the collector's own page, over its labels."""
    page = http(f"{endpoints.telemetry}/metrics").body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


def check_all_arrived(endpoints: Endpoints, *lives: Watched) -> None:
    """What was emitted was acknowledged and folded, each record once."""
    emitted = sum(life.account["emitted"] for life in lives)
    assert sum(life.account["acknowledged"] for life in lives) == emitted
    until(lambda: counted(endpoints, "overwatch_tower_records_total") >= emitted, "all records", 120)
    assert counted(endpoints, "overwatch_tower_records_total") == emitted
    assert counted(endpoints, "overwatch_tower_refused_runs_total") == 0
    assert counted(endpoints, "overwatch_tower_problems_total") == 0
    assert counted(endpoints, "overwatch_tower_capped_total") == 0


def survive(folder: Path, of: Generation) -> Watched:
    """Three generations, each after the one before was evicted: the first also loads what is loaded once."""
    collector, lives = Collector(folder, SOON), list[Watched]()
    with on_one_core(collector) as endpoints:
        for number in range(1, 4):
            lives.append(live(endpoints, f"run-{number}", of))
            gone = number * of.runs

            def all_went(gone: int = gone) -> bool:
                return counted(endpoints, "overwatch_tower_evicted_runs_total") == gone

            until(all_went, f"generation {number} to go", 120)
        check_all_arrived(endpoints, *lives)
    assert "Traceback" not in collector.log
    first, second, third = lives
    grown, again = first.most_mib - first.base_mib, third.most_mib - second.most_mib
    print(
        f"{of}: {grown / of.runs:.2f} MiB a run of {first.most_mib:.0f} MiB, the third generation "
        f"{again:+.1f} MiB beside the second; {first.account}"
    )
    assert grown <= of.most_mib * of.runs
    # What ended gave its memory to what came.
    assert again <= grown / 2
    return second


def test_thirty_runs_are_judged_whole_and_give_their_memory_back(tmp_path: Path) -> None:
    """The next generation needs no more, and every record of all was folded once."""
    survive(tmp_path, Generation(runs=30, envs=512, seconds=2.0, probes=2, most_mib=4.0))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ninety_six_runs_on_one_core(tmp_path: Path) -> None:
    """Of 64 envs each, at most 1.5 MiB each; one that breaks is judged within two seconds."""
    second = survive(tmp_path, Generation(runs=96, envs=64, seconds=40.0, probes=50, most_mib=1.5))
    assert p99_of(second) <= MOST_VERDICT_S


@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_hundred_runs_are_more_than_one_core_folds_and_lose_nothing(tmp_path: Path) -> None:
    """They are slowed by refusals, each record is folded once, at most 1.5 MiB a run; verdicts are late."""
    p99_of(survive(tmp_path, Generation(runs=300, envs=64, seconds=40.0, probes=50, most_mib=1.5)))


def p99_of(life: Watched) -> float:
    """How long the slowest of a hundred verdicts took."""
    waits = sorted(life.verdicts_s)
    p99 = waits[math.ceil(len(waits) * 0.99) - 1]
    print(f"verdicts: p50 {statistics.median(waits):.2f} s, p99 {p99:.2f} s; load {os.getloadavg()[0]:.0f}")
    return p99
