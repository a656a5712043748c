"""Where the server listens: its cap of connections, its patience, its certificate; over real sockets."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from overwatch_rl.rollouts.calls import CallError, Calls, Target
from overwatch_rl.web.site import ConnectionLimits, tls_context
from tests.overwatch.collector import pki
from tests.overwatch_rl.rollouts.serving import Served, group, served
from tests.overwatch_rl.rollouts.threaded import PATIENCE_S, in_thread

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
HEAD = b"POST /scored_data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and a server's certificate and key."""
    if pki.OPENSSL is None:
        pytest.skip("certificates are made by openssl")
    folder = tmp_path_factory.mktemp("tls")
    pki.authority(folder, "ca")
    pki.signed(folder, "server")
    return folder


async def line_to(server: Served, begin: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain connection that has sent something."""
    host, port = server.url.partition("://")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(begin)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize(
    ("head", "stated"),
    [
        (
            b"GET /status HTTP/1.1\r\nAuthorization: Bearer " + b"secret" * 3_000,
            b"a header has more than 16384 bytes",
        ),
        (b"GET /" + b"secret" * 3_000 + b" HTTP/1.1", b"the address or a header has more than 16384 bytes"),
        (b"GET /status HTTP/1.1\r\nBad secret: x", b"is no HTTP that can be read; send HTTP/1.1"),
        (b"secret", b"is no HTTP that can be read; send HTTP/1.1"),
    ],
)
def test_a_head_that_cannot_be_read_is_answered_with_the_fix_and_no_secret(
    head: bytes, stated: bytes
) -> None:
    """As JSON, as every other answer is."""

    async def check(server: Served) -> None:
        await server.start()
        reader, writer = await line_to(server, head + (b"\r\n\r\n" if len(head) < 1000 else b""))
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"Content-Type: application/json" in answer
        assert stated in answer.partition(b'{"error": "')[2]
        assert b"secret" not in answer

    served(check)


@LOOPS
def test_a_body_that_trickles_is_not_waited_for(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It is answered with what to do; others go on, and nothing of it is queued."""

    async def check(server: Served) -> None:
        await server.start()
        reader, writer = await line_to(server, HEAD + b"\r\n{")
        answer = await reader.readuntil(b"}")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"within 0.2 s; send less in a request, or raise --read-s" in answer
        writer.close()
        await server.post("/scored_data", group())
        assert (await server.get("/status"))["queue_size"] == 1

    served(check, loop, connections=ConnectionLimits(read_s=0.2))


@LOOPS
@pytest.mark.parametrize("begin", [b"", HEAD])
def test_a_head_that_does_not_end_is_not_waited_for(
    loop: Callable[[], asyncio.AbstractEventLoop], begin: bytes
) -> None:
    """Whether it began or not, the connection is closed."""

    async def check(server: Served) -> None:
        reader, writer = await line_to(server, begin)
        assert await reader.read() == b""
        writer.close()

    served(check, loop, connections=ConnectionLimits(idle_s=0.2))


@LOOPS
def test_a_connection_beyond_the_cap_is_refused(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The answer states when to retry; those that are open go on, and one that ends makes room."""

    async def check(server: Served) -> None:
        await server.start()
        _, idle = await line_to(server, HEAD)
        reader, writer = await line_to(server, HEAD + b"\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2\r\n" in answer
        assert b"2 connections are open: raise --max-connections, or close some" in answer
        writer.close()
        await server.post("/scored_data", group())
        idle.close()
        await idle.wait_closed()
        while b"200 OK" not in answer:
            reader, writer = await line_to(server, PROBE)
            answer = await reader.read()
            writer.close()

    served(check, loop, connections=ConnectionLimits(most=2))


def test_our_client_calls_again_where_an_idle_connection_was_closed() -> None:
    """Nothing is reported: a handler that generates for long is silent for long."""
    retries: list[str] = []
    limits = ConnectionLimits(idle_s=0.2)
    with in_thread(connections=limits) as server:
        target = Target(
            url=server.url, patience_s=PATIENCE_S, retrying=lambda why, _wait_s: retries.append(why)
        )
        with contextlib.closing(Calls(target)) as calls:
            calls.get("/status")
            assert calls._line is not None
            calls._line.sock.recv(1, socket.MSG_PEEK)  # returns once the server has closed it
            assert calls.get("/status")["queue_size"] == 0
    assert retries == []


def test_our_client_checks_the_certificate(certificates: Path) -> None:
    """With the authority it calls over TLS; without it states what is missing, at once."""
    with in_thread(tls=certificates) as server:
        target = Target(url=server.url, ca=certificates / "ca.pem")
        with contextlib.closing(Calls(target)) as calls:
            assert calls.get("/status")["queue_size"] == 0
        with (
            contextlib.closing(Calls(Target(url=server.url))) as calls,
            pytest.raises(CallError, match="name the authority of the server's certificate as ca"),
        ):
            calls.get("/status")


def test_a_certificate_needs_its_key(certificates: Path) -> None:
    """One file alone, or files of two pairs, are refused by name."""
    cert, other = certificates / "server.pem", certificates / "ca.key"

    with pytest.raises(ValueError, match="use both --tls-cert and --tls-key"):
        tls_context(cert, None)
    with pytest.raises(ValueError, match=r"server\.pem, .*ca\.key: .*; use PEM files that belong together"):
        tls_context(cert, other)


@LOOPS
@pytest.mark.parametrize("reads", [1_000, None])
def test_under_tls_a_batch_has_arrived_once_it_was_read(
    loop: Callable[[], asyncio.AbstractEventLoop], certificates: Path, reads: int | None
) -> None:
    """A trainer that cannot acknowledge: what broke comes again, what was read whole does not."""

    async def check(server: Served) -> None:
        await server.start(batch_size=24)
        for _ in range(12):
            await server.post("/scored_data", group(images="x" * 900_000))
        trusted = ssl.create_default_context(cafile=certificates / "ca.pem")
        await asyncio.to_thread(_take, server.url, trusted, reads)
        again = await server.get("/batch")
        redelivered = [item["redelivered"] for item in again.get("items", ())]
        assert redelivered == ([] if reads is None else [True] * 12)

    served(check, loop, tls=certificates)


def _take(url: str, trusted: ssl.SSLContext, reads: int | None) -> None:
    """Ask for a batch and read so many bytes of it, or all; then the connection breaks."""
    host, port = url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port))) as plain:
        if reads is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line: Any = trusted.wrap_socket(plain, server_hostname=host)
        line.sendall(b"GET /batch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with line, line.makefile("rb") as reply:
            if reads is not None:
                reply.read(reads)
                return
            heads = iter(reply.readline, b"\r\n")
            size = next(int(head.split()[1]) for head in heads if head.lower().startswith(b"content-length"))
            for _ in heads:
                pass
            assert len(reply.read(size)) == size
