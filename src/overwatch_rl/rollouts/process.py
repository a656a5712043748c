"""The rollouts server as a process: what it is made of, its clock, its signals, its end.

Rules: the line with the address is printed once requests are served; SIGTERM and SIGINT let requests that are
being answered end, write what was accepted, and end; a second signal is the interpreter's own. Must not know
what is served.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.log import server_logger

from overwatch.platform import raise_file_limit, return_memory_soon
from overwatch_rl.rollouts.handlers import Handlers
from overwatch_rl.rollouts.server import Server
from overwatch_rl.rollouts.service import Service, UnsafeError
from overwatch_rl.rollouts.settings import RolloutsSettings
from overwatch_rl.rollouts.store import Store
from overwatch_rl.rollouts.telemetry import Telemetry, start_run
from overwatch_rl.web.process import Senders, ending, listen, loop_factory, status_of, url_of
from overwatch_rl.web.site import Site

SWEEP_S: Final = 1.0
"""Between two looks at what time has ended."""
_CLOSE_S: Final = 5.0
"""So long requests that are being answered may take at the end."""
_OTHER_FILES: Final = 256
"""Descriptors that are not for connections."""
_YOUNG: Final = (50_000, 20, 50)
"""Thresholds of the garbage collector: a request makes many objects, none of them in a cycle."""

_log = logging.getLogger("overwatch_rl.rollouts")


def run(settings: RolloutsSettings, echo: Callable[[str], None]) -> int:
    """Serve until a signal; 0, or 130 where that was SIGINT. Raises `OSError` where it cannot begin.

    `echo` is given lines for a person, the address first.
    """
    return_memory_soon()
    raise_file_limit(settings.connections.most + _OTHER_FILES)
    tower = start_run(settings.run_id, settings.endpoint) if settings.is_reporting else None
    try:
        store = Store(settings.store, settings.limits)
        service = Service(store, Telemetry(tower))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            status = runner.run(_serve(settings, service, echo))
    except BaseException as error:
        if tower is not None:
            tower.close(outcome="failed", reason=str(error))
        raise
    if tower is not None:
        tower.close(outcome="completed")
    return status


async def _serve(settings: RolloutsSettings, service: Service, echo: Callable[[str], None]) -> int:
    await service.begin()
    gc.freeze()
    gc.set_threshold(*_YOUNG)
    server_logger.addFilter(Senders())
    handlers = Handlers(service)
    limits = settings.connections
    server = Server(handlers, settings.authorisation, settings.most_body_bytes, limits.read_s)
    runner = web.AppRunner(server.app(), shutdown_timeout=_CLOSE_S)
    await runner.setup()
    ended = ending()
    sweeps = asyncio.ensure_future(_sweep(service))
    try:
        await listen(Site(runner, settings.host, settings.port, limits, settings.tls))
        echo(_greeting(settings, service, url_of(runner, settings.host, tls=settings.tls is not None)))
        number = await ended
    finally:
        sweeps.cancel()
        await runner.cleanup()
        await server.close()
        await service.close()
    return status_of(number)


def _greeting(settings: RolloutsSettings, service: Service, url: str) -> str:
    return f"rollouts API at {url}, {len(service.state.items)} groups {settings.place}"


async def _sweep(service: Service) -> None:
    """End what time has ended, second by second: the border of a task that must not end."""
    while True:
        try:
            await service.sweep()
        except UnsafeError as error:
            _log.error("looking at what time has ended failed: %s", error)
        except Exception:  # noqa: BLE001 logged, and tried again
            _log.exception("looking at what time has ended failed")
        await asyncio.sleep(SWEEP_S)
