"""Connections by the thousand, clients that vanish, and no descriptors left: both doors live through it."""

import contextlib
import http.client
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import psutil
import pytest

from overwatch.discovery import Endpoints
from overwatch.journal import Signal
from tests.e2e.collecting import collecting, until
from tests.overwatch.collector import raw_http2 as h2
from tests.overwatch.collector.receivers.fuzz_grpc import method
from tests.overwatch.collector.receivers.test_fuzz_wire import port_of
from tests.overwatch.collector.test_connections import is_cut

LOGS = method(Signal.LOGS)
DOORS = ["otlp_http", "otlp_grpc"]


CAPS = ["receivers.otlp.protocols.http.connections.max_connections_per_peer=256"]


@pytest.fixture
def endpoints(tmp_path: Path) -> Iterator[Endpoints]:
    """A collector of its own, with a share for each peer over HTTP."""
    with collecting(tmp_path, *CAPS) as started:
        yield started


def served(endpoints: Endpoints, listener: str, source: str = "127.0.0.1") -> bool:
    """Whether a client at an address gets an answer of success."""
    port = port_of(getattr(endpoints, listener))
    with contextlib.suppress(OSError, http.client.HTTPException):
        if listener == "otlp_http":
            connection = http.client.HTTPConnection("127.0.0.1", port, 10, (source, 0))
            connection.request("POST", "/v1/logs", b"", {"Content-Type": "application/x-protobuf"})
            status = connection.getresponse().status
            connection.close()
            return status == 200
        with socket.create_connection(("127.0.0.1", port), 10, (source, 0)) as opened:
            opened.sendall(h2.whole_call(LOGS, b""))
            stated = b""
            while b"grpc-status" not in stated:
                piece = opened.recv(4096)
                if not piece:
                    return False
                stated += piece
            return b"grpc-status\x010" in stated
    return False


@pytest.mark.parametrize("listener", DOORS)
def test_ten_thousand_idle_connections_keep_no_one_out(endpoints: Endpoints, listener: str) -> None:
    """One peer fills its share, over HTTP no more; another is served meanwhile, and memory stays flat."""
    port, process = port_of(getattr(endpoints, listener)), psutil.Process(endpoints.pid)
    assert served(endpoints, listener, "127.0.0.2")
    before = process.memory_info().rss
    held = []
    try:
        for number in range(10_000):
            opened = socket.create_connection(("127.0.0.1", port), timeout=30)
            if number < 300:
                held.append(opened)
            else:
                opened.close()
        # Of those that were closed some are still to be let go.
        until(lambda: served(endpoints, listener, "127.0.0.2"), "another peer's turn", 60)
        assert served(endpoints, listener) is (listener == "otlp_grpc")
        assert process.memory_info().rss - before < 64 << 20
    finally:
        for opened in held:
            opened.close()
    until(lambda: served(endpoints, listener), "room for the peer that left")


def test_doors_live_through_having_no_descriptors(endpoints: Endpoints) -> None:
    """Where no connection can be accepted the doors wait; once there are descriptors again, they serve."""
    process = psutil.Process(endpoints.pid)
    assert all(served(endpoints, listener) for listener in DOORS)
    _, hard = resource.prlimit(endpoints.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(endpoints.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 8, hard))
    held = []
    for _ in range(40):
        for listener in DOORS:
            with contextlib.suppress(OSError):
                held.append(
                    socket.create_connection(("127.0.0.1", port_of(getattr(endpoints, listener))), 10)
                )
    assert process.is_running()
    for opened in held:
        opened.close()
    began = time.monotonic()
    for listener in DOORS:
        until(partial(served, endpoints, listener), f"{listener} to serve again")
    print(f"both doors serve {time.monotonic() - began:.2f} s after the descriptors came back")


@pytest.mark.long
def test_a_client_that_vanished_is_let_go(endpoints: Endpoints) -> None:
    """A gRPC client that answers no ping any more, as behind a dead link, is gone after half a minute."""
    with socket.create_connection(("127.0.0.1", port_of(endpoints.otlp_grpc)), timeout=60) as silent:
        silent.sendall(h2.whole_call(LOGS, b""))
        began = time.monotonic()
        while not is_cut(silent):
            pass
        assert time.monotonic() - began < 45


