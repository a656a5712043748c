"""Connections that take their time: they are cut, and meanwhile no one waits for them."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.collector import Service
from overwatch.collector.crowd import CrowdConfig
from tests.overwatch.collector.running import eventually, http, running

HEAD = b"POST /v1/logs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"


@contextlib.contextmanager
def crowded(folder: Path, **keys: float) -> Iterator[tuple[Service, int]]:
    """A collector whose OTLP/HTTP door has these limits of connections, and its port."""
    sets = [f"receivers.otlp.protocols.http.connections.{key}={value}" for key, value in keys.items()]
    with running(folder, *sets) as service:
        yield service, int(str(service.endpoints.otlp_http).rpartition(":")[2])


def connect(port: int, said: bytes) -> socket.socket:
    """A client that says something, and then nothing."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=10)
    opened.sendall(said)
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
    "said", [b"", b"P", HEAD, HEAD + b"X-A: b\r\n"], ids=["nothing", "a-byte", "half", "more"]
)
def test_headers_that_do_not_come_are_cut(tmp_path: Path, said: bytes) -> None:
    """A connection without a whole head of a request ends at the deadline; others are served meanwhile."""
    with crowded(tmp_path, read_header_timeout_s=0.5) as (service, port):
        slow = [connect(port, said) for _ in range(50)]
        assert good(service)
        assert all(is_cut(connection) for connection in slow)
        for connection in slow:
            connection.close()


def test_a_second_request_has_the_same_deadline(tmp_path: Path) -> None:
    """On a connection that was answered, the next head must come in time too; none need come at all."""
    whole = HEAD + b"Content-Length: 0\r\n\r\n"
    with crowded(tmp_path, read_header_timeout_s=0.5) as (_, port), connect(port, whole) as slow:
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")
        slow.sendall(HEAD)
        assert is_cut(slow)


def test_one_peer_has_its_share_of_connections(tmp_path: Path) -> None:
    """Beyond the cap a connection is closed at once; one that ends makes room."""
    with crowded(tmp_path, max_connections_per_peer=3) as (service, port):
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
        crowded(tmp_path, request_timeout_s=0.5) as (_, port),
        connect(port, HEAD + b"Content-Length: 1000\r\n\r\npart") as slow,
    ):
        assert is_cut(slow)


@pytest.mark.parametrize("name", CrowdConfig.__struct_fields__)
def test_limits_are_positive(name: str) -> None:
    """No cap and no deadline is 0."""
    with pytest.raises(ValueError, match=name):
        CrowdConfig(**{name: 0})  # type: ignore[arg-type] # the keys of a test
