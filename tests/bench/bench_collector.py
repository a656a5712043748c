"""Durable ingest: events a second that one collector on one core acknowledges, and how long an answer takes.

A collector process is held to one core; senders in this process, on another core where there is one, post
OTLP/HTTP requests of 100 gate evaluations each over connections that stay open, the next one once the last
is answered; once as fast as they can, once at a steady rate. The whole pipeline runs: fold, ticks, recording.
Measured for every durability and for a journal in memory; `fsync` twice as an A/A control; beside them other
receivers that this machine has (`ingest_comparators`), under the same load, and what one fdatasync of such a
request takes, below which no answer comes. Cores are those of the collector and of the processes that it
starts, `MiB` is the most that the collector held, resident, `all` with those processes, shared memory counted
once. After some ten seconds at full speed a recording is rotated and packed, on the same core: it takes
longer runs to show what can be kept up. Prints, gates nothing.

    python tests/bench/bench_collector.py [--quick] [--seconds 20] [--senders 8] [--rate 20000] [--folder DIR]
"""

import argparse
import http.client
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.events import GateEvaluated, Origin, Record
from overwatch.otlp.encode import request
from tests.bench.ingest_comparators import Server, found
from tests.e2e.killing import Collector

PER_REQUEST = 100
BODIES = 300
"""Requests made beforehand for each second, with events of their own; what takes more gets them again."""

HEADERS = {"Content-Type": "application/x-protobuf"}
MODES = {
    "fsync": ("extensions.file_storage.durability=fsync",),
    "fsync again": ("extensions.file_storage.durability=fsync",),
    "fast": ("extensions.file_storage.durability=fast",),
    "memory": ("service.extensions=[health_check, view]",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one collector did."""

    events_s: float
    waits_ms: list[float]
    refused: int
    cpu: float
    """Cores that the collector used."""
    memory: "Memory"


class Memory(NamedTuple):
    """The most that was held, in MiB."""

    own: float
    """By the collector alone, resident."""
    everybody: float
    """With the processes that it starts, what they share counted once."""


@dataclass(frozen=True, slots=True)
class Load:
    """How senders send."""

    senders: int
    seconds: float
    rate: int | None
    """Events a second of all senders; `None`: as fast as they are answered."""

    def next_at(self, sent: int, sender: int, began: float) -> float:
        """When a sender that sent so many requests sends the next; senders take turns."""
        turn = sent * self.senders + sender
        return began + (0.0 if self.rate is None else turn * PER_REQUEST / self.rate)


def body(number: int) -> bytes:
    """One request."""
    first = number * PER_REQUEST + 1
    at = time.time_ns()
    events = [
        GateEvaluated(
            at=at + index, env_id=index % 64, slot="r0c0", seed_id=f"s{first + index}", gate="G2",
            passed=True, score=0.5,
        )
        for index in range(PER_REQUEST)
    ]  # fmt: skip
    origin = Origin(run_id="bench", epoch="1", ours=True)
    return request([Record(origin=origin, event=e, seq=first + i) for i, e in enumerate(events)], {})


@contextmanager
def collecting(folder: Path, sets: tuple[str, ...]) -> Iterator[Server]:
    """A collector on the first core."""
    cores = sorted(os.sched_getaffinity(0))
    collector = Collector(folder, *sets)
    os.sched_setaffinity(0, cores[:1])
    try:
        collector.start()
    finally:
        os.sched_setaffinity(0, cores[1:] or cores)
    assert collector.endpoints is not None
    try:
        url = str(collector.endpoints.otlp_http)
        yield Server(url=url, process=psutil.Process(collector.endpoints.pid))
        collector.stop()
    finally:
        collector.kill()
        os.sched_setaffinity(0, cores)


def synced_ms(folder: Path, bodies: list[bytes]) -> list[float]:
    """How long it takes to sync a request's bytes, sorted: the floor of any durable answer."""
    took: list[float] = []
    with (folder / "floor").open("ab", buffering=0) as file:
        for body in bodies[:300]:
            file.write(body)
            began = time.monotonic()
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - began) * 1000)
    return sorted(took)


