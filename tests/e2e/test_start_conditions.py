"""How commands start where a port is busy or a standard stream is closed."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.collecting import ENDPOINT_KEYS, until

COMMAND = [sys.executable, "-m", "overwatch.cli"]
CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}


def settings(folder: Path, **other: str) -> list[str]:
    """The words that set a collector's ports and folders."""
    sets = dict.fromkeys(ENDPOINT_KEYS, "127.0.0.1:0")
    sets |= {
        "exporters.otlp_file.path": f"{folder}/otlp",
        "exporters.snapshots.path": f"{folder}/snapshots.jsonl",
        "extensions.file_storage.directory": str(folder),
        **other,
    }
    return [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]


def environment(folder: Path) -> dict[str, str]:
    """One whose collector announces itself below the folder."""
    ready = str(folder / "ready.json")
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder), "OVERWATCH_READY_FILE": ready}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("key", ENDPOINT_KEYS)
def test_a_named_port_that_is_busy_is_an_error(tmp_path: Path, key: str) -> None:
    """Status 2, and the holder's name: a trainer that was given the port would reach the holder."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        command = [*COMMAND, "collect", *settings(tmp_path, **{key: f"127.0.0.1:{port}"})]
        done = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr


def with_closed(folder: Path, words: list[str], closed: str) -> subprocess.Popen[str]:
    """A command that a shell starts without some of the standard streams."""
    script = f'exec "$@" {CLOSED[closed]}'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *COMMAND, *words],
        env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("closed", CLOSED)
def test_a_collector_runs_without_standard_streams(tmp_path: Path, closed: str) -> None:
    """It accepts, and ends well; without stderr its log goes to stdout."""
    process = with_closed(tmp_path, ["collect", *settings(tmp_path)], closed)
    try:
        until(lambda: (tmp_path / "ready.json").is_file() or process.poll() is not None, "the collector")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert "accepts" in {"stderr": out, "all": "accepts"}.get(closed, err)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("closed", CLOSED)
def test_the_cause_of_a_failed_start_is_found(tmp_path: Path, closed: str) -> None:
    """A wrong setting has its status and, while a stream is open, its cause."""
    process = with_closed(tmp_path, ["collect", "--set", "service.nothing=1"], closed)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert closed == "all" or "service.nothing" in out + err


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "words", [["catalog", "--format", "json"], ["config", "print"], ["locate"], ["--version"]]
)
@pytest.mark.parametrize("closed", CLOSED)
def test_other_commands_do_as_with_all_streams(tmp_path: Path, words: list[str], closed: str) -> None:
    """The status is the same, and so is the output, where there is one."""
    usual = subprocess.run(
        [*COMMAND, *words], env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    process = with_closed(tmp_path, words, closed)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (
        usual.returncode,
        "" if closed in ("stdout", "all") else usual.stdout,
    )
