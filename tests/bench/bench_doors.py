"""Points landed in queryable columns for each second of server CPU: metrics of a fleet, four gauges an env.

A collector on one core, a sender on another, one connection; then Prometheus' remote write and
VictoriaMetrics' imports in the same way, with the same points. CPU is the servers' own, user and system,
from the end of a short warm-up until every point can be queried, which is checked: values of the last round.
Shapes repeat, or never do. Prints, gates nothing.

    python tests/bench/bench_doors.py [--quick] [--pairs 3] [--points 8192]
"""

import argparse
import dataclasses
import gzip
import http.client
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.template import learn
from tests.bench.doors import shapes
from tests.e2e.killing import Collector

METRICS_ONLY = (
    "service.pipelines.logs.exporters=[aggregator]",
    "service.pipelines.metrics.exporters=[aggregator]",
    "service.pipelines.traces.exporters=[aggregator]",
    "service.pipelines.snapshots.exporters=[prometheus]",
    "exporters.aggregator.journal_size_mib=1024",
)
OTLP = {"Content-Type": "application/x-protobuf"}
GZIP = {**OTLP, "Content-Encoding": "gzip"}
REMOTE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
WARM_UP = 10
"""Requests that come before the measurement."""
SIZES = ((250, 800), (500, 400), (2048, 120), (5000, 60))
"""Envs and requests: as shipped remote write sends 2,000 samples at once, OpenTelemetry batches 8,192."""
LAST_ENV = 7
"""Whose values of the last round are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Something that takes points and can be asked for them."""

    url: str
    pids: tuple[int, ...]
    ask: Callable[[int], float | None]
    """What a gauge of one env is, by the gauge's place."""

    def cpu(self) -> float:
        """Seconds that its processes used, with those of their children that ended."""
        used = 0.0
        for pid in self.pids:
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                times = one.cpu_times()
                used += times.user + times.system + times.children_user + times.children_system
        return used


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


@contextmanager
def collecting(folder: Path, durability: str) -> Iterator[Server]:
    """A collector that folds and exposes."""
    collector = Collector(folder, *METRICS_ONLY, f"extensions.file_storage.durability={durability}")
    with first_core():
        ends = collector.start()

    def ask(gauge: int) -> float | None:
        view = str(ends.view).replace("ws://", "http://")
        found = _get(f"{view}/api/v1/snapshot?" + urlencode({"filter": f"env={LAST_ENV}"}))
        envs = found.get("envs") or [] if found else []
        value = envs[0].get(shapes.GAUGES[gauge].rpartition(".")[2]) if envs else None
        return None if value is None else float(value)

    try:
        yield Server(url=str(ends.otlp_http), pids=(ends.pid,), ask=ask)
        collector.stop()
    finally:
        collector.kill()


@contextmanager
def prometheus(folder: Path) -> Iterator[Server]:
    """Debian's Prometheus as a remote-write receiver."""
    port = _free_port()
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver", "--log.level=error",
        "--storage.tsdb.allow-overlapping-blocks",
    ]  # fmt: skip
    with _started(command, port, folder, "/-/ready") as server:
        yield server


@contextmanager
def victoria(folder: Path) -> Iterator[Server]:
    """Debian's VictoriaMetrics."""
    port = _free_port()
    command = [
        "victoria-metrics", f"-storageDataPath={folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y", "-loggerLevel=ERROR", "-search.latencyOffset=0s", "-search.disableCache",
    ]  # fmt: skip
    with _started(command, port, folder, "/health") as server:
        yield server


