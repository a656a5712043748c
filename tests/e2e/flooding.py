"""Floods against a collector process, and a good client that goes on meanwhile."""

import gzip
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overwatch.events import LogLine, Origin, Record, Severity
from overwatch.otlp.encode import request

PROTOBUF = {"Content-Type": "application/x-protobuf"}
FLOODER = "127.0.0.9"
"""Where floods come from: not the address of the good client."""
PACE_S = 0.02
"""Time between two requests of the good client."""


@dataclass(slots=True)
class Answers:
    """What a flood was told."""

    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    """Requests whose connection ended before an answer."""


def post(url: str, path: str, body: bytes, source: str = "127.0.0.1", **headers: str) -> int:
    """One request on a connection of its own, from an address; its status."""
    place = urlsplit(url)
    own = source, 0
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60, source_address=own)
    try:
        connection.request("POST", path, body, {**PROTOBUF, **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def flood(url: str, path: str, bodies: Iterator[bytes], threads: int, **headers: str) -> Answers:
    """Post all bodies from so many threads at a time."""
    answers, lock = Answers(), threading.Lock()

    def run(_: int) -> None:
        while True:
            with lock:
                body = next(bodies, None)
            if body is None:
                return
            try:
                status = post(url, path, body, FLOODER, **headers)
            except (OSError, http.client.HTTPException):
                answers.broken += 1
            else:
                answers.statuses[status] += 1

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))
    return answers


class GoodClient:
    """A trainer that tells one line every few milliseconds over one connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._told = 0
        self.waits_ms: list[float] = []
        """How long each answer took."""
        self.last = ""
        """The last line that was acknowledged."""
        self.refused: Counter[int] = Counter()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Talk while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(60)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        place = urlsplit(self._url)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        while not self._stopping.wait(PACE_S):
            self._told += 1
            event = LogLine(at=time.time_ns(), severity=Severity.INFO, message=f"line {self._told}")
            origin = Origin(run_id="good", epoch="1", ours=True)
            asked = time.monotonic()
            connection.request(
                "POST",
                "/v1/logs",
                request([Record(origin=origin, event=event, seq=self._told)], {}),
                PROTOBUF,
            )
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                self.waits_ms.append(1000 * (time.monotonic() - asked))
                self.last = event.message
            else:
                self.refused[answer.status] += 1
        connection.close()


def most_memory_mib(pid: int) -> float:
    """The most memory that a process ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no VmHWM of {pid}")


def label_values(count: int, per_request: int) -> Iterator[bytes]:
    """Gauges of one run, each of a slot, an env and a host that nobody named before."""
    for first in range(0, count, per_request):
        message = ExportMetricsServiceRequest()
        resource = message.resource_metrics.add()
        resource.resource.attributes.append(pair("rl.run.id", "flood"))
        metric = resource.scope_metrics.add().metrics.add(name="rl.loss")
        for number in range(first, first + per_request):
            point = metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=1.0)
            point.attributes.append(pair("overwatch.slot.id", f"slot-{number}"))
            point.attributes.append(pair("user", f"user-{number}"))
        yield message.SerializeToString()


def pair(key: str, value: str) -> KeyValue:
    """A text attribute."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


def empty_attributes(count: int) -> bytes:
    """A log record with so many attributes without key and value, two bytes each."""
    message = ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=time.time_ns())
    record.attributes.extend([KeyValue()] * count)
    return message.SerializeToString()


def named_attributes(count: int) -> bytes:
    """A log record with so many attributes, each of another name."""
    message = ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=time.time_ns())
    record.attributes.extend([pair(f"{number:x}", "") for number in range(count)])
    return message.SerializeToString()


def bomb(gib: int) -> bytes:
    """So many GiB of zeros, packed."""
    return gzip.compress(bytes(1 << 26), 9) * (gib << 4)


@contextmanager
def slow_connections(url: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections from four addresses that send a header byte by byte, one a second."""
    place, stopping = urlsplit(url), threading.Event()
    found: list[socket.socket] = []
    for number in range(count):
        source = (f"127.0.0.{2 + number % 4}", 0)
        found.append(socket.create_connection((str(place.hostname), place.port or 0), 10, source))

    def trickle() -> None:
        while not stopping.wait(1.0):
            for one in found:
                try:
                    one.send(b"P")
                except OSError:
                    continue

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield found
    finally:
        stopping.set()
        thread.join()
        for one in found:
            one.close()


Flood = Callable[[str], str]
"""Floods a collector at a URL; says what came of it."""
