"""What a learner serves, by a thread."""

import asyncio
import threading
from typing import Self

from aiohttp import web

from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.weights.channels import StoreChannel
from overwatch_rl.weights.served import weights_routes


class _Thread:
    """A context manager; may be stopped and started again at its port."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weights-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def start(self) -> None:
        """Return when it listens."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(20)

    def stop(self) -> None:
        """End it and its connections."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(20)

    async def _start(self) -> None:
        raise NotImplementedError

    async def _stop(self) -> None:
        raise NotImplementedError


class Server(_Thread):
    """Its routes."""

    def __init__(self, source: StoreChannel, port: int, token: str | None = None) -> None:
        super().__init__()
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._source = source
        self._authorisation = Authorisation("127.0.0.1", token)
        self._runner: web.AppRunner | None = None

    async def _start(self) -> None:
        application = web.Application()
        application.add_routes(weights_routes(self._source, self._authorisation))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
