"""What a dead trainer left goes where that trainer sent; only a trainer that sends there too delivers it."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.sdk.exporter.orphan_recovery import Delivered, Route, deliver_all
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.ports import free_port

SECRET = "x-team=red%20herring"  # noqa: S105 of a test
TRAINER = """
import os, signal, sys, overwatch.sdk
run = overwatch.sdk.start(run_id="killed", sample=False)
for update in range(50):
    run.update(update=update, kl_divergence=0.01)
if sys.argv[1] == "both":
    os.kill(run.exporter_pid, signal.SIGKILL)
else:
    run.flush(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    """The collector of a trainer that is still alive."""
    with http_sink() as sink:
        yield sink


def kill_a_trainer(monkeypatch: pytest.MonkeyPatch, killed: str, endpoint: str) -> None:
    """A trainer whose environment names its collector, dead with what it left on disk."""
    with monkeypatch.context() as its:
        its.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        its.setenv("OTEL_EXPORTER_OTLP_HEADERS", SECRET)
        # Its exporter shares the error stream, which is read to its end.
        done = subprocess.run(
            [sys.executable, "-c", TRAINER, killed], check=False, timeout=90, capture_output=True
        )
    assert done.returncode == -signal.SIGKILL


def route(endpoint: str, headers: str | None = None) -> Route:
    """The route of a trainer that is alive."""
    env = {} if headers is None else {"OTEL_EXPORTER_OTLP_HEADERS": headers}
    return Route(endpoint=endpoint, env=env)


def adopted(own: Route) -> list[Delivered]:
    """What a trainer that sends by this route delivers for others."""
    return list(deliver_all(None, None, 10.0, same=own))


@pytest.mark.parametrize("killed", ["both", "trainer"])
def test_what_was_left_goes_to_no_other_collector_and_with_no_other_headers(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Rings and spools: another endpoint, other headers or none deliver nothing; `sync` delivers."""
    port = free_port()
    kill_a_trainer(monkeypatch, killed, f"http://127.0.0.1:{port}")
    with http_sink(port) as theirs:
        other = route(sink.endpoint, SECRET)
        assert adopted(other) == adopted(route(theirs.endpoint)) == []
        assert adopted(route(theirs.endpoint, "x-team=blue")) == []
        assert (sink.requests, theirs.requests) == (0, 0)

        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
        assert [(one.run_id, one.is_done) for one in deliver_all(None, None, 20.0)] == [("killed", True)]
        assert sink.requests == 0
        assert {headers["x-team"] for headers in theirs.headers} == {"red herring"}


@pytest.mark.parametrize("killed", ["both", "trainer"])
def test_what_was_left_is_delivered_by_the_next_trainer_with_the_same_destination(
    monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """The same collector with the same headers, whichever variables lead there."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    kill_a_trainer(monkeypatch, killed, f"{endpoint}/")
    with http_sink(port) as theirs:
        assert [(one.run_id, one.is_done) for one in adopted(route(endpoint, SECRET))] == [("killed", True)]
        assert {record.origin.run_id for record in theirs.records()} == {"killed"}


def test_another_endpoint_gets_no_secret_of_the_old_one(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sync --endpoint` goes by the headers of its own environment."""
    kill_a_trainer(monkeypatch, "both", f"http://127.0.0.1:{free_port()}")
    assert [one.is_done for one in deliver_all(None, sink.endpoint, 20.0)] == [True]
    assert not any("x-team" in headers for headers in sink.headers)


def test_secrets_lie_in_files_of_their_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever holds a header's value on disk has mode 0600."""
    kill_a_trainer(monkeypatch, "trainer", f"http://127.0.0.1:{free_port()}")
    kill_a_trainer(monkeypatch, "both", f"http://127.0.0.1:{free_port()}")
    folders = (Path(os.environ["OVERWATCH_RING_DIR"]), Path(os.environ["OVERWATCH_SPOOL_DIR"]))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    secret = [path for path in files if b"red%20herring" in path.read_bytes()]
    assert {path.suffix for path in secret} - {".new"} == {".hello", ".json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_many_that_come_for_the_same_rings_do_not_complain(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One is the first, the others find nothing; what the first had not yet removed goes too."""
    for _ in range(2):
        kill_a_trainer(monkeypatch, "both", sink.endpoint)
    rings = Path(os.environ["OVERWATCH_RING_DIR"])
    next(rings.glob("*.numbers.ring")).unlink()
    found: list[Delivered] = []
    comers = [threading.Thread(target=lambda: found.extend(deliver_all(None, None, 20.0))) for _ in range(4)]
    for comer in comers:
        comer.start()
    for comer in comers:
        comer.join()
    assert [one.is_done for one in found] == [True]
    assert "cannot be read" not in caplog.text
    assert list(rings.iterdir()) == []
