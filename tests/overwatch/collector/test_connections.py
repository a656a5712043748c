"""Connections that take their time: they are cut, and meanwhile no one waits for them."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.collector import Service
from overwatch.collector.connections import ConnectionLimiter, ConnectionsConfig
from tests.overwatch.collector.running import eventually, http, running

HEAD = b"POST /v1/logs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"


@contextlib.contextmanager
def limited(folder: Path, **keys: float) -> Iterator[tuple[Service, int]]:
    """A collector whose OTLP/HTTP listener has these limits of connections, and its port."""
    sets = [f"receivers.otlp.protocols.http.connections.{key}={value}" for key, value in keys.items()]
    with running(folder, *sets) as service:
        yield service, int(str(service.endpoints.otlp_http).rpartition(":")[2])


def connect(port: int, stated: bytes) -> socket.socket:
    """A client that sends something, and then nothing."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=10)
    opened.sendall(stated)
    return opened


def is_cut(connection: socket.socket) -> bool:
    """Whether the other side ends the connection without an answer."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def good(service: Service) -> bool:
    """Whether a client that behaves is served."""
    url = f"{service.endpoints.otlp_http}/v1/logs"
    return http(url, b"", "POST", Content_Type="application/x-protobuf").status == 200


@pytest.mark.parametrize(
    "stated", [b"", b"P", HEAD, HEAD + b"X-A: b\r\n"], ids=["nothing", "a-byte", "half", "more"]
)
def test_headers_that_do_not_come_are_cut(tmp_path: Path, stated: bytes) -> None:
    """A connection without a whole head of a request ends at the deadline; others are served meanwhile."""
    with limited(tmp_path, read_header_timeout_s=0.5) as (service, port):
        slow = [connect(port, stated) for _ in range(50)]
        assert good(service)
        assert all(is_cut(connection) for connection in slow)
        for connection in slow:
            connection.close()


@pytest.mark.parametrize("stated", [b"x" * 20_000, b"hello\r\n\r\n"], ids=["no end", "no request"])
def test_what_is_no_request_is_refused_before_the_deadline(tmp_path: Path, stated: bytes) -> None:
    """A line that is none of HTTP, and one that does not end, are answered at once."""
    with limited(tmp_path, read_header_timeout_s=60) as (_, port), connect(port, stated) as wrong:
        assert wrong.recv(4096).startswith(b"HTTP/1.0 400 ")


def test_a_silent_connection_ends_with_the_collector(tmp_path: Path) -> None:
    """Nobody waits for who has asked nothing."""
    with limited(tmp_path, read_header_timeout_s=60) as (_, port):
        silent = connect(port, b"P")
    assert is_cut(silent)
    silent.close()


def test_a_second_request_has_the_same_deadline(tmp_path: Path) -> None:
    """On a connection that was answered, the next head must come in time too; none need come at all."""
    whole = HEAD + b"Content-Length: 0\r\n\r\n"
    with limited(tmp_path, read_header_timeout_s=0.5) as (_, port), connect(port, whole) as slow:
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")
        slow.sendall(HEAD)
        assert is_cut(slow)


def test_one_peer_has_its_share_of_connections(tmp_path: Path) -> None:
    """Beyond the cap a connection is closed at once; one that ends makes room."""
    with limited(tmp_path, max_connections_per_peer=3) as (service, port):
        held = [connect(port, b"") for _ in range(3)]
        with connect(port, b"") as late:
            assert is_cut(late)
        for connection in held:
            connection.close()
        assert eventually(lambda: served(service))


def served(service: Service) -> bool:
    """Whether there is room, and an answer."""
    with contextlib.suppress(OSError):
        return good(service)
    return False


def test_a_slow_answer_ends_with_its_deadline(tmp_path: Path) -> None:
    """A request whose body trickles in is cut when its time is over, whatever trickles in."""
    with (
        limited(tmp_path, request_timeout_s=0.5) as (_, port),
        connect(port, HEAD + b"Content-Length: 1000\r\n\r\npart") as slow,
    ):
        assert is_cut(slow)


@pytest.mark.parametrize("name", ConnectionsConfig.__struct_fields__)
def test_limits_are_positive(name: str) -> None:
    """No cap and no deadline is 0."""
    with pytest.raises(ValueError, match=name):
        ConnectionsConfig(**{name: 0})


def test_a_refused_request_is_answered_with_the_cap(tmp_path: Path) -> None:
    """503, when to come back, and the name of the setting; the page of health and the counter show it."""
    with limited(tmp_path, max_connections_per_peer=2) as (service, port):
        held = [connect(port, b"") for _ in range(2)]
        assert eventually(lambda: service.context.limiters["otlp_http"].size == 2)
        url = f"{service.endpoints.otlp_http}/v1/logs"
        refused = http(url, b"x" * 100_000, "POST", Content_Type="application/x-protobuf")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
        assert b"2 connections are open from 127.0.0.1" in refused.body
        assert b"max_connections_per_peer" in refused.body
        found = json.loads(http(str(service.endpoints.health)).body)
        assert "max_connections_per_peer" in str(found["components"]["collector"])
        assert http(f"{service.endpoints.health}/ready").status == 200
        for connection in held:
            connection.close()


class Open:
    """As much of a transport as a limiter uses."""

    def __init__(self) -> None:
        self.protocol: asyncio.Protocol | None = None

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """The answer to a refusal."""
        self.protocol = protocol

    def abort(self) -> None:
        """It is refused without an answer."""


def enter(limiter: ConnectionLimiter, peer: str = "a") -> bool:
    """Whether one more connection of an address is let in."""
    return limiter.enter(Open(), peer)  # type: ignore[arg-type] # as above


def test_a_connection_that_ends_makes_room_for_any_other() -> None:
    """The cap counts those that are open."""

    async def fill_up() -> list[bool]:
        limiter = ConnectionLimiter(ConnectionsConfig(max_connections=2))
        first = [enter(limiter, peer) for peer in "abc"]
        limiter.leave("a")
        return [*first, enter(limiter, "c"), enter(limiter, "a")]

    assert asyncio.run(fill_up()) == [True, True, False, True, False]


def test_a_cap_is_reported_once_until_it_is_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one line a refusal: it begins, and it ends once nothing was refused for a while."""
    monkeypatch.setattr("overwatch.collector.connections.CALM_S", 0.05)
    reports: list[str | None] = []

    async def storm() -> None:
        calm = asyncio.Event()

        def report(cap: str | None) -> None:
            reports.append(cap)
            if cap is None:
                calm.set()

        limiter = ConnectionLimiter(ConnectionsConfig(max_connections=1))
        limiter.report = report
        for _ in range(50):
            enter(limiter)
        assert limiter.turned_away == 49
        assert len(reports) == 1
        await calm.wait()
        enter(limiter)

    asyncio.run(storm())
    assert [report is None for report in reports] == [False, True, False]


