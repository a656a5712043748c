"""What a collector announces to this user's own programs: they find it and come in with no setting."""

import asyncio
import os
import stat
from pathlib import Path

import msgspec
import pytest

from overwatch import discovery
from overwatch.cli.viewclient import ViewUnreachableError, fetch, http_url
from overwatch.delivery.destination import destination
from overwatch.discovery import Endpoints, Tokens
from overwatch.feeds.live import Connection, Live
from overwatch.journal import Signal
from overwatch.snapshot import Snapshot
from tests.overwatch.collector.running import http, reported, run_started, running

TOKENS = ("service.security.tokens.ingest.token=in-1", "service.security.tokens.read.token=re-1")


def test_programs_of_this_user_come_in(tmp_path: Path) -> None:
    """An exporter, a one-shot reader and a live feed take the announced tokens by themselves."""
    with running(tmp_path, *TOKENS) as service:
        service.announce()
        to = destination(Signal.LOGS, None, {})
        given = dict(to.headers_now)["authorization"]
        url = f"{to.shown}{to.path}"
        body = reported("run-a", [run_started()])
        sent = http(url, body, "POST", Content_Type="application/x-protobuf", Authorization=given)
        view = str(service.endpoints.view)
        runs = fetch(f"{http_url(view)}/api/v1/runs")
        update = asyncio.run(first(Live(view)))

    assert (given, sent.status) == ("Bearer in-1", 200)
    assert b"runs" in runs
    assert isinstance(update, Snapshot)


async def first(feed: Live) -> Snapshot | Connection:
    """The first snapshot, or why there is none."""
    async with asyncio.timeout(20):
        async for update in feed.updates():
            if isinstance(update, Snapshot) or update.state == "down":
                return update
    raise AssertionError("the feed ended")


def test_new_tokens_are_announced(tmp_path: Path) -> None:
    """After a start or a reload an exporter that was there before uses the tokens that hold now."""
    file = tmp_path / "tokens"
    file.write_text("first")
    with running(tmp_path, f"service.security.tokens.ingest.filename={file}") as service:
        to = destination(Signal.LOGS, str(service.endpoints.otlp_http), {})
        seen = [dict(to.headers_now)]
        service.announce()
        seen.append(dict(to.headers_now))
        file.write_text("second")
        service.reload()
        seen.append(dict(to.headers_now))

    assert seen == [{}, {"authorization": "Bearer first"}, {"authorization": "Bearer second"}]


def test_what_is_asked_for_wins_over_what_is_announced(tmp_path: Path) -> None:
    """A header of the environment stays; another address gets no token of ours."""
    with running(tmp_path, *TOKENS) as service:
        service.announce()
        env = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20own"}
        own = destination(Signal.LOGS, None, env)
        other = destination(Signal.LOGS, "http://127.0.0.1:9", {})

        requested, elsewhere = dict(own.headers_now), dict(other.headers_now)

    assert requested == {"authorization": "Bearer own"}
    assert elsewhere == {}


def test_readers_of_other_machines_name_their_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is announced the environment has the token; without one the reason names what to set."""
    with running(tmp_path, *TOKENS) as service:
        view = str(service.endpoints.view)
        with pytest.raises(ViewUnreachableError, match="401"):
            fetch(f"{http_url(view)}/api/v1/runs")
        refused = asyncio.run(first(Live(view)))
        monkeypatch.setenv(discovery.VARIABLE, "re-1")
        assert b"runs" in fetch(f"{http_url(view)}/api/v1/runs")

    assert isinstance(refused, Connection)
    assert "401; set OVERWATCH_TOKEN" in str(refused.reason)


def test_the_announcement_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else may read the tokens: not in the file, not in the ready file, not in a representation."""
    monkeypatch.setenv("OVERWATCH_READY_FILE", str(tmp_path / "ready.json"))
    with running(tmp_path, *TOKENS) as service:
        service.announce()
        files = (discovery.path(), tmp_path / "ready.json")
        modes = [stat.S_IMODE(file.stat().st_mode) for file in (*files, discovery.path().parent)]
        shown = repr(service.endpoints)
        read = discovery.read()

    assert modes == [0o600, 0o600, 0o700]
    assert read is not None
    assert read.tokens.ingest == "in-1"
    assert "in-1" not in shown
    assert "Tokens(ingest, read, control)" in shown


def test_what_others_laid_in_the_place_is_not_written_to(tmp_path: Path) -> None:
    """A link or a file under the scratch name keeps its content and gets no token."""
    bait = tmp_path / "bait"
    bait.write_text("untouched")
    folder = discovery.path().parent
    folder.mkdir(parents=True, mode=0o755)
    (folder / f".{discovery.path().name}.{os.getpid()}").symlink_to(bait)

    discovery.write(Endpoints(pid=os.getpid(), tokens=Tokens(ingest="secret")))

    assert bait.read_text() == "untouched"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not discovery.path().is_symlink()


def test_a_folder_that_is_a_link_is_not_announced_in(tmp_path: Path) -> None:
    """A planted link does not lead the tokens elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = discovery.path().parent
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)

    with pytest.raises(PermissionError, match="own folder"):
        discovery.write(Endpoints(pid=os.getpid()))
    with running(tmp_path) as service:
        service.announce()

    assert list(elsewhere.iterdir()) == []


def test_announcements_of_older_collectors_are_read() -> None:
    """A file without tokens has none."""
    file = discovery.path()
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_bytes(msgspec.json.encode({"pid": os.getpid(), "otlp_http": "http://127.0.0.1:1"}))

    found = discovery.read()

    assert found is not None
    assert found.tokens == Tokens()
    assert discovery.token("http://localhost:1/v1/logs", "ingest") is None
    assert discovery.token("not a url [", "ingest") is None
