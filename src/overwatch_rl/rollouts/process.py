"""The rollouts server as a process: what it is made of, its clock, its signals, its end.

Rules: the line with the address is printed once requests are served; SIGTERM and SIGINT let requests that are
being answered end, write what was accepted, and end; a second signal is the interpreter's own. Must not know
what is served.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger

from overwatch.platform import raise_file_limit, return_memory_soon
from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.handlers import ROUTES, Handlers
from overwatch_rl.rollouts.openapi import document
from overwatch_rl.rollouts.server import Server
from overwatch_rl.rollouts.service import Service
from overwatch_rl.rollouts.settings import RolloutsSettings
from overwatch_rl.rollouts.site import Site
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import Store
from overwatch_rl.rollouts.telemetry import Silent, Tower, start_run

SWEEP_S: Final = 1.0
"""Between two looks at what time has ended."""
_CLOSE_S: Final = 5.0
"""So long requests that are being answered may take at the end."""
_OTHER_FILES: Final = 256
"""Descriptors that are not for connections."""
_YOUNG: Final = (50_000, 20, 50)
"""Thresholds of the garbage collector: a request makes many objects, none of them in a cycle."""
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger("overwatch_rl.rollouts")


class _Senders(logging.Filter):
    """Drop what aiohttp logs, with a traceback, of a request that is no HTTP: its sender has a 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is an error of this server."""
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class AddressError(OSError):
    """Requests cannot be served at the address that was given; the message names it and the fix."""


def run(settings: RolloutsSettings, say: Callable[[str], None]) -> int:
    """Serve until a signal; 0, or 130 where that was SIGINT. Raises `OSError` where it cannot begin.

    `say` is given lines for a person, the address first.
    """
    return_memory_soon()
    raise_file_limit(settings.connections.most + _OTHER_FILES)
    tower = None if settings.tower is None else start_run(settings.tower.run_id, settings.tower.endpoint)
    try:
        state = State(limits=settings.limits)
        store = Store(settings.folder, state, settings.store)
        try:
            service = Service(state, store, Silent() if tower is None else Tower(tower))
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                status = runner.run(_serve(settings, service, say))
        finally:
            store.close()
    except BaseException as error:
        if tower is not None:
            tower.close(outcome="failed", reason=str(error))
        raise
    if tower is not None:
        tower.close(outcome="completed")
    return status


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(settings: RolloutsSettings, service: Service, say: Callable[[str], None]) -> int:
    await service.do(queue.restarted)
    gc.freeze()
    gc.set_threshold(*_YOUNG)
    server_logger.addFilter(_Senders())
    handlers = Handlers(service, lambda: document(ROUTES))
    limits = settings.connections
    server = Server(handlers, settings.authorisation, settings.most_body_bytes, limits.read_s)
    runner = web.AppRunner(
        server.app(), auto_decompress=False, access_log=None, shutdown_timeout=_CLOSE_S,
        keepalive_timeout=limits.idle_s,
    )  # fmt: skip
    await runner.setup()
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    _take_signals(ended)
    sweeps = asyncio.ensure_future(_sweep(service))
    try:
        await _listen(runner, settings)
        say(_greeting(settings, service, runner.addresses[0][1]))
        number = await ended
    finally:
        sweeps.cancel()
        await runner.cleanup()
        await server.close()
    return 128 + number if number == signal.SIGINT else 0


async def _listen(runner: web.AppRunner, settings: RolloutsSettings) -> None:
    try:
        await Site(runner, settings.host, settings.port, settings.connections, settings.tls).start()
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        where = f"{settings.host}:{settings.port}"
        raise AddressError(error.errno, f"{where}: {why}; choose another address with --listen") from error


def _take_signals(ended: "asyncio.Future[int]") -> None:
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        for other in _ENDING:
            loop.remove_signal_handler(other)
        ended.set_result(number)

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)


def _greeting(settings: RolloutsSettings, service: Service, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    where = f"[{host}]" if ":" in host else host
    scheme = "http" if settings.tls is None else "https"
    kept = "in memory alone" if settings.folder is None else f"in {settings.folder}"
    return f"rollouts API at {scheme}://{where}:{port}, {len(service.state.items)} groups {kept}"


async def _sweep(service: Service) -> None:
    """End what time has ended, second by second: the border of a task that must not end."""
    while True:
        try:
            service.note(queue.sweep)
            service.telemetry.swept(service.state, service.now())
        except Exception:  # noqa: BLE001 logged, and tried again
            _log.exception("looking at what time has ended failed")
        await asyncio.sleep(SWEEP_S)
