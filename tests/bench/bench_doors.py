"""Points landed in queryable columns for each second of server CPU: metrics of a fleet, four gauges an env.

A collector on one core, a sender on another, one connection; then Prometheus' remote write and
VictoriaMetrics' imports in the same way, with the same points. CPU is the servers' own, user and system, to
the nanosecond, from the end of a short warm-up until every point can be queried, which is checked: values of
the last round. Each receiver is sent what its own clients send at once as shipped, then all the same sizes.
Shapes repeat, or never do; the latter also beside an earlier revision of Overwatch, in turns. Prints, gates
nothing.

    python tests/bench/bench_doors.py [--quick] [--pairs 3] [--only clients|never|2000]
"""

import argparse
import atexit
import gzip
import http.client
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.shapes import learn
from tests.bench.doors import shapes
from tests.bench.doors.servers import (
    LAST_ENV,
    Server,
    collecting,
    prometheus,
    rotel,
    rotel_agent,
    until,
    victoria,
)

ROOT = Path(__file__).parents[2]
OTLP = {"Content-Type": "application/x-protobuf"}
GZIP = {**OTLP, "Content-Encoding": "gzip"}
REMOTE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
WARM_UP = 50
"""Requests that come before the measurement, or a tenth of all: a client sends one shape for hours."""
GROUND = 512 << 20
"""Bytes of memory, beside those of all bodies, that the machine has at hand when the measurement begins."""
POINTS = 4_000_000
"""That a receiver is sent in one round."""
SIZES = (1000, 2000, 8192, 10_000, 20_000)
"""Points a request."""
OTLP_SENDS = 8192
"""Points of a full batch of otelcol's batch processor (`send_batch_size`)."""
PROMETHEUS_SENDS = 2000
"""Samples that Prometheus sends at once (`max_samples_per_send`)."""
VMAGENT_SENDS = 10_000
"""Samples that vmagent sends at once (`-remoteWrite.maxRowsPerBlock`)."""
OURS, PROMETHEUS = "Overwatch, fast", "Prometheus, remote write"
BEFORE = "b35a0b5"
"""The revision whose general path is compared with this one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One receiver, and what it is sent."""

    title: str
    serving: Callable[[Path], AbstractContextManager[Server]]
    path: str
    headers: dict[str, str]
    bodies: list[bytes]
    points: int
    """In all bodies."""


def prepare(folder: Path, size: int) -> None:
    """Have memory at hand that was used before.

    A virtual machine's first use of a page is work of its host, which is counted as the receiver's.
    """
    piece = os.urandom(1 << 20)
    with (folder / "ground").open("wb") as file:
        for _ in range(size >> 20):
            file.write(piece)
    (folder / "ground").unlink()


