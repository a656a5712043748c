"""What floods against a collector process are made of, and a good client that goes on meanwhile."""

import asyncio
import contextlib
import gzip
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overwatch.events import LogLine, Origin, Record, Severity
from overwatch.otlp.encode import request

PROTOBUF = {"Content-Type": "application/x-protobuf"}
FLOODER = "127.0.0.9"
"""Where floods come from: not the address of the good client."""
PACE_S = 0.01
"""Time between two requests of the good client."""
RETRIED = frozenset({429, 503})
"""Answers after which it sends the same again."""


@dataclass(slots=True)
class Answers:
    """What a flood was answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    """Requests whose connection ended before an answer."""


def connected(url: str, source: str) -> http.client.HTTPConnection:
    """A connection to a collector from an address."""
    place = urlsplit(url)
    return http.client.HTTPConnection(str(place.hostname), place.port, timeout=60, source_address=(source, 0))


def post(url: str, path: str, body: bytes, source: str = "127.0.0.1", **headers: str) -> int:
    """One request on a connection of its own, from an address; its status."""
    connection = connected(url, source)
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


async def senders(url: str, body: bytes, *, count: int, each_s: float, for_s: float) -> Answers:
    """So many senders of logs with a connection each that ask every `each_s` seconds, or as soon as answered.

    They do not heed what they are answered, and cost little themselves: their words were made before.
    """
    place, answers = urlsplit(url), Answers()
    head = f"POST /v1/logs HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/x-protobuf\r\n"
    words = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    end = time.monotonic() + for_s

    async def send(number: int) -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port, local_addr=(FLOODER, 0))
        due = time.monotonic() + each_s * number / count
        while (now := time.monotonic()) < end:
            await asyncio.sleep(max(0.0, due - now))
            due = max(due, now) + each_s
            writer.write(words)
            reported = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(
                int(line[15:]) for line in reported.split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            answers.statuses[int(reported[9:12])] += 1
        writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(send(number))
    return answers


class GoodClient:
    """A trainer that emits one line every few milliseconds over one connection."""

    def __init__(self, url: str, epoch: str) -> None:
        self._url = url
        self._origin = Origin(run_id="good", epoch=epoch, ours=True)
        self._stopping = threading.Event()
        self._reported = 0
        self.waits_ms: list[float] = []
        """How long each answer took."""
        self.last = ""
        """The last line that was acknowledged."""
        self.refused: Counter[int] = Counter()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Talk while the block runs; any number of times."""
        self._stopping.clear()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(60)
            assert not thread.is_alive()

    def _run(self) -> None:
        connection = connected(self._url, "127.0.0.1")
        while not self._stopping.wait(PACE_S):
            self._reported += 1
            event = LogLine(
                at=time.time_ns(),
                severity=Severity.INFO,
                message=f"line {self._origin.epoch}.{self._reported}",
            )
            body = request([Record(origin=self._origin, event=event, seq=self._reported)], {})
            requested = time.monotonic()
            while (status := self._send(connection, body)) in RETRIED:
                self.refused[status] += 1
                time.sleep(PACE_S)
            assert status == 200
            self.waits_ms.append(1000 * (time.monotonic() - requested))
            self.last = event.message
        connection.close()

    def _send(self, connection: http.client.HTTPConnection, body: bytes) -> int:
        connection.request("POST", "/v1/logs", body, PROTOBUF)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def most_memory_mib(pid: int) -> dict[str, float]:
    """The most memory that a process, and each one that it started and that lives, held; itself first."""
    found: dict[str, float] = {}
    for one in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        # One that tidied up is gone, or waits to be asked how it ended.
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            words, most = one.cmdline(), _most_mib(one.pid)
            if words and most is not None:
                found[f"{words[2]} ({one.pid})"] = most
    assert found
    return found


def _most_mib(pid: int) -> float | None:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


def label_values(start: int, count: int, per_request: int) -> Iterator[bytes]:
    """Gauges of one run, each of a slot and a user of another number, from `start` on."""
    for first in range(start, start + count, per_request):
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
