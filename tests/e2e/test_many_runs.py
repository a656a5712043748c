"""Very many live runs at a collector on one core: no loss, verdicts soon, ended runs free their memory."""

import json
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

MOST_MIB = 1.5
"""Of a live run of 64 envs."""
MOST_VERDICT_S = 2.0
LOOK_S = 0.1
LIVE_RUNS, LONG_S = 300, 90.0
CI_RUNS, CI_S = 30, 4.0
SOON = "exporters.aggregator.ended_days=0.00005"
"""A run that is over is evicted after four seconds."""


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


def live(endpoints: Endpoints, name: str, runs: int, seconds: float, probes: int) -> Watched:
    """Have so many runs of 64 envs live at 10 Hz, and look for the verdict of each that breaks."""
    process = psutil.Process(endpoints.pid)
    watched, looking = Watched(process.memory_info().rss / (1 << 20)), list[threading.Thread]()
    plan = {"endpoint": endpoints.otlp_http, "runs": runs, "seconds": seconds, "name": name, "probes": probes}
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
    assert len(watched.verdicts_s) == probes
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


def survive(folder: Path, runs: int, seconds: float, probes: int) -> tuple[Watched, Watched]:
    """Two generations, the second after the first was evicted; both are checked."""
    collector = Collector(folder, SOON)
    with on_one_core(collector) as endpoints:
        first = live(endpoints, "first", runs, seconds, probes)
        until(
            lambda: counted(endpoints, "overwatch_tower_evicted_runs_total") == runs, "the first to go", 120
        )
        second = live(endpoints, "second", runs, seconds, 0)
        until(lambda: counted(endpoints, "overwatch_tower_evicted_runs_total") == 2 * runs, "all to go", 120)
        check_all_arrived(endpoints, first, second)
    assert "Traceback" not in collector.log
    grown = first.most_mib - first.base_mib
    print(
        f"{runs} runs: {grown / runs:.2f} MiB a run of {first.most_mib:.0f} MiB, the second generation "
        f"{second.most_mib - first.most_mib:+.0f} MiB; {first.account}"
    )
    assert grown <= MOST_MIB * runs
    # What the first held serves the second.
    assert second.most_mib - first.most_mib <= grown / 2
    return first, second


def test_thirty_runs_are_judged_whole_and_give_their_memory_back(tmp_path: Path) -> None:
    """A second generation needs no more than the first, and every record of both was folded once."""
    survive(tmp_path, CI_RUNS, CI_S, probes=3)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_hundred_runs_on_one_core(tmp_path: Path) -> None:
    """The same with ten times as many; a run that breaks is judged within two seconds."""
    first, _ = survive(tmp_path, LIVE_RUNS, LONG_S, probes=60)
    waits = sorted(first.verdicts_s)
    p99 = waits[int(len(waits) * 0.99) - 1]
    print(f"verdicts: p50 {statistics.median(waits):.2f} s, p99 {p99:.2f} s, most {waits[-1]:.2f} s")
    assert p99 <= MOST_VERDICT_S