@pytest.mark.parametrize(("limit", "most"), [(20_000, 4096), (1024, 448), (40, 8), (-1, 4096)])
def test_the_cap_fits_the_open_files(monkeypatch: pytest.MonkeyPatch, limit: int, most: int) -> None:
    """Where the system's limit is smaller than the setting, it is the cap, and the condition names it."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    limiter = ConnectionLimiter(ConnectionsConfig())
    assert (limiter.most, limiter.is_short_of_files) == (most, most < 4096)


BAD = {
    "no version": b"GET /secret-path\r\n\r\n",
    "no method": b"\x16\x03\x01secret-path\r\n\r\n",
    "bad header": b"GET / HTTP/1.1\r\nHost: a\r\nsecret-path\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: secret-path\r\n\r\n",
    "long line": b"GET /" + b"secret-path" * 2000 + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("listener", ["otlp_http", "view", "health_check", "telemetry", "metrics"])
@pytest.mark.parametrize("stated", BAD.values(), ids=BAD)
def test_bad_http_is_answered_without_itself_and_without_versions(
    tmp_path: Path, listener: str, stated: bytes
) -> None:
    """Each listener names neither what came nor the library that reads it."""
    with running(tmp_path) as service:
        port = int(str(service.context.urls.get(listener)).rpartition(":")[2])
        with connect(port, stated) as wrong:
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while part := wrong.recv(65536):
                    answer += part
    assert answer.split()[1] in (b"400", b"403")
    assert b"secret" not in answer
    assert not any(word in answer.lower() for word in (b"python", b"aiohttp"))


@pytest.mark.parametrize("listener", ["otlp_http", "view", "health_check", "telemetry", "metrics"])
def test_no_answer_names_a_version(tmp_path: Path, listener: str) -> None:
    """Good requests and paths that are not there are answered by `overwatch`."""
    with running(tmp_path) as service:
        place = str(service.context.urls.get(listener)).rpartition("/")[2]
        for path in ("", "/nothing"):
            assert http(f"http://{place}{path}").headers["Server"] == "overwatch"
