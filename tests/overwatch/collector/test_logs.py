"""The collector's log, and what no output of the collector may show: secrets, and files for others."""

import json
import logging
import signal
import socket
import stat
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from overwatch.collector.logs import formatter
from overwatch.collector.setting_types import SHOWN, Secret, redact, texts_in
from overwatch.discovery import path as discovery_path
from overwatch.journal import Signal
from tests.e2e.collecting import collecting
from tests.overwatch.collector import raw_http2 as h2
from tests.overwatch.collector.receivers.fuzz_grpc import method
from tests.overwatch.collector.running import config, eventually, http, reported, run_started
from tests.overwatch.collector.test_service import ready, spawn

CANARY = "canary-5ac7e0b9"


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    """A log record, with a traceback where `failed`."""
    info = None
    if failed:
        try:
            int(f"cannot use {CANARY}")
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("overwatch.collector", logging.WARNING, __file__, 1, message, arguments, info)


@pytest.mark.parametrize("encoding", ["console", "json"])
@pytest.mark.parametrize("failed", [False, True])
def test_no_line_shows_a_secret(encoding: str, *, failed: bool) -> None:
    """Known secrets, bearer tokens and passwords in URLs are placeholders, in tracebacks too."""
    lines = formatter(encoding, lambda: frozenset({CANARY}))
    stated = lines.format(record("%s, Bearer abc.def at http://me:pw@host/", CANARY, failed=failed))

    assert SHOWN in stated
    assert [word for word in (CANARY, "abc.def", "pw") if word in stated] == []
    assert ("ValueError" in stated) is failed


def test_json_lines_are_objects() -> None:
    """Level, logger, time and event, one object a line."""
    line = formatter("json", frozenset).format(record("a\nb %s", "\x1b[31m"))
    found = json.loads(line)

    assert "\n" not in line
    assert found["event"] == "a\\x0ab \\x1b[31m"
    assert (found["level"], found["logger"]) == ("warning", "overwatch.collector")
    assert found["timestamp"].endswith("Z")


def test_what_came_over_the_wire_starts_no_line() -> None:
    """Line ends and escape sequences of a message are shown as text."""
    line = formatter("console", frozenset).format(record("run %s", "a\n2026 [info] forged\x1b[2J"))

    assert "\n" not in line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: bearer abc", f"Authorization: bearer {SHOWN}"),
        ("authorization=Basic%20YWJj", f"authorization=Basic%20{SHOWN}"),
        ("redis://user:pass@host:1/0", f"redis://{SHOWN}@host:1/0"),
        ("http://host:4318/v1/logs", "http://host:4318/v1/logs"),
        ("the bearer of news", f"the bearer {SHOWN} news"),
    ],
)
def test_redaction(text: str, shown: str) -> None:
    """Credentials go by their shape; too much is better than too little."""
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("word", "instead"), [(b"content-type", b"content-typ\xee"), (b"trailers", b"trailer\xee")]
)
def test_a_head_that_is_no_text_makes_no_line(tmp_path: Path, word: bytes, instead: bytes) -> None:
    """What a client of gRPC sends in bytes that are no text is its own mistake, and fills no disk."""
    odd = h2.whole_call(method(Signal.LOGS), b"").replace(word, instead)
    with collecting(tmp_path) as endpoints:
        address = urlsplit(str(endpoints.otlp_grpc))
        with socket.create_connection((str(address.hostname), address.port or 0), 10) as connection:
            connection.sendall(odd)
            received = b""
            # The call has an end: its head was read.
            while not {h2.HEADERS, h2.RST_STREAM} & set(h2.kinds(received)):
                received += connection.recv(1 << 16) or pytest.fail("the connection ended")
    stated = (tmp_path / "collector.log").read_text()
    assert [mark for mark in ("Traceback", "Invalid", "hpack") if mark in stated] == []


def test_secrets_within_secrets_and_quotes_go_whole() -> None:
    """No end of a longer one is left, and JSON's escapes hide none."""
    lines = formatter("json", lambda: frozenset({"abcd", "abcdefgh", 'qu"ote\\d'}))
    stated = lines.format(record("abcdefgh and %s", 'qu"ote\\d'))

    assert json.loads(stated)["event"] == f"{SHOWN} and {SHOWN}"


def test_a_secret_does_not_show(tmp_path: Path) -> None:
    """A configuration with tokens shows placeholders, and still knows which texts to keep out."""
    held = config(
        tmp_path,
        f"service.security.tokens.read.tokens=[{CANARY}, second]",
        f"exporters.webhook.headers={{x-key: {CANARY}-hook}}",
    )

    assert CANARY not in repr(held)
    assert texts_in(held) == {CANARY, "second", f"{CANARY}-hook"}
    assert str(Secret(CANARY)) == repr(Secret(CANARY)) == SHOWN


def test_no_output_shows_a_token_and_no_file_is_for_others(tmp_path: Path) -> None:
    """Only the announcement holds tokens; everything that a collector writes is its user's alone."""
    data = tmp_path / "data"
    data.mkdir()
    item = f"service.security.tokens.ingest.token={CANARY}"
    process = spawn(data, item, "service.telemetry.logs.level=debug")
    try:
        endpoints = ready(data, process)
        for token in ("wrong", CANARY):
            headers = {"Content_Type": "application/x-protobuf", "Authorization": f"Bearer {token}"}
            http(f"{endpoints.otlp_http}/v1/logs", reported("run-a", [run_started()]), "POST", **headers)
        eventually(lambda: (data / "snapshots.jsonl").exists() or None)
        pages = [http(f"{endpoints.metrics}/metrics").body, http(f"{endpoints.health}/").body]
        announced = discovery_path()
        assert stat.S_IMODE(announced.stat().st_mode) == 0o600
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()

    # The log's file was made by the test, and the ready file is an announcement too.
    files = [file for file in data.rglob("*") if file.name != "collector.log"]
    assert [str(file) for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077] == []
    contents = {
        str(file): file.read_bytes() for file in files if file.is_file() and file.name != "ready.json"
    }
    contents["log"] = (data / "collector.log").read_bytes()
    contents |= {f"page {at}": page for at, page in enumerate(pages)}
    assert [name for name, content in contents.items() if CANARY.encode() in content] == []
    assert len(contents) > 5
