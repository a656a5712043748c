"""A recording over the view API: the same routes as a collector's, at every moment, behind the same guard."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import ClientSession, WSMsgType

from overwatch import codec
from overwatch.cli import simulate
from overwatch.collector.net import Address, AddressError
from overwatch.collector.recording_view import RecordingView
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import player_of
from overwatch.simulate import Settings, parse_fault
from overwatch.snapshot import View
from tests.fakes import SECOND
from tests.overwatch.collector.running import Reply, eventually, http

RUN = "sim"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight seconds of a small run in which envs crash."""
    out = tmp_path_factory.mktemp("recording")
    faults = (parse_fault("crash-storm@4"),)
    simulate.record(Settings(gpus=1, envs=6, slots=2, seconds=8, faults=faults, run_id=RUN), out)
    return out


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[RecordingView]:
    """The recording, read to its end."""
    view = RecordingView(lambda: player_of(open_input(folder)), Address(host="127.0.0.1", port=0))
    view.start()
    try:
        eventually(lambda: view.shared.frame is not None and view.shared.read == 1.0)
        yield view
    finally:
        view.stop()


def read(view: RecordingView, path: str, **query: object) -> Reply:
    """The answer of a route."""
    return http(f"{view.url}api/v1/{path}?{urlencode(query)}")


def body(reply: Reply) -> Any:
    """What a good answer holds."""
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def test_the_end_and_every_moment_before_it_are_shown(folder: Path, served: RecordingView) -> None:
    """Byte for byte what a player shows, with the view that is wanted."""
    player = player_of(open_input(folder))
    player.seek(player.last)
    assert read(served, "snapshot").body == codec.encode(_looked(player, View()))
    for tenth in (60, 31, 77, 43):
        player.seek(player.first + tenth * SECOND // 10)
        view, at = View(rows=2, filter="gpu=gpu0"), player.position / SECOND
        wanted = codec.encode(_looked(player, view))
        assert read(served, "snapshot", run=RUN, at=at, rows=2, filter="gpu=gpu0").body == wanted


def _looked(player: Any, view: View) -> Any:
    found = player.look(RUN, view)
    assert found is not None
    return found


def test_runs_past_and_timeline_are_those_of_the_recording(served: RecordingView) -> None:
    """The run, its curves up to the end and up to a moment, and its alarms."""
    runs = body(read(served, "runs"))
    line = body(read(served, "timeline"))
    whole = body(read(served, "history", name="kl_divergence"))["curves"][0]["samples"]
    part = body(read(served, "history", name="kl_divergence", at=line["first"] + 3))["curves"][0]["samples"]

    assert [one["run_id"] for one in runs["runs"]] == [RUN]
    assert (line["run_id"], line["live"], line["past"], line["read"]) == (RUN, False, True, 1.0)
    assert {mark["code"] for mark in line["marks"]} >= {"env-crashed"}
    assert 0 < part < whole


def test_what_there_is_not_is_named(served: RecordingView) -> None:
    """A run, a moment, a parameter, an acknowledgement; never another run's picture."""
    unknown = [read(served, path, run="other", at=9e9) for path in ("snapshot", "history")]
    unknown += [read(served, path, run="other") for path in ("snapshot", "history", "timeline")]
    assert [(one.status, json.loads(one.body)["parameter"]) for one in unknown] == [(404, "run")] * 5
    assert json.loads(read(served, "snapshot", at="soon").body)["parameter"] == "at"
    assert read(served, "stream", at=1).status == 400
    token = {"origin": served.url.rstrip("/")}
    assert http(f"{served.url}api/v1/findings/one/ack", b"", "POST", **token).status == 401


def test_the_stream_is_the_end(served: RecordingView) -> None:
    """A reader of the stream gets the newest moment at once, in any view."""

    async def first() -> str:
        address = f"{served.url}api/v1/stream?rows=1"
        async with asyncio.timeout(30), ClientSession() as client, client.ws_connect(address) as stream:
            message = await stream.receive()
            assert message.type is WSMsgType.TEXT
            return str(message.data)

    shown = codec.decode(asyncio.run(first()).encode())
    line = body(read(served, "timeline"))
    assert (shown.time, len(shown.envs)) == (line["last"], 1)


def test_the_page_is_there_and_strangers_are_refused(served: RecordingView) -> None:
    """The same guard as a collector's; on this machine no token is needed."""
    assert served.token is None
    assert http(served.url).status == 200
    assert json.loads(http(f"{served.url}api/v1/me").body)["roles"] == ["read"]
    assert http(f"{served.url}api/v1/runs", host="evil.example").status == 403
    assert http(f"{served.url}api/v1/runs", origin="https://evil.example").status == 403


def test_beyond_this_machine_a_token_is_needed(folder: Path) -> None:
    """Made anew; the page is there to log in."""
    view = RecordingView(lambda: player_of(open_input(folder)), Address(host="0.0.0.0", port=0))
    view.start()
    try:
        port = view.url.rstrip("/").rpartition(":")[2]
        here = f"http://127.0.0.1:{port}"
        assert view.token is not None
        assert http(here).status == 200
        assert http(f"{here}/api/v1/runs").status == 401
        assert http(f"{here}/api/v1/runs", authorization=f"Bearer {view.token}").status == 200
        reply = http(f"{here}/api/v1/login", view.token.encode(), "POST", origin=here)
        assert http(f"{here}/api/v1/runs", cookie=reply.headers["Set-Cookie"].partition(";")[0]).status == 200
    finally:
        view.stop()


def test_a_busy_port_is_named_or_left(folder: Path, served: RecordingView) -> None:
    """A port that a person named is an error; else the next free one is taken."""
    busy = Address(host="127.0.0.1", port=int(served.url.rstrip("/").rpartition(":")[2]))
    named = RecordingView(lambda: player_of(open_input(folder)), busy, may_move=False)
    with pytest.raises(AddressError, match="is held by"):
        named.start()
    named.stop()
    other = RecordingView(lambda: player_of(open_input(folder)), busy)
    other.start()
    try:
        assert other.moved is not None
        assert http(other.url).status == 200
    finally:
        other.stop()


def test_a_recording_that_is_still_read_is_no_error_of_the_reader(tmp_path: Path) -> None:
    """What cannot be opened is an answer with the reason."""
    view = RecordingView(lambda: player_of(open_input(tmp_path / "gone")), Address(host="127.0.0.1", port=0))
    view.start()
    try:
        reply = read(view, "history")
        assert reply.status == 503
        assert "is not there" in json.loads(reply.body)["error"]
    finally:
        view.stop()
