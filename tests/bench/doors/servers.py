"""The servers that take points in the bench of the doors, each pinned to the first core."""

import atexit
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.bench.doors import shapes
from tests.e2e.killing import Collector
from tests.ports import free_port

METRICS_ONLY = (
    "service.pipelines.logs.exporters=[aggregator]",
    "service.pipelines.metrics.exporters=[aggregator]",
    "service.pipelines.traces.exporters=[aggregator]",
    "service.pipelines.snapshots.exporters=[prometheus]",
    "exporters.aggregator.journal_size_mib=1024",
)
_SCHEDULED = 2
"""Of a process's clocks the one that the scheduler keeps."""
LAST_ENV = 7
"""Whose values of the last round are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Something that takes points and can be asked for them."""

    url: str
    pids: tuple[int, ...]
    newest: Callable[[int], float | None] | None
    """What a gauge of one env is, by the gauge's place; `None` of who keeps nothing."""

    def cpu(self) -> float:
        """Seconds that its processes used, all their threads, to the nanosecond."""
        return sum(time.clock_gettime(~pid << 3 | _SCHEDULED) for pid in self.pids)


@contextmanager
def collecting(folder: Path, durability: str, source: Path | None = None) -> Iterator[Server]:
    """A collector that folds and exposes; of another revision where its `source` is given."""
    collector = Collector(folder, *METRICS_ONLY, f"extensions.file_storage.durability={durability}")
    with first_core(), _importing(source):
        ends = collector.start()

    def newest(gauge: int) -> float | None:
        view = str(ends.view).replace("ws://", "http://")
        found = _get(f"{view}/api/v1/snapshot?" + urlencode({"filter": f"env={LAST_ENV}"}))
        envs = found.get("envs") or [] if found else []
        value = envs[0].get(shapes.GAUGES[gauge].rpartition(".")[2]) if envs else None
        return None if value is None else float(value)

    try:
        yield Server(url=str(ends.otlp_http), pids=(ends.pid,), newest=newest)
        collector.stop()
    finally:
        collector.kill()


@contextmanager
def _importing(source: Path | None) -> Iterator[None]:
    """Whoever is started in here takes Overwatch from `source`."""
    was = os.environ.get("PYTHONPATH")
    if source is not None:
        os.environ["PYTHONPATH"] = str(source)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if was is not None:
            os.environ["PYTHONPATH"] = was


@contextmanager
def prometheus(folder: Path) -> Iterator[Server]:
    """Debian's Prometheus as a remote-write receiver."""
    port = free_port()
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
    port = free_port()
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

    def newest(gauge: int) -> float | None:
        name = shapes.GAUGES[gauge].replace(".", "_")
        at = shapes.BEGAN_NS / 1e9 + 4 * 3600
        query = f'last_over_time({name}{{env="{LAST_ENV}"}}[8h])'
        found = _get(f"{url}/api/v1/query?" + urlencode({"query": query, "time": at}))
        result = found["data"]["result"] if found else []
        return float(result[0]["value"][1]) if result else None

    try:
        until(lambda: _answers(url + ready), 30)
        yield Server(url=url, pids=(process.pid,), newest=newest)
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


@cache
def rotel_agent() -> Path | None:
    """Rotel's program, from its package; `None` where the package cannot be had."""
    folder = Path(tempfile.mkdtemp(prefix="overwatch-rotel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), "rotel"]
    subprocess.run(command, capture_output=True, check=False)
    for wheel in folder.glob("rotel-*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            program = Path(packed.extract("rotel/rotel-agent", folder))
        program.chmod(0o755)
        print(f"rotel: {wheel.name}")
        return program
    print("rotel: pip has it not, so it is left out")
    return None


@contextmanager
def rotel(folder: Path) -> Iterator[Server]:
    """Rotel, which drops what it has parsed: it keeps nothing that could be asked for."""
    program, port, other = rotel_agent(), free_port(), free_port()
    command = [
        str(program), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint",
        f"127.0.0.1:{other}", "--exporter", "blackhole",
    ]  # fmt: skip
    with first_core(), (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: _listens(port), 30)
        yield Server(url=f"http://127.0.0.1:{port}", pids=(process.pid,), newest=None)
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Wait until something holds; ends the bench where it does not."""
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
        stated = answer.read()
    except OSError:
        return None
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        return None
    return json.loads(stated) if stated.startswith(b"{") else {}
