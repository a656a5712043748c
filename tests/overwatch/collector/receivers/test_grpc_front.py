"""The gRPC door's port: caps and deadlines as the HTTP door has, and what gRPC itself does not withstand."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from overwatch.collector import Service
from overwatch.collector.crowd import CrowdConfig
from overwatch.collector.receivers.http2 import MAX_IDLE_FRAMES
from overwatch.collector.receivers.otlp_grpc_front import Front, _Client
from overwatch.journal import Signal
from tests.overwatch.collector import raw_http2 as h2
from tests.overwatch.collector.receivers.fuzz_grpc import method
from tests.overwatch.collector.running import eventually, running
from tests.overwatch.collector.test_crowd import is_cut

LOGS = method(Signal.LOGS)


@contextlib.contextmanager
def crowded(folder: Path, **keys: float) -> Iterator[tuple[Service, int]]:
    """A collector whose gRPC door has these limits of connections, and its port."""
    sets = [f"receivers.otlp.protocols.grpc.connections.{key}={value}" for key, value in keys.items()]
    with running(folder, *sets) as service:
        yield service, int(str(service.endpoints.otlp_grpc).rpartition(":")[2])


def connect(port: int, said: bytes) -> socket.socket:
    """A client that says something, and then nothing."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=10)
    opened.sendall(said)
    return opened


