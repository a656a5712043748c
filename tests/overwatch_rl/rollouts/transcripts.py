"""What clients of the wire sent and were answered, request by request; a proxy that writes it down."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web


class Exchange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request, and what it was answered."""

    method: str
    path: str
    body: Any = None
    """Decoded; `None` where there was none."""
    is_packed: bool = False
    status: int = 200
    reply: Any = None


def read(path: Path) -> list[Exchange]:
    """A transcript in JSON lines."""
    return [msgspec.json.decode(line, type=Exchange) for line in path.read_bytes().splitlines()]


def write(path: Path, exchanges: list[Exchange]) -> None:
    """Keep a transcript, without requests that repeat the one before with the same answer."""
    kept = [one for number, one in enumerate(exchanges) if not number or one != exchanges[number - 1]]
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in kept))


async def sent(client: aiohttp.ClientSession, exchange: Exchange) -> Exchange:
    """Send a request again; the exchange with this server's answer."""
    body = None if exchange.body is None else msgspec.json.encode(exchange.body)
    headers = {"Content-Type": "application/json"}
    if exchange.is_packed and body is not None:
        body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
    async with client.request(exchange.method, exchange.path, data=body, headers=headers) as reply:
        answer = msgspec.json.decode(await reply.read())
        return msgspec.structs.replace(exchange, status=reply.status, reply=answer)


@contextlib.asynccontextmanager
async def recorded(url: str, exchanges: list[Exchange]) -> AsyncIterator[str]:
    """The address of a proxy of `url` that passes one request at a time and writes all down."""
    one = asyncio.Lock()

    async def serve(request: web.Request) -> web.Response:
        data = await request.read()
        is_packed = request.headers.get("Content-Encoding") == "gzip"
        body = msgspec.json.decode(gzip.decompress(data) if is_packed else data) if data else None
        exchange = Exchange(method=request.method, path=request.path_qs, body=body, is_packed=is_packed)
        async with one:
            exchange = await sent(client, exchange)
            exchanges.append(exchange)
        return web.json_response(exchange.reply, status=exchange.status)

    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, auto_decompress=False, access_log=None)
    await runner.setup()
    async with aiohttp.ClientSession(url) as client:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()
