"""The command: flags and files, one line with the address, a clean end, what it reports."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from overwatch.events import RunFinished, Tallied
from overwatch_rl.cli import main
from tests.e2e.collecting import until
from tests.overwatch.sdk.sink import http_sink
from tests.overwatch_rl.rollouts.serving import ENV, TRAINER, group

END_S = 60.0


@contextmanager
def started(*flags: str, status: int = 0, end: signal.Signals = signal.SIGTERM) -> Iterator[tuple[str, str]]:
    """A server process: its address and its first line; ended by a signal, with this exit status."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "rollouts", "--listen", "127.0.0.1:0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("rollouts API at http://127.0.0.1:"), process.communicate()
        yield line.split()[3].rstrip(","), line
        process.send_signal(end)
        out, err = process.communicate(timeout=END_S)
        assert (process.returncode, out) == (status, ""), err
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()


def requested(url: str, path: str, body: object = None, token: str | None = None) -> Any:
    """The answer to a request."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url + path, data, headers)  # noqa: S310 the server's own address
    with urllib.request.urlopen(request, timeout=END_S) as reply:  # noqa: S310
        return json.load(reply)


def test_it_serves_reports_and_ends_cleanly(tmp_path: Path) -> None:
    """Groups that are acknowledged are there in the next life; the tower gets every count to the last."""
    folder = str(tmp_path / "kept")
    with http_sink() as sink:
        with started("--folder", folder, "--run-id", "r", "--endpoint", sink.endpoint) as (url, line):
            assert f"0 groups in {folder}" in line
            requested(url, "/register", TRAINER)
            assert requested(url, "/batch")["batch"] is None
            requested(url, "/register-env", ENV)
            answer = requested(url, "/scored_data_list", [group(first=first) for first in (1, 2, 3)])
            assert answer["groups_processed"] == 3
            assert len(requested(url, "/batch")["batch"]) == 2
            assert requested(url, "/batch")["batch"] is None
        until(lambda: sink.events(RunFinished), "the run's end")
        totals = {one.metric: one.sum for event in sink.events(Tallied) for one in event.series}
        assert totals["overwatch.rollouts.accepted"] == 6
        assert totals["overwatch.rollouts.served"] == 4
        assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]
        assert {record.origin.role for record in sink.records()} == {"rollouts"}
    with started("--folder", folder, "--no-telemetry", end=signal.SIGINT, status=130) as (url, line):
        assert f"1 groups in {folder}" in line
        assert requested(url, "/status-env?env_id=0")["queue_size"] == 1


def test_a_file_gives_the_flags_and_a_token_opens_the_address(tmp_path: Path) -> None:
    """TOML by the names of the flags; other machines' addresses need a token, and so does each request."""
    token = tmp_path / "token"
    token.write_text("a-long-enough-token\n")
    config = tmp_path / "rollouts.toml"
    config.write_text(f'durability = "memory"\ntelemetry = false\ntoken-file = "{token}"\n')
    with started("--config", str(config)) as (url, line):
        assert "0 groups in memory alone" in line
        assert requested(url, "/healthz")["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            requested(url, "/status")
        assert requested(url, "/status", token="a-long-enough-token")["queue_size"] == 0  # noqa: S106 of the test
    assert not list(Path.cwd().glob("rollouts-*"))


@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        (["--listen", "nowhere"], "listen 'nowhere' is not host:port; write e.g. 127.0.0.1:8000"),
        (["--listen", "0.0.0.0:0"], "set a token with --token-file, or bind 127.0.0.1"),
        (
            ["--database", "mysql://h/x"],
            "database is 'mysql://h/x' with durability fsync; write postgresql://",
        ),
        (["--database", "nowhere"], "database is 'nowhere' with durability fsync; write postgresql://"),
        (["--database", "postgresql://h/x", "--durability", "memory"], "user@host/name with fast or fsync"),
        (["--endpoint", "nowhere"], "endpoint 'nowhere' is no URL"),
        (["--lease-s", "0"], "0.0 is not in the range 1<=x<=31536000.0"),
        (["--lease-s", "nan"], "nan is no finite number; use one in the range 1<=x<=31536000.0"),
        (["--durability", "some"], "'some' is not one of 'memory', 'fast', 'fsync'"),
    ],
)
def test_a_wrong_flag_is_a_usage_error_that_names_value_and_fix(flags: list[str], stated: str) -> None:
    """Exit 2, and nothing is served."""
    result = CliRunner().invoke(main, ["rollouts", "--no-telemetry", *flags])

    assert result.exit_code == 2
    assert stated in result.output.replace("\n", " ")


def test_a_token_that_is_too_short_is_a_usage_error(tmp_path: Path) -> None:
    """Before anything is bound."""
    (tmp_path / "token").write_text("short")
    result = CliRunner().invoke(main, ["rollouts", "--token-file", str(tmp_path / "token"), "--no-telemetry"])

    assert result.exit_code == 2
    assert "use 16 or more letters and digits" in result.output


def test_a_busy_address_is_an_error_in_a_line() -> None:
    """It names the address; the exit status is 1."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        result = CliRunner().invoke(
            main, ["rollouts", "--listen", listen, "--durability", "memory", "--no-telemetry"]
        )

    assert result.exit_code == 1
    stated = f"Error: {listen}: Address already in use; choose another address with --listen"
    assert stated in result.output


def test_a_folder_that_is_in_use_is_an_error_in_a_line(tmp_path: Path) -> None:
    """It names the folder and the fix."""
    with started("--folder", str(tmp_path), "--no-telemetry"):
        result = CliRunner().invoke(
            main, ["rollouts", "--listen", "127.0.0.1:0", "--folder", str(tmp_path), "--no-telemetry"]
        )

    assert result.exit_code == 1
    assert f"Error: the queue in {tmp_path} cannot be used: database is locked; stop the" in result.output


def test_a_folder_that_cannot_be_made_is_an_error_in_a_line(tmp_path: Path) -> None:
    """It names the folder and the fix."""
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "queue")
    result = CliRunner().invoke(main, ["rollouts", "--folder", folder, "--no-telemetry"])

    assert result.exit_code == 1
    assert f"Error: {tmp_path}/file" in result.output
    assert "; give a --folder that this user can write" in result.output
    assert "Errno" not in result.output


def test_a_request_that_is_no_http_leaves_nothing_in_the_log() -> None:
    """Its sender has a 400; a scanner of ports must not fill the log with tracebacks."""
    with started("--durability", "memory", "--no-telemetry") as (url, _):
        port = int(url.rpartition(":")[2])
        for sent in (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), END_S) as client:
                client.sendall(sent)
                assert b" 400 " in client.recv(100)
