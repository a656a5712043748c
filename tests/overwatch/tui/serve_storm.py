"""A collector's view API in a process of its own: one run, one snapshot every 100 ms, until it is ended."""

import asyncio
import sys

import msgspec
from aiohttp import web

from overwatch import codec
from tests.overwatch.tui import scenario


async def _stream(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    full = msgspec.structs.replace(scenario.storm(), timing=None)
    for tick in range(100_000):
        await socket.send_bytes(codec.encode(msgspec.structs.replace(full, feed_rate=float(tick))))
        await asyncio.sleep(0.1)
    return socket


async def _main(port: int) -> None:
    app = web.Application()
    app.router.add_get("/api/v1/stream", _stream)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
