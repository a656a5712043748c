"""Real servers beside the flight, and a proxy that makes them fail."""

import asyncio
import contextlib
import math
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tests.ports import free_port
from tests.real.servers import need

CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
FAULTS: Final = ("error", "error after", "drop", "hang", "corrupt reply", "corrupt request", "slow")
"""What the proxy does to a request: an error without and with the request being done, a connection that ends
without a reply, none that ever comes, one flipped byte, a body in pieces."""
_START_S: Final = 60.0
_MOST: Final = 4 << 20
"""Bytes that a slow wire takes at once."""


@contextmanager
def moto(bucket: str = "bucket") -> Iterator[str]:
    """A server that speaks S3, with a bucket; yields its address, `http://127.0.0.1:PORT`."""
    port = free_port()
    words = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _answers(process, port)
        make = urllib.request.Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT")
        urllib.request.urlopen(make, timeout=_START_S).close()  # noqa: S310 http
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _answers(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.05)
        else:
            return


def s3_url(address: str, prefix: str, bucket: str = "bucket") -> str:
    """The URL of a store there, or behind a proxy there."""
    return f"s3://{bucket}/{prefix}?endpoint={address}&region=us-east-1"


_SHARED: Final[list[str]] = []
"""The address of the server of this process, while it runs."""


@pytest.fixture(scope="session")
def moto_address() -> Iterator[str]:
    """One server for all tests of a process, whatever folders they are in; use a prefix of your own."""
    if _SHARED:  # a folder that imports this has a fixture of its own; the first one ends last
        yield _SHARED[0]
        return
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        with moto() as address:
            _SHARED.append(address)
            yield address
    finally:
        _SHARED.clear()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class FaultProxy:
    """Stands before an HTTP server and fails a share of the requests, drawn by a seed; a context manager."""

    def __init__(
        self, upstream: str, *, rate: float = 0.3, seed: int = 0, kinds: Sequence[str] = FAULTS
    ) -> None:
        self.rate = rate
        """Share of requests that fail; may be changed at any time, 1.0 is a server that is gone."""
        self.kinds = tuple(kinds)
        self.met: Counter[str] = Counter()
        """Requests by fault; those without are `none`."""
        self.address = ""
        self.hang_s = 30.0
        self.slow_s = 0.02
        """Before each quarter of a slow reply, and before a slow request is passed on."""
        self._upstream = upstream
        self._draw = random.Random(seed)  # noqa: S311 a test
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_START_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    async def _start(self) -> None:
        # Azure signs the type, so a request goes on with the headers that it came with.
        self._client = aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("Content-Type",))
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"

    async def _stop(self) -> None:
        assert self._runner is not None
        assert self._client is not None
        hanging = asyncio.all_tasks() - {asyncio.current_task()}
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await self._client.close()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self._draw.choice(self.kinds) if self._draw.random() < self.rate else "none"
        body = await request.read()
        self.met[fault] += 1
        if fault == "error":
            return web.Response(status=503, text="planted")
        if fault == "hang":
            await asyncio.sleep(self.hang_s)
            return web.Response(status=504)
        if fault == "corrupt request" and body:
            body = _flipped(body, self._draw)
        if fault == "slow":
            await asyncio.sleep(self.slow_s)
        status, headers, answer = await self._forward(request, body)
        if fault == "error after":
            return web.Response(status=500, text="planted")
        if fault == "drop":
            assert request.transport is not None
            request.transport.abort()
        if fault == "corrupt reply" and answer:
            answer = _flipped(answer, self._draw)
        reply = web.StreamResponse(status=status, headers=headers)
        if request.method == "HEAD" or status in (204, 304):
            await reply.prepare(request)
            return reply
        reply.content_length = len(answer)
        await reply.prepare(request)
        piece = max(1, len(answer) // 4) if fault == "slow" else len(answer) or 1
        for at in range(0, len(answer), piece):
            await reply.write(answer[at : at + piece])
            if fault == "slow":
                await asyncio.sleep(self.slow_s)
        return reply

    async def _forward(self, request: web.Request, body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert self._client is not None
        passed = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "transfer-encoding")}
        url = URL(self._upstream + request.raw_path, encoded=True)
        async with self._client.request(request.method, url, headers=passed, data=body) as found:
            kept = {
                k: v
                for k, v in found.headers.items()
                if k.lower() not in ("transfer-encoding", "connection", "server", "date")
            }
            return found.status, kept, await found.read()


def _flipped(body: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(body))
    return body[:at] + bytes([body[at] ^ (1 << draw.randrange(8))]) + body[at + 1 :]


class SlowWire:
    """Stands before any TCP server; what the server sends comes late, piece by piece. A context manager."""

    def __init__(self, port: int, late_s: float, *, every: int = 1) -> None:
        """Of `every` so many pieces one is late; with an infinite `late_s` the connection ends instead."""
        self.address = ""
        """`127.0.0.1:PORT`."""
        self.met = 0
        """Pieces that were late, or did not come."""
        self._upstream, self._late_s, self._every, self._pieces = port, late_s, every, 0
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow-wire", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_START_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._upstream, limit=_MOST)
        # The stream that called this reads the exception of a task that was cancelled, and so raises it.
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as both:
                both.create_task(_pumped(reader, ours, lambda: 0.0))
                both.create_task(_pumped(theirs, writer, self._next_late_s))

    def _next_late_s(self) -> float:
        self._pieces += 1
        if self._pieces % self._every:
            return 0.0
        self.met += 1
        return self._late_s


async def _pumped(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, late_s: Callable[[], float]
) -> None:
    try:
        while piece := await source.read(_MOST):
            if math.isinf(wait_s := late_s()):
                break
            await asyncio.sleep(wait_s)
            sink.write(piece)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()
        with suppress(OSError):
            await sink.wait_closed()


class RedisServer:
    """A Redis with data in memory alone, that can be killed and started again at its address."""

    def __init__(self, *words: str) -> None:
        """`words` are further options; `{port}` in one of them is the server's."""
        self._port = free_port()
        self._words = [
            need("redis-server"),
            "--port",
            str(self._port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            *(word.format(port=self._port) for word in words),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Return when it listens."""
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._words, stdin=quiet, stdout=quiet, stderr=quiet)
        _answers(self._process, self._port)

    def kill(self) -> None:
        """At once, with all it holds."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_START_S)
            self._process = None


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A server that runs."""
    server = RedisServer()
    server.start()
    yield server
    server.kill()


SYNCED: Final = ("--appendonly", "yes", "--appendfsync", "always")
"""Words of a Redis that keeps what it answered."""


@contextmanager
def synced_redis(folder: Path, *words: str) -> Iterator[RedisServer]:
    """A Redis whose data lies in a folder, and survives its death."""
    folder.mkdir(exist_ok=True)
    server = RedisServer("--dir", str(folder), *SYNCED, *words)
    server.start()
    try:
        yield server
    finally:
        server.kill()