def good(port: int) -> bool:
    """Whether a client that behaves is served."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        try:
            return channel.unary_unary(LOGS)(b"", timeout=5) == b""
        except grpc.RpcError:
            return False


def test_one_peer_has_its_share_of_connections(tmp_path: Path) -> None:
    """Beyond the cap a connection is closed at once; one that ends makes room."""
    with crowded(tmp_path, max_connections_per_peer=3) as (_, port):
        held = [connect(port, h2.PREFACE) for _ in range(3)]
        with connect(port, b"") as late:
            assert is_cut(late)
        for connection in held:
            connection.close()
        assert eventually(lambda: good(port))


@pytest.mark.parametrize("said", [b"", b"P", h2.PREFACE, h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"")])
def test_connections_that_never_ask_are_cut(tmp_path: Path, said: bytes) -> None:
    """A connection without a whole head of a call ends at the deadline; others are served meanwhile."""
    with crowded(tmp_path, read_header_timeout_s=0.5) as (_, port):
        slow = [connect(port, said) for _ in range(50)]
        assert good(port)
        for connection in slow:
            with connection:
                while not is_cut(connection):
                    pass


def test_a_client_that_asked_may_stay(tmp_path: Path) -> None:
    """The deadline is for the first call: a kept connection is as good after it as before."""
    with (
        crowded(tmp_path, read_header_timeout_s=0.3) as (_, port),
        connect(port, h2.PREFACE) as silent,
        connect(port, h2.whole_call(LOGS, b"")) as kept,
    ):
        heard = read_until(kept, b"grpc-status")
        while not is_cut(silent):
            pass
        kept.sendall(h2.frame(h2.PING, 0, 0, b"are you?"))
        assert b"are you?" in read_until(kept, b"are you?")
    assert b"grpc-status" in heard


def read_until(connection: socket.socket, word: bytes) -> bytes:
    """What comes up to a word, or up to the end."""
    said = b""
    while word not in said:
        piece = connection.recv(4096)
        if not piece:
            break
        said += piece
    return said


def test_a_path_that_is_no_text_harms_no_one(tmp_path: Path) -> None:
    """Its connection ends; another client's call in flight goes on, and new ones are served."""
    torn = h2.whole_call(LOGS, b"").replace(b"LogsService", b"Logs\xf4ervice")
    with crowded(tmp_path) as (_, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(LOGS)
        assert call(b"", timeout=5) == b""
        for _ in range(3):
            with connect(port, torn) as bad:
                while not is_cut(bad):
                    pass
            assert call(b"", timeout=5) == b""
        assert good(port)


def test_a_head_that_is_cut_short_harms_no_one(tmp_path: Path) -> None:
    """A client that leaves in the middle of a head whose path is no text: none of it is passed on."""
    call, at = h2.whole_call(LOGS, b"").replace(b"LogsService", b"Logs\xf4ervice"), len(h2.PREFACE) + 9
    cut = call[:at] + (int.from_bytes(call[at : at + 3]) + 600).to_bytes(3) + call[at + 3 :]
    with crowded(tmp_path) as (service, port):
        for _ in range(5):
            with connect(port, cut):
                assert good(port)
            assert good(port)
        refused = "overwatch_receiver_refused_requests"
        assert service.context.tally.get(refused, reason="fault", transport="grpc") == 0


FLOODS = {
    "resets": h2.frame(h2.RST_STREAM, 0, 1, struct.pack(">I", 8)),
    "pings": h2.frame(h2.PING, 0, 0, bytes(8)),
    "settings": h2.frame(h2.SETTINGS, 0, 0, b""),
    "continuations": h2.frame(h2.CONTINUATION, 0, 1, bytes(1 << 13)),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_floods_of_frames_are_cut(tmp_path: Path, kind: str) -> None:
    """Frames that cost the client nothing end its connection, memory stays flat, and others are served."""
    begun = h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"")
    if kind == "continuations":
        begun += h2.frame(h2.HEADERS, 0, 1, b"")
    with crowded(tmp_path) as (_, port):
        assert good(port)
        before = psutil.Process(os.getpid()).memory_info().rss
        for _ in range(20):
            with connect(port, begun) as bad:
                with contextlib.suppress(ConnectionError):
                    for _ in range(20):
                        bad.sendall(FLOODS[kind] * (MAX_IDLE_FRAMES // 10))
                while not is_cut(bad):
                    pass
        assert psutil.Process(os.getpid()).memory_info().rss - before < 32 << 20
        assert good(port)


def behind(service: Service, runtime: Path) -> socket.socket:
    """A connection past the port, to the server behind it."""
    (folder,) = runtime.glob(f"overwatch-grpc-{service.endpoints.pid}-*")
    fd = os.open(folder, os.O_PATH)
    opened = socket.socket(socket.AF_UNIX)
    opened.settimeout(10)
    opened.connect(f"/proc/self/fd/{fd}/grpc.sock")
    os.close(fd)
    return opened


def test_a_server_that_ended_by_itself_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Should anything end gRPC's server all the same, another one serves, and it is counted and logged."""
    torn = h2.whole_call(LOGS, b"").replace(b"LogsService", b"Logs\xf4ervice")
    with crowded(tmp_path) as (service, port):
        assert good(port)
        with behind(service, tmp_path / "runtime") as bad:
            bad.sendall(torn)
            tally, labels = service.context.tally, {"reason": "fault", "transport": "grpc"}
            eventually(lambda: good(port) and tally.get("overwatch_receiver_refused_requests", **labels))
            assert good(port)
        assert tally.get("overwatch_receiver_refused_requests", **labels) == 1
    assert "another one takes its place" in caplog.text


def test_nothing_is_left_of_a_port(tmp_path: Path) -> None:
    """The socket's folder goes with the collector; what a killed one left goes with the next."""
    runtime = tmp_path / "runtime"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left, odd = (runtime / f"overwatch-grpc-{pid}-x" for pid in (gone.pid, 1 << 70))
    for folder in (left, odd):
        folder.mkdir(parents=True)
    with crowded(tmp_path) as (service, port):
        assert good(port)
        (own,) = runtime.glob(f"overwatch-grpc-{service.endpoints.pid}-*")
        assert (left.exists(), own.stat().st_mode & 0o077) == (False, 0)
    assert list(runtime.glob("overwatch-grpc-*")) == [odd]


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (FileNotFoundError(errno.ENOENT, "gone"), True),
        (OSError(errno.EMFILE, "too many open files"), False),
    ],
)
def test_only_a_server_that_is_not_there_is_replaced(error: OSError, *, ended: bool) -> None:
    """Where this process has no descriptors left another server would have none either."""

    class Cut(asyncio.Transport):
        """A client's connection."""

        def __init__(self) -> None:
            super().__init__()
            self.aborted = asyncio.Event()

        def abort(self) -> None:
            """Cut."""
            self.aborted.set()

    async def connect() -> bool:
        front = Front(CrowdConfig(), None)

        async def inside(_: object) -> None:
            raise error

        front.inside = inside  # type: ignore[method-assign]  # what the kernel says
        transport = Cut()
        _Client(front).connection_made(transport)
        await transport.aborted.wait()
        return front.refused.is_set()

    assert asyncio.run(connect()) is ended


def test_a_refused_call_is_answered_with_the_cap(tmp_path: Path) -> None:
    """UNAVAILABLE with the reason, which senders retry, and no reset."""
    with crowded(tmp_path, max_connections_per_peer=1) as (service, port):
        held = connect(port, h2.PREFACE)
        assert eventually(lambda: service.context.crowds["otlp_grpc"].size == 1)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(LOGS)(b"x" * 100_000, timeout=10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "1 connections are open from 127.0.0.1" in refused.value.details()
            assert "max_connections_per_peer" in refused.value.details()
        held.close()


def test_connections_of_an_address_share_a_count_of_floods() -> None:
    """While it has any; another address has its own."""
    front = Front(CrowdConfig(), None)
    first = front.idle_frames("192.0.2.1")
    assert front.idle_frames("192.0.2.1") is first
    assert front.idle_frames("192.0.2.2") is not first