def used(process: psutil.Process) -> float:
    """Seconds of CPU of a process and those that it started, also of those that ended."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    ended = times[0].children_user + times[0].children_system
    return sum(each.user + each.system for each in times) + ended


@contextmanager
def watched(process: psutil.Process) -> Iterator[list[Memory]]:
    """Looks at memory twice a second; yields where it notes what it saw."""
    seen: list[Memory] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.5):
            sizes = [process.memory_full_info().pss]
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    sizes.append(child.memory_full_info().pss)
            seen.append(Memory(process.memory_info().rss / (1 << 20), sum(sizes) / (1 << 20)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def measure(serving: AbstractContextManager[Server], bodies: list[bytes], load: Load) -> Result:
    """Send for so long, with a second of warm-up before."""
    turns, lock = count(), threading.Lock()
    began = time.monotonic() + 1
    url = ""
    waits: list[float] = []
    refused: list[float] = []

    def send(sender: int) -> None:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)
        for sent in count():
            time.sleep(max(0.0, load.next_at(sent, sender, began - 1) - time.monotonic()))
            requested = time.monotonic()
            if requested >= began + load.seconds:
                break
            with lock:
                turn = next(turns)
            connection.request("POST", "/v1/logs", bodies[turn % len(bodies)], HEADERS)
            answer = connection.getresponse()
            answer.read()
            if requested >= began:
                (waits if answer.status == 200 else refused).append(time.monotonic() - requested)
        connection.close()

    with serving as server:
        url, process = server.url, server.process
        began = time.monotonic() + 1
        before = used(process)
        started = time.monotonic()
        with watched(process) as seen, ThreadPoolExecutor(load.senders) as pool:
            list(pool.map(send, range(load.senders)))
        elapsed, after = time.monotonic() - started, used(process)
        return Result(
            events_s=len(waits) * PER_REQUEST / load.seconds,
            waits_ms=sorted(wait * 1000 for wait in waits),
            refused=len(refused),
            cpu=(after - before) / elapsed,
            memory=Memory(max(each.own for each in seen), max(each.everybody for each in seen)),
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--senders", type=int, default=8)
    parser.add_argument("--rate", type=int, default=20_000, help="events a second, for the steady half")
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to measure")
    parser.add_argument("--quick", action="store_true", help="`fsync` alone, for 4 seconds")
    options = parser.parse_args()
    options.seconds = 4.0 if options.quick else options.seconds
    bodies = [body(number) for number in range(int(BODIES * (options.seconds + 1)))]
    print(f"{options.senders} senders, requests of {PER_REQUEST} events and {len(bodies[0])} bytes")
    print(f"{'':32}{'events/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'cores':>7}{'MiB':>6}{'all':>6}{'refused':>9}")
    loads = [Load(options.senders, options.seconds, rate) for rate in (None, options.rate)]
    comparators, missing = found()
    targets: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
        **{mode: partial(collecting, sets=sets) for mode, sets in MODES.items()},
        **{comparator.name: comparator.serving for comparator in comparators},
    }
    if options.quick:
        targets = {"fsync": targets["fsync"]}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        floor = synced_ms(Path(folder), bodies)
    print(f"{'one fdatasync of a request':42}{statistics.median(floor):9.1f}{floor[-4]:9.1f}")
    for load, (mode, serving) in product(loads, targets.items()):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            result = measure(serving(Path(folder)), bodies, load)
        waits = result.waits_ms or [float("nan")]
        how = "" if load.rate is None else f" at {load.rate}/s"
        print(
            f"{mode + how:32}{result.events_s:10.0f}{statistics.median(waits):9.1f}"
            f"{waits[int(len(waits) * 0.99)]:9.1f}{result.cpu:7.2f}"
            f"{result.memory.own:6.0f}{result.memory.everybody:6.0f}{result.refused:9}"
        )
    print("\n".join(missing))


if __name__ == "__main__":
    main()
