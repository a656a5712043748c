"""A folder that is taken from a running collector: it ends with 3 and starts anew, or makes it again."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

from overwatch.discovery import Endpoints
from overwatch.journal import Signal
from tests.e2e.collecting import ENDPOINT_KEYS, until
from tests.overwatch.collector.running import http, run_started, told

Harm: TypeAlias = Callable[[Path], object]


@contextmanager
def started(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Endpoints]]:
    """A collector process with all its files below `folder / data`; it is killed if it lives at the end."""
    ready, data = folder / "ready.json", folder / "data"
    ready.unlink(missing_ok=True)
    sets = [
        *(f"{key}=127.0.0.1:0" for key in ENDPOINT_KEYS),
        f"exporters.otlp_file.path={data / 'otlp'}",
        f"exporters.snapshots.path={data / 'snapshots.jsonl'}",
        f"extensions.file_storage.directory={data}",
    ]
    command = [sys.executable, "-m", "overwatch.cli", "collect"]
    environment = {**os.environ, "OVERWATCH_READY_FILE": str(ready), "XDG_RUNTIME_DIR": str(folder)}
    with (folder / "collector.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *(word for item in sets for word in ("--set", item))],
            stdout=log, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip
    try:
        until(lambda: ready.is_file() or process.poll() is not None, "the collector", 60)
        assert process.poll() is None, (folder / "collector.log").read_text()
        yield process, msgspec.json.decode(ready.read_bytes(), type=Endpoints)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def sent(endpoints: Endpoints, run_id: str) -> int:
    """The status that a run's first event is answered with."""
    url = f"{endpoints.otlp_http}/v1/{Signal.LOGS.value}"
    return http(url, told(run_id, [run_started()]), Content_Type="application/x-protobuf").status


def moved(path: Path) -> None:
    """The folder has another name, and another one has its name."""
    path.rename(path.with_name(f"{path.name}-moved"))
    path.mkdir()


def removed(path: Path) -> None:
    """It is gone; in a folder that is written to meanwhile something new may have to be removed too."""
    until = time.monotonic() + 20.0
    while path.exists():
        assert time.monotonic() < until, f"{path} does not go"
        shutil.rmtree(path, ignore_errors=True)


def a_file(path: Path) -> None:
    """Something else has the folder's name."""
    removed(path)
    path.write_bytes(b"")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("where", "harm"),
    [
        (".", removed),
        ("journal", removed),
        ("journal", a_file),
        ("journal", moved),
        ("journal/lock", Path.unlink),
    ],
    ids=["all", "journal", "file", "moved", "lock"],
)
def test_a_journal_that_is_gone_ends_the_process_with_3(tmp_path: Path, where: str, harm: Harm) -> None:
    """The log names the folder and the loss; nothing needs to be sent for it to be seen."""
    with started(tmp_path) as (process, endpoints):
        assert sent(endpoints, "before") == 200
        harm(tmp_path / "data" / where)
        assert process.wait(30) == 3, (tmp_path / "collector.log").read_text()
    assert f"{tmp_path}/data/journal" in (tmp_path / "collector.log").read_text()
    assert "is lost" in (tmp_path / "collector.log").read_text()


def test_the_next_start_makes_the_folder_again(tmp_path: Path) -> None:
    """A new life takes in what the lost one did not have."""
    with started(tmp_path) as (process, endpoints):
        removed(tmp_path / "data")
        assert process.wait(30) == 3
    with started(tmp_path) as (_, endpoints):
        assert sent(endpoints, "after") == 200


def test_a_recording_that_is_gone_is_made_again(tmp_path: Path) -> None:
    """The journal is whole, so the process goes on and a new recording begins."""
    with started(tmp_path) as (process, endpoints):
        assert sent(endpoints, "before") == 200
        recording = tmp_path / "data" / "otlp"
        until(lambda: any(recording.rglob("*.jsonl")), "the recording")
        recording.rename(tmp_path / "gone")
        shutil.rmtree(tmp_path / "gone", ignore_errors=True)
        (tmp_path / "data" / "snapshots.jsonl").unlink(missing_ok=True)
        assert sent(endpoints, "after") == 200
        until(lambda: any(recording.rglob("*.jsonl")), "the recording again")
        until((tmp_path / "data" / "snapshots.jsonl").is_file, "the snapshots again")
        assert process.poll() is None