def measure(case: Case) -> float:
    """Points for each second of server CPU; raises where a point is missing or another than was sent."""
    warm_up = max(WARM_UP, len(case.bodies) // 10)
    with (
        tempfile.TemporaryDirectory(prefix="overwatch-doors-") as folder,
        case.serving(Path(folder)) as server,
    ):
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        began = 0.0
        for number, body in enumerate(case.bodies):
            if number == warm_up:
                prepare(Path(folder), sum(map(len, case.bodies)) + GROUND)
                began = server.cpu()
            _send(connection, case, body)
        newest = server.newest
        if newest is not None:
            sent = [shapes.value_of(len(case.bodies) - 1, gauge, LAST_ENV) for gauge in range(3)]
            until(lambda: [newest(gauge) for gauge in range(3)] == sent, 60)
        landed = case.points * (1 - warm_up / len(case.bodies))
        return landed / (server.cpu() - began)


def _send(connection: http.client.HTTPConnection, case: Case, body: bytes) -> None:
    """Send one request until it is taken, as clients do that have to retry."""
    while True:
        connection.request("POST", case.path, body, case.headers)
        answer = connection.getresponse()
        stated = answer.read()
        wait_s = answer.headers.get("Retry-After", "")
        if answer.status in {429, 503} and wait_s.isdigit():
            print(f"  {case.title}: {answer.status}, again in {wait_s} s", flush=True)
            time.sleep(int(wait_s))
            continue
        if answer.status not in {200, 204} or stated.strip(b"\x00"):
            raise SystemExit(f"{case.title}: {answer.status} {stated[:200]!r}")
        return


def overwatch(size: int, rounds: int) -> Iterator[Case]:
    """This collector, asked in several ways."""
    envs = size // len(shapes.GAUGES)
    alike = shapes.otlp(envs, rounds)
    ours = partial(Case, path="/v1/metrics", points=size * rounds)
    fast, fsync = (partial(collecting, durability=word) for word in ("fast", "fsync"))
    yield ours(title=OURS, serving=fast, headers=OTLP, bodies=alike)
    yield ours(title="Overwatch, fsync", serving=fsync, headers=OTLP, bodies=alike)
    packed = [gzip.compress(body, 1) for body in alike]
    yield ours(title="Overwatch, fast, gzip", serving=fast, headers=GZIP, bodies=packed)


def never_alike(size: int, rounds: int) -> Iterator[Case]:
    """Shapes that never come again, sent to this collector and to an earlier one."""
    bodies = shapes.otlp(size // len(shapes.GAUGES), rounds, seed=1)
    ours = partial(Case, path="/v1/metrics", headers=OTLP, bodies=bodies, points=size * rounds)
    yield ours(title=OURS, serving=partial(collecting, durability="fast"))
    source = _before()
    if source is not None:
        yield ours(
            title=f"the same at {BEFORE}", serving=partial(collecting, durability="fast", source=source)
        )


@cache
def _before() -> Path | None:
    """The sources of an earlier revision; `None` where the repository has none of it."""
    folder = tempfile.mkdtemp(prefix="overwatch-before-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = f"git archive {BEFORE} src otel | tar -x -C {folder}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        print(f"revision {BEFORE} is not in this repository: nothing to compare never-repeating shapes with")
        return None
    return Path(folder) / "src"


def remote_writes(size: int, rounds: int) -> Iterator[Case]:
    """Whoever takes remote write here."""
    try:
        import cramjam
    except ImportError:
        print("cramjam is not installed: no remote write")
        return
    packed = [
        bytes(cramjam.snappy.compress_raw(body))
        for body in shapes.remote_write(size // len(shapes.GAUGES), rounds)
    ]
    theirs = partial(Case, path="/api/v1/write", points=size * rounds, headers=REMOTE, bodies=packed)
    if which("prometheus"):
        yield theirs(title=PROMETHEUS, serving=prometheus)
    if which("victoria-metrics"):
        yield theirs(title="VictoriaMetrics, remote write", serving=victoria)


def imports(size: int, rounds: int) -> Iterator[Case]:
    """VictoriaMetrics' import of text."""
    if which("victoria-metrics"):
        yield Case(
            title="VictoriaMetrics, import",
            serving=victoria,
            path="/api/v1/import/prometheus",
            headers={},
            bodies=shapes.text(size // len(shapes.GAUGES), rounds),
            points=size * rounds,
        )


def rotel_takes(size: int, rounds: int) -> Iterator[Case]:
    """Rotel parses the same requests and drops them: it has no store, so nothing lands or is checked."""
    if rotel_agent() is not None:
        bodies = shapes.otlp(size // len(shapes.GAUGES), rounds)
        yield Case(
            title="rotel, parsed and dropped",
            serving=rotel,
            path="/v1/metrics",
            headers=OTLP,
            bodies=bodies,
            points=size * rounds,
        )


def as_clients_send(rounds_of: Callable[[int], int]) -> Iterator[Case]:
    """Each receiver with what its own clients send at once, as shipped."""
    yield next(overwatch(OTLP_SENDS, rounds_of(OTLP_SENDS)))
    for case in remote_writes(PROMETHEUS_SENDS, rounds_of(PROMETHEUS_SENDS)):
        if case.title == PROMETHEUS:
            yield case
    for case in remote_writes(VMAGENT_SENDS, rounds_of(VMAGENT_SENDS)):
        if case.title != PROMETHEUS:
            yield case
    yield from imports(VMAGENT_SENDS, rounds_of(VMAGENT_SENDS))
    yield from rotel_takes(OTLP_SENDS, rounds_of(OTLP_SENDS))


def compare(title: str, all_cases: list[Case], pairs: int) -> None:
    """Measure all in turns, and print medians beside the first one's."""
    print(f"\n{title}, {pairs} rounds of all, load {os.getloadavg()[0]:.1f}", flush=True)
    rates: dict[str, list[float]] = {case.title: [] for case in all_cases}
    for _ in range(pairs):
        for case in all_cases:
            rates[case.title].append(measure(case))
    first, *_ = rates.values()
    for case in all_cases:
        found = rates[case.title]
        ratio = statistics.median(ours / theirs for ours, theirs in zip(first, found, strict=True))
        size, middle = case.points // len(case.bodies), statistics.median(found) / 1e6
        spread = f"{min(found) / 1e6:.2f} to {max(found) / 1e6:.2f}"
        print(
            f"  {case.title:32} {size:6} a request {middle:7.2f} M points a CPU second ({spread})"
            f"   the first is {ratio:5.2f} ×",
            flush=True,
        )


def decoding(size: int) -> None:
    """What reading alone costs, with nothing around it."""
    bodies = shapes.otlp(size // len(shapes.GAUGES), 20)
    shape = learn(bodies[0])
    assert shape is not None
    for title, read in (
        ("by its shape", shape.read),
        ("the general path", partial(decode, Signal.METRICS)),
    ):
        took = []
        for body in bodies:
            began = time.process_time()
            read(body)
            took.append(time.process_time() - began)
        print(f"  decode alone, {title:20} {size / statistics.median(took) / 1e6:8.2f} M points/s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one pair, few requests")
    parser.add_argument("--pairs", type=int, default=3)
    names = ("clients", "never", *map(str, SIZES))
    parser.add_argument("--only", choices=names, action="append", help="this part alone; may be repeated")
    options = parser.parse_args()
    pairs, points = (1, POINTS // 4) if options.quick else (options.pairs, POINTS)
    wanted = options.only or names
    print(f"{platform.platform()}, Python {platform.python_version()}, load {os.getloadavg()}")
    for name in ("prometheus", "victoria-metrics"):
        print(f"{name}: {which(name) or 'not installed'}")

    def rounds_of(size: int) -> int:
        return max(points // size, 2 * WARM_UP)

    if "clients" in wanted:
        compare("what clients send at once as shipped", list(as_clients_send(rounds_of)), pairs)
    if "never" in wanted:
        size = OTLP_SENDS
        compare("never-repeating shapes", list(never_alike(size, rounds_of(size) // 5)), pairs)
    for size in SIZES:
        if str(size) in wanted:
            rounds = rounds_of(size)
            makers = (overwatch, remote_writes, imports, rotel_takes)
            compare(f"{size} points a request", [c for make in makers for c in make(size, rounds)], pairs)
            decoding(size)


if __name__ == "__main__":
    main()
