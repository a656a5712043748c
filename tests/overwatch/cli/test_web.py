"""`overwatch web` as a process: the link first, the page behind it, and a clean end."""

import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch import discovery
from overwatch.cli import main
from overwatch.cli.doctor import reach
from tests.fakes import SECOND, START_NS
from tests.overwatch.collector import pki
from tests.overwatch.collector.running import eventually, http, running
from tests.overwatch.feeds.recordings import Written, two_lives


@contextmanager
def serving(*arguments: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """The process and its link, which is the first line."""
    command = [sys.executable, "-m", "overwatch.cli", "web", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_recording_is_served_until_a_signal(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """A growing one too; a reader that is connected does not hold up the end, and nothing else is printed."""
    written = Written(tmp_path)
    written.start()
    for tenth in range(0, 40, 2):
        written.update(tenth / 10)
    with serving(str(tmp_path), "--port", "0") as (process, url):
        assert http(url).status == 200

        def last() -> float:
            reply = http(f"{url}api/v1/timeline")
            return float(json.loads(reply.body)["last"]) if reply.status == 200 else 0.0

        eventually(lambda: last() > START_NS / SECOND + 3)
        for tenth in range(40, 60, 2):
            written.update(tenth / 10)
        written.end(6.0)
        eventually(lambda: last() >= START_NS / SECOND + 6)
        shown = json.loads(http(f"{url}api/v1/snapshot?at={START_NS / SECOND + 5}").body)
        assert shown["time"] == START_NS / SECOND + 5
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)

    written.close()
    assert (process.returncode, out) == (status, "")
    assert errors.splitlines() == [f"{tmp_path} is served; end it with ctrl-c"]


@pytest.mark.skipif(pki.OPENSSL is None, reason="openssl makes the certificates: apt-get install openssl")
def test_a_recording_is_served_by_tls(tmp_path: Path) -> None:
    """With a certificate of one's own; a file that cannot be used is named, and half of a pair."""
    pki.authority(tmp_path, "ca")
    pki.signed(tmp_path, "server")
    written = Written(tmp_path / "run")
    written.start()
    written.update(0.0)
    written.close()
    pair = ["--tls-cert", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server.key")]
    with serving(str(tmp_path / "run"), "--port", "0", *pair) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with urllib.request.urlopen(url, timeout=10, context=trusted) as answer:  # noqa: S310 its own server
            assert answer.status == 200

    wrong = CliRunner().invoke(main, ["web", str(tmp_path / "run"), *pair[:3], str(tmp_path / "none.key")])
    assert (wrong.exit_code, "none.key" in wrong.output) == (1, True)
    half = CliRunner().invoke(main, ["web", str(tmp_path / "run"), *pair[:2]])
    assert (half.exit_code, "give both or none" in half.output) == (2, True)


def test_what_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    """What is no recording is bad input; one with nothing in it is served to no one."""
    (tmp_path / "notes.txt").write_text("nothing\n")
    result = CliRunner().invoke(main, ["web", str(tmp_path)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output

    empty = tmp_path / "empty"
    written = Written(empty)
    written.start()
    written.close()
    result = CliRunner().invoke(main, ["web", str(empty), "--port", "0"])
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith(f"Error: {empty} holds nothing that can be replayed")


def test_a_named_port_that_is_busy_is_an_error(tmp_path: Path) -> None:
    """And names who holds it."""
    folder = two_lives(tmp_path)
    with serving(str(folder), "--port", "0") as (_, url):
        port = url.rstrip("/").rpartition(":")[2]
        result = CliRunner().invoke(main, ["web", str(folder), "--port", port])

    assert result.exit_code == 1
    assert "is held by" in result.output


def test_the_page_of_a_running_collector_is_named(tmp_path: Path) -> None:
    """It answers at the link that `overwatch doctor` prints."""
    with running(tmp_path) as service:
        discovery.write(service.endpoints)
        reported = [verdict.found for verdict in reach(None)]
        page = str(service.endpoints.page)
        assert reported[-1] == f"its page is at {page}"
        assert http(page).status == 200
