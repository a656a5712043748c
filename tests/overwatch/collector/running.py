"""A whole collector on free ports, with its files under a temporary folder, for the tests that need one."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from overwatch.catalog import Scope
from overwatch.collector import CollectorConfig, Service
from overwatch.config import load
from overwatch.events import Event, Measured, Origin, Record, RunStarted, scalars
from overwatch.journal import Cursor, Signal
from overwatch.otlp.encode import request

T = TypeVar("T")

FREE_PORTS = tuple(
    f"{path}=127.0.0.1:0"
    for path in (
        "receivers.otlp.protocols.http.endpoint",
        "receivers.otlp.protocols.grpc.endpoint",
        "exporters.prometheus.endpoint",
        "extensions.health_check.endpoint",
        "extensions.view.endpoint",
        "service.telemetry.metrics.address",
    )
)


def config(folder: Path, *sets: str) -> CollectorConfig:
    """The shipped configuration on free ports, with all files below `folder`."""
    places = (
        f"exporters.otlp_file.path={folder}/otlp",
        f"exporters.snapshots.path={folder}/snapshots.jsonl",
        f"extensions.file_storage.directory={folder}",
    )
    return load(None, [*FREE_PORTS, *places, *sets])


@contextmanager
def running(folder: Path, *sets: str | CollectorConfig) -> Iterator[Service]:
    """A started collector of a configuration, or of the shipped one with settings; stopped at the end."""
    whole = next((one for one in sets if isinstance(one, CollectorConfig)), None)
    service = Service(whole or config(folder, *(one for one in sets if isinstance(one, str))))
    service.start()
    try:
        yield service
    finally:
        service.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def http(url: str, body: bytes | None = None, method: str | None = None, **headers: str) -> Reply:
    """One HTTP request; underscores in header names become dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    requested = urllib.request.Request(url, data=body, headers=named, method=method)  # noqa: S310 a test's own server
    try:
        with urllib.request.urlopen(requested, timeout=30) as answer:  # noqa: S310 as above
            return Reply(status=answer.status, headers=dict(answer.headers), body=answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(status=error.code, headers=dict(error.headers), body=error.read())


def eventually(look: Callable[[], T | None], within_s: float = 30.0) -> T:
    """The first truthy result of `look`; fails after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    pytest.fail(f"nothing came within {within_s} s from {look}")


def origin(run_id: str) -> Origin:
    """A trainer of ours."""
    return Origin(run_id=run_id, epoch=f"epoch-{run_id}", ours=True)


def reported(run_id: str, events: Sequence[Event], first_seq: int = 1) -> bytes:
    """A request that reports events of one run."""
    numbered = enumerate(events, start=first_seq)
    return request([Record(origin=origin(run_id), event=event, seq=seq) for seq, event in numbered], {})


def update(kl: float, index: int = 1) -> Measured:
    """One policy update with its KL."""
    values = scalars({"overwatch.policy.kl_divergence": kl, "overwatch.policy.entropy": 0.6})
    return Measured(at=time.time_ns(), scope=Scope.POLICY, index=index, values=values)


def fill(service: Service, leave: int) -> Cursor:
    """Fill the journal up to `leave` bytes, held by a reader that does not read until a test lets it."""
    hung = service.context.journal.cursor("hung")
    eventually(lambda: service.context.journal.held_bytes == 0)
    budget = service.config.exporters["aggregator"].journal_size_mib << 20
    # An unknown field of the request: valid protobuf without a single span.
    inside = budget - leave - 5
    length = bytes(((inside >> shift) & 0x7F) | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))
    service.context.journal.append(Signal.TRACES, b"\x7a" + length + bytes(inside))
    return hung


def run_started() -> RunStarted:
    """The first word of a run."""
    return RunStarted(at=time.time_ns(), task="digits", algo="ppo", n_envs=4, devices=("cpu",))
