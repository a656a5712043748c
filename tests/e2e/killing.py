"""A collector that is killed over and over, and senders that send each request until it is acknowledged."""

import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from overwatch.discovery import Endpoints
from overwatch.events import LogLine, Origin, Record, Severity
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.jsonl import from_json
from overwatch.recordings.files import RecordingFiles
from overwatch.recordings.index import Entry, Located, read_entry
from tests.e2e.collecting import ENDPOINT_KEYS, LIMIT_S, until

_SLOW_SYNCS = Path(__file__).parent / "slow_syncs"
PER_REQUEST = 50
"""Records of one request."""


def compiled_in(folder: Path) -> dict[str, str]:
    """The environment of processes that keep compiled code in a folder, as an installed package has it."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


class Collector:
    """One data folder, and the processes that use it one after the other."""

    def __init__(self, folder: Path, *sets: str, prefix: tuple[str, ...] = (), slow: bool = False) -> None:
        """`prefix` is what runs a command elsewhere, e.g. in a namespace; `slow` is a slow disk."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ready_s: list[float] = []
        """How long each start took, interpreter included."""
        self.endpoints: Endpoints | None = None
        """Of the life that is on, `None` between two."""
        self._ready = folder / "ready.json"
        below = [
            *(f"{key}=127.0.0.1:0" for key in ENDPOINT_KEYS),
            f"exporters.otlp_file.path={folder / 'otlp'}",
            f"exporters.snapshots.path={folder / 'snapshots.jsonl'}",
            f"extensions.file_storage.directory={folder}",
            *sets,
        ]
        self._command = [*prefix, sys.executable, "-m", "overwatch.cli", "collect"]
        self._command += [word for item in below for word in ("--set", item)]
        self._process: subprocess.Popen[bytes] | None = None
        self._paths = [str(_SLOW_SYNCS)] if slow else []

    @property
    def log(self) -> str:
        """What all lives logged."""
        return (self.folder / "collector.log").read_text()

    def start(self) -> Endpoints:
        """Begin a life and wait until it accepts."""
        self._ready.unlink(missing_ok=True)
        environment = {
            **compiled_in(self.folder / "pycache"),
            "OVERWATCH_READY_FILE": str(self._ready),
            "XDG_RUNTIME_DIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join((*self._paths, os.environ.get("PYTHONPATH", ""))),
        }
        began = time.monotonic()
        with (self.folder / "collector.log").open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        self._process = process
        until(lambda: self._ready.is_file() or process.poll() is not None, "the collector", LIMIT_S)
        assert process.poll() is None, self.log
        self.ready_s.append(time.monotonic() - began)
        self.endpoints = msgspec.json.decode(self._ready.read_bytes(), type=Endpoints)
        return self.endpoints

    def kill(self) -> None:
        """End this life at once."""
        self.endpoints = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End this life well."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(120) == 0, self.log
        self._process = None


class Reached(Protocol):
    """Something that trainers send to."""

    @property
    def endpoints(self) -> Endpoints | None:
        """Where it listens; `None` while nobody knows."""


class Sender:
    """One trainer that emits numbered lines; a request is repeated until it is acknowledged."""

    def __init__(self, name: str, collector: Reached, **headers: str) -> None:
        self.run_id = name
        self.acknowledged = 0
        """Lines 1 to this one were acknowledged."""
        self.attempts: Counter[int] = Counter()
        """How often the request that begins with a line was sent."""
        self.refusals: Counter[int] = Counter()
        """Statuses other than 200."""
        self._collector = collector
        self._headers = {"Content-Type": "application/x-protobuf", **headers}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more requests than the one that is under way, which must arrive."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            first = self.acknowledged + 1
            body = _body(self.run_id, first)
            while not self._deliver(first, body):
                self._stopping.wait(0.01)
            self.acknowledged += PER_REQUEST

    def _deliver(self, first: int, body: bytes) -> bool:
        connection = self._connect()
        if connection is None:
            return False
        try:
            self.attempts[first] += 1
            connection.request("POST", "/v1/logs", body, self._headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if answer.status != 200:
            self.refusals[answer.status] += 1
        return answer.status == 200

    def _connect(self) -> http.client.HTTPConnection | None:
        endpoints = self._collector.endpoints
        if endpoints is None or endpoints.otlp_http is None:
            return None
        place = urlsplit(endpoints.otlp_http)
        return http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)


def _body(run_id: str, first: int) -> bytes:
    origin = Origin(run_id=run_id, epoch="1", ours=True)
    lines = [
        LogLine(at=time.time_ns(), severity=Severity.INFO, message=_line(run_id, number))
        for number in range(first, first + PER_REQUEST)
    ]
    return request([Record(origin=origin, event=e, seq=first + i) for i, e in enumerate(lines)], {})


def _line(run_id: str, number: int) -> str:
    text = f"{run_id} {number}"
    return f"{text} {zlib.crc32(text.encode()):08x}"


def reported(recording: Path) -> Iterator[tuple[str, int]]:
    """Run and number of every line in the batches that an index names; each is checked to be unaltered."""
    files = RecordingFiles(recording)
    for piece, line in files.lines():
        entry = read_entry(line)
        if isinstance(entry, Located) and entry.signal is Signal.LOGS:
            entry = msgspec.structs.replace(entry, file=files.stored(piece, entry.file))
            for record in decode(Signal.LOGS, from_json(Signal.LOGS, files.line(entry))).records:
                assert isinstance(record.event, LogLine)
                run_id, number, check = record.event.message.split()
                assert zlib.crc32(f"{run_id} {number}".encode()) == int(check, 16)
                yield run_id, int(number)


def indexed(recording: Path) -> list[Entry]:
    """Every line of an index over all pieces; each must be readable."""
    return [read_entry(line) for _, line in RecordingFiles(recording).lines()]


def kill_over_and_over(collector: Collector, senders: list[Sender], cycles: int, seed: int) -> None:
    """Lives of random length under load, each ended by SIGKILL."""
    chance = random.Random(seed)  # noqa: S311 a test's own moments
    for sender in senders:
        sender.start()
    try:
        for _ in range(cycles):
            collector.start()
            threading.Event().wait(chance.uniform(0, 0.6))
            collector.kill()
        collector.start()
    finally:
        for sender in senders:
            sender.stop()