def test_a_body_that_stops_midway_is_let_go(tmp_path: Path) -> None:
    """The same over HTTP: what a dead link left unsaid is waited for no longer than the deadline."""
    head = (
        b"POST /v1/logs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: 100\r\n\r\npart"
    )
    with (
        collecting(tmp_path, "receivers.otlp.protocols.http.read_timeout_s=0.5") as endpoints,
        socket.create_connection(("127.0.0.1", port_of(endpoints.otlp_http)), timeout=60) as half,
    ):
        half.sendall(head)
        assert half.recv(4096).startswith(b"HTTP/1.1 408 ")
        while not is_cut(half):
            pass


def test_calls_that_are_taken_back_at_once_cost_nothing(endpoints: Endpoints) -> None:
    """Calls begun and reset, by the hundred a connection, leave no call behind and others are served."""
    attack(port_of(endpoints.otlp_grpc), resets(1200), 20)
    with grpc.insecure_channel(str(endpoints.otlp_grpc).removeprefix("http://")) as channel:
        until(lambda: is_taken(channel), "a good client", 60)
    process = psutil.Process(endpoints.pid)
    process.cpu_percent()
    until(lambda: time.sleep(1) or process.cpu_percent() < 50, "an idle processor")


def resets(count: int) -> bytes:
    """Calls of one connection that are begun and taken back."""
    opening = h2.whole_call(LOGS, b"")
    head = opening[len(h2.PREFACE) + 9 :]
    begin = head[: 9 + int.from_bytes(head[:3])]
    stated = h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"")
    for stream in range(1, 2 * count, 2):
        stated += begin[:5] + stream.to_bytes(4) + begin[9:] + h2.frame(h2.RST_STREAM, 0, stream, bytes(4))
    return stated


def continuations(count: int) -> bytes:
    """A head that does not end."""
    stated = h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"") + h2.frame(h2.HEADERS, 0, 1, b"")
    return stated + h2.frame(h2.CONTINUATION, 0, 1, bytes(1 << 10)) * count


def attack(port: int, stated: bytes, count: int) -> None:
    """So many connections one after another that send it and leave."""
    for _ in range(count):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as bad,
            contextlib.suppress(ConnectionError, TimeoutError),
        ):
            bad.sendall(stated)


MOST_GROWN = 256 << 20
"""What gRPC may keep of connections that came and went."""


@pytest.mark.parametrize("stated", [resets(1200), continuations(200)], ids=["resets", "continuations"])
def test_good_clients_are_served_after_a_flood(endpoints: Endpoints, stated: bytes) -> None:
    """One connection that was there before, and a new one; the process lives, and its memory is bounded."""
    process = psutil.Process(endpoints.pid)
    target = str(endpoints.otlp_grpc).removeprefix("http://")
    with ThreadPoolExecutor(2) as pool, grpc.insecure_channel(target) as old:
        assert old.unary_unary(LOGS)(b"", timeout=60) == b""
        before = process.memory_info().rss
        for one in [pool.submit(attack, port_of(endpoints.otlp_grpc), stated, 20) for _ in range(2)]:
            one.result(120)
        until(lambda: is_taken(old), "the client of before", 60)
        with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as new:
            assert new.unary_unary(LOGS)(b"", timeout=60) == b""
    assert process.memory_info().rss - before < MOST_GROWN


def is_taken(channel: grpc.Channel) -> bool:
    """Whether a call is answered; one beyond a cap is asked to retry."""
    try:
        return bool(channel.unary_unary(LOGS)(b"", timeout=30) == b"")
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED):
            return False
        raise


def test_a_connection_that_is_old_enough_is_asked_to_come_anew(tmp_path: Path) -> None:
    """So that long-lived clients spread over collectors behind one name; who comes anew is served."""
    with collecting(tmp_path, "receivers.otlp.protocols.grpc.max_connection_age_s=0.5") as endpoints:
        with socket.create_connection(("127.0.0.1", port_of(endpoints.otlp_grpc)), timeout=60) as old:
            old.sendall(h2.whole_call(LOGS, b""))
            stated = b""
            while piece := old.recv(4096):
                stated += piece
        # A frame of type 7, GOAWAY, on stream 0.
        assert b"\x07\x00\x00\x00\x00\x00" in stated
        assert served(endpoints, "otlp_grpc")
