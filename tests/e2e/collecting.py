"""A real collector process on free ports, for tests that watch it from outside."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from overwatch.cli.viewclient import ViewUnreachableError, fetch_snapshot
from overwatch.discovery import Endpoints
from overwatch.snapshot import Snapshot

T = TypeVar("T")
LIMIT_S = 120.0
"""For a collector to start, and to end, on a machine with much other work."""
ENDPOINT_KEYS = (
    "receivers.otlp.protocols.http.endpoint", "receivers.otlp.protocols.grpc.endpoint",
    "exporters.prometheus.endpoint", "extensions.health_check.endpoint", "extensions.view.endpoint",
    "service.telemetry.metrics.address",
)  # fmt: skip


def until(probe: Callable[[], T | None], what: str, timeout_s: float = 60) -> T:
    """Ask until there is an answer; fails with `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = probe()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s}s for {what}")


@contextmanager
def collecting(folder: Path, *more: str) -> Iterator[Endpoints]:
    """A collector that writes below `folder`, set by `more`; it ends with the block, and must end well."""
    ready = folder / "ready.json"
    sets = [f"{key}=127.0.0.1:0" for key in ENDPOINT_KEYS]
    sets += [
        f"exporters.otlp_file.path={folder / 'otlp'}",
        f"exporters.snapshots.path={folder / 'snapshots.jsonl'}",
    ]
    sets += [f"extensions.file_storage.directory={folder / 'journal'}", *more]
    command = [
        sys.executable,
        "-m",
        "overwatch.cli",
        "collect",
        *(word for item in sets for word in ("--set", item)),
    ]
    environment = {**os.environ, "OVERWATCH_READY_FILE": str(ready), "XDG_RUNTIME_DIR": str(folder)}
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        until(lambda: ready.is_file() or process.poll() is not None, "the collector", LIMIT_S)
        assert process.poll() is None, (folder / "collector.log").read_text()
        yield msgspec.json.decode(ready.read_bytes(), type=Endpoints)
    finally:
        process.terminate()
        code = process.wait(LIMIT_S)
    assert code == 0, (folder / "collector.log").read_text()


def snapshot_of(endpoints: Endpoints, run_id: str) -> Snapshot | None:
    """The run's latest snapshot, `None` while the collector does not know it."""
    assert endpoints.view is not None
    try:
        return fetch_snapshot(endpoints.view, run_id)
    except ViewUnreachableError:
        return None
