"""What real runs of the SDK take of a real collector: bytes, records, series, CPU and memory.

A counting relay stands between them. Rates are those between a moment after the first step and the last step.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import zstandard

from overwatch.sizing import Load
from tests.e2e.killing import Collector
from tests.e2e.sdk.chaos import environment
from tests.overwatch.collector.running import http

WARM_S = 3.0
"""From the first step on: greetings, descriptions and first columns have gone."""
LEVEL = 3
"""Of zstd, as recordings are packed."""


class Relay:
    """Passes connections on to a server and counts the bytes of both directions."""

    def __init__(self, target: str) -> None:
        place = urlsplit(target)
        self._target = (str(place.hostname), place.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(1 << 16):
                sink.sendall(data)
                self.bytes += len(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """Counters at one moment, and levels."""

    at: float
    wire: int
    records: float
    points: float
    journal: int
    recording: int
    snapshots: int
    cpu: float
    memory: float
    series: int


def _size(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def _look(collector: Collector, relay: Relay) -> Seen:
    endpoints, folder = collector.endpoints, collector.folder
    assert endpoints is not None
    process = psutil.Process(endpoints.pid)
    page = http(f"{endpoints.telemetry}/metrics").body.decode()
    series = http(f"{endpoints.metrics}/metrics").body.decode().splitlines()
    counted = {
        items: sum(
            float(line.rsplit(" ", 1)[1])
            for line in page.splitlines()
            if line.startswith(f"otelcol_receiver_accepted_{items}_total")
        )
        for items in ("log_records", "metric_points")
    }
    return Seen(
        at=time.monotonic(), wire=relay.bytes,
        records=counted["log_records"], points=counted["metric_points"],
        journal=_size(folder, "journal/*.ow1"), recording=_size(folder, "otlp/*.jsonl"),
        snapshots=_size(folder, "snapshots.jsonl"), cpu=sum(process.cpu_times()[:2]),
        memory=process.memory_info().rss / (1 << 20),
        series=sum(bool(line) and not line.startswith("#") for line in series),
    )  # fmt: skip


def measure(folder: Path, load: Load, seconds: float = 15.0) -> dict[str, float]:
    """Rates a second and levels of one load, by the names of `overwatch.sizing.UNITS`."""
    collector = Collector(folder / "collector")
    endpoints = collector.start()
    relay = Relay(str(endpoints.otlp_http))
    try:
        if not load.runs:
            time.sleep(WARM_S)
            first = _look(collector, relay)
            time.sleep(seconds)
            return _rates(first, _look(collector, relay), folder, {})
        with _training(folder, relay.url, load, seconds + WARM_S) as lines:
            assert next(lines) == "ready"
            time.sleep(WARM_S)
            first = _look(collector, relay)
            assert next(lines) == "done"
            last = _look(collector, relay)
            account = json.loads(next(lines))
        assert account["dropped"] == {}
        assert account["undelivered"] == 0
        collector.stop()
        return _rates(first, last, folder, account)
    finally:
        relay.close()
        collector.kill()


@contextmanager
def _training(folder: Path, url: str, load: Load, seconds: float) -> Iterator[Iterator[str]]:
    plan = {"endpoint": url, "runs": load.runs, "ranks": load.ranks, "envs": load.envs, "hz": load.hz,
            "seconds": seconds, "sample": True}  # fmt: skip
    command = [sys.executable, "-m", "tests.e2e.many_runs", json.dumps(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(folder)) as process:
        assert process.stdout is not None
        try:
            yield (line.strip() for line in process.stdout)
            assert process.wait(60) == 0
        finally:
            process.kill()


def _rates(first: Seen, last: Seen, folder: Path, account: dict[str, float]) -> dict[str, float]:
    took = last.at - first.at
    data = folder / "collector"
    found = {
        "network_bytes": (last.wire - first.wire) / took,
        "records": (last.records - first.records) / took,
        "points": (last.points - first.points) / took,
        "journal_bytes": (last.journal - first.journal) / took,
        "recording_bytes": (last.recording - first.recording) / took * packed(data / "otlp"),
        "snapshot_bytes": (last.snapshots - first.snapshots) / took,
        "collector_cores": (last.cpu - first.cpu) / took,
        "collector_mib": last.memory,
        "series": float(last.series),
    }
    if account:
        found["trainer_cores"] = account["cpu_s"] / account["seconds"]
        found["exporter_cores"] = account["exporter_cpu_s"] / account["seconds"]
        found["exporter_mib"] = account["exporter_mib"]
    return found


def packed(recording: Path) -> float:
    """What its live files would have once packed, as a share of what they have."""
    plain = [path.read_bytes() for path in sorted(recording.glob("*.jsonl"))]
    size = sum(map(len, plain))
    return sum(len(zstandard.compress(one, LEVEL)) for one in plain if one) / size if size else 1.0