@contextmanager
def _started(command: list[str], port: int, folder: Path, ready: str) -> Iterator[Server]:
    with first_core(), (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"

    def ask(gauge: int) -> float | None:
        name = shapes.GAUGES[gauge].replace(".", "_")
        at = shapes.BEGAN_NS / 1e9 + 3600
        query = f'last_over_time({name}{{env="{LAST_ENV}"}}[2h])'
        found = _get(f"{url}/api/v1/query?" + urlencode({"query": query, "time": at}))
        result = found["data"]["result"] if found else []
        return float(result[0]["value"][1]) if result else None

    try:
        _until(lambda: _answers(url + ready), 30)
        yield Server(url=url, pids=(process.pid,), ask=ask)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def first_core() -> Iterator[None]:
    """Whoever is started in here runs on the first core; this process on the others afterwards."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(case: Case) -> float:
    """Points for each second of server CPU; raises where a point is missing or another than was sent."""
    with (
        tempfile.TemporaryDirectory(prefix="overwatch-doors-") as folder,
        case.serving(Path(folder)) as server,
    ):
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        began = 0.0
        for number, body in enumerate(case.bodies):
            began = server.cpu() if number == WARM_UP else began
            connection.request("POST", case.path, body, case.headers)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status not in {200, 204} or said.strip(b"\x00"):
                raise SystemExit(f"{case.title}: {answer.status} {said[:200]!r}")
        wanted = [shapes.value_of(len(case.bodies) - 1, gauge, LAST_ENV) for gauge in range(3)]
        _until(lambda: [server.ask(gauge) for gauge in range(3)] == wanted, 60)
        landed = case.points * (1 - WARM_UP / len(case.bodies))
        return landed / (server.cpu() - began)


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"what was sent cannot be asked for within {seconds:.0f} s")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    return _get(url) is not None


def _get(url: str) -> dict[str, Any] | None:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
    try:
        connection.request("GET", f"{place.path}?{place.query}")
        answer = connection.getresponse()
        said = answer.read()
    except OSError:
        return None
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        return None
    return json.loads(said) if said.startswith(b"{") else {}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def cases(envs: int, rounds: int) -> list[Case]:
    """Everything that can be had here."""
    points = envs * len(shapes.GAUGES) * rounds
    alike = shapes.otlp(envs, rounds)
    never = shapes.otlp(envs, min(rounds, 20), seed=1)
    ours = partial(Case, path="/v1/metrics", points=points)
    fast, fsync = (partial(collecting, durability=word) for word in ("fast", "fsync"))
    found = [
        ours(
            title="Overwatch, fast",
            serving=fast,
            headers=OTLP,
            bodies=alike,
        ),
        ours(
            title="Overwatch, fsync",
            serving=fsync,
            headers=OTLP,
            bodies=alike,
        ),
        ours(
            title="Overwatch, fast, gzip",
            serving=fast,
            headers=GZIP,
            bodies=[gzip.compress(body, 1) for body in alike],
        ),
        ours(
            title="Overwatch, fast, never alike",
            serving=fast,
            headers=OTLP,
            bodies=never,
        ),
    ]
    found[-1] = dataclasses.replace(found[-1], points=envs * len(shapes.GAUGES) * len(never))
    try:
        import cramjam
    except ImportError:
        print("cramjam is not installed: no remote write")
    else:
        packed = [bytes(cramjam.snappy.compress_raw(body)) for body in shapes.remote_write(envs, rounds)]
        theirs = partial(Case, path="/api/v1/write", points=points, headers=REMOTE, bodies=packed)
        if which("prometheus"):
            found.append(theirs(title="Prometheus, remote write", serving=prometheus))
        if which("victoria-metrics"):
            found.append(theirs(title="VictoriaMetrics, remote write", serving=victoria))
    if which("victoria-metrics"):
        found.append(
            Case(
                title="VictoriaMetrics, import",
                serving=victoria,
                path="/api/v1/import/prometheus",
                headers={},
                bodies=shapes.text(envs, rounds),
                points=points,
            )
        )
    return found


def decoding(envs: int) -> None:
    """What reading alone costs, with nothing around it."""
    bodies = shapes.otlp(envs, 20)
    template = learn(bodies[0])
    assert template is not None
    points = envs * len(shapes.GAUGES)
    for title, read in (
        ("by template", template.read),
        ("the general path", partial(decode, Signal.METRICS)),
    ):
        took = []
        for body in bodies:
            began = time.process_time()
            read(body)
            took.append(time.process_time() - began)
        print(f"  decode alone, {title:20} {points / statistics.median(took) / 1e6:8.2f} M points/s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one pair, few requests")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--points", type=int, help="points a request, one of 1000, 2000, 8192 and 20000")
    options = parser.parse_args()
    pairs = 1 if options.quick else options.pairs
    chosen = [len(shapes.GAUGES) * envs for envs, _ in SIZES]
    if options.points not in {None, *chosen}:
        parser.error(f"--points {options.points}: there are {', '.join(map(str, chosen))}")
    print(f"{platform.platform()}, Python {platform.python_version()}, load {os.getloadavg()}")
    for name in ("prometheus", "victoria-metrics"):
        print(f"{name}: {which(name) or 'not installed'}")
    for envs, most in SIZES:
        if options.points and options.points != envs * len(shapes.GAUGES):
            continue
        rounds = most // 4 if options.quick else most
        print(f"\n{envs * len(shapes.GAUGES)} points a request, {rounds} requests, {pairs} rounds of all")
        decoding(envs)
        all_cases = cases(envs, rounds)
        rates: dict[str, list[float]] = {case.title: [] for case in all_cases}
        for _ in range(pairs):
            for case in all_cases:
                rates[case.title].append(measure(case))
        ours = statistics.median(rates["Overwatch, fast"])
        for title, found in rates.items():
            middle = statistics.median(found)
            print(f"  {title:32} {middle / 1e6:8.2f} M points a CPU second   ours is {ours / middle:6.2f} ×")


if __name__ == "__main__":
    main()
