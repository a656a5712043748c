"""The orchestrator as a process: what it is made of, its clocks, its signals, its end.

Rules: the line with the address is printed once requests are served; SIGTERM and SIGINT let requests that are
being answered end. What was answered is stored, so there is nothing to save. Must not know what is served.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from aiohttp import web
from aiohttp.log import server_logger

from overwatch.platform import raise_file_limit
from overwatch_rl.orchestrator.api import ROUTES, Api
from overwatch_rl.orchestrator.server import Server
from overwatch_rl.orchestrator.service import Clocks, Service
from overwatch_rl.orchestrator.settings import OrchestratorSettings
from overwatch_rl.orchestrator.store import Store
from overwatch_rl.orchestrator.telemetry import Silent, Tower, start_run
from overwatch_rl.web.openapi import document
from overwatch_rl.web.process import Senders, ending, listen, loop_factory, status_of, url_of
from overwatch_rl.web.site import Site

SWEEP_S: Final = 1.0
"""Between two looks at who is silent."""
_CLOSE_S: Final = 5.0
"""So long requests that are being answered may take at the end."""
_OTHER_FILES: Final = 256
"""Descriptors that are not for connections."""
CLOCKS: Final = Clocks(monotonic=time.monotonic, wall=lambda: datetime.now(UTC))

_log = logging.getLogger("overwatch_rl.orchestrator")


def run(settings: OrchestratorSettings, echo: Callable[[str], None]) -> int:
    """Serve until a signal; 0, or 130 where that was SIGINT.

    `echo` is given lines for a person, the address first. Raises `OSError`, `ValueError` or `SQLAlchemyError`
    where it cannot begin.
    """
    raise_file_limit(settings.connections.most + _OTHER_FILES)
    store = Store(settings.store)
    try:
        tower = start_run(settings.run_id, settings.endpoint) if settings.is_reporting else None
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                status = runner.run(
                    _serve(settings, store, Silent() if tower is None else Tower(tower), echo)
                )
        except BaseException as error:
            if tower is not None:
                tower.close(outcome="failed", reason=str(error))
            raise
        if tower is not None:
            tower.close(outcome="completed")
    finally:
        store.close()
    return status


async def _serve(
    settings: OrchestratorSettings, store: Store, telemetry: Silent | Tower, echo: Callable[[str], None]
) -> int:
    service = Service(store, telemetry, CLOCKS, settings.pace)
    server_logger.addFilter(Senders())
    limits = settings.connections
    api = Api(service, lambda: document("Overwatch orchestrator API", ROUTES))
    server = Server(api, settings.authorisation, telemetry, limits.read_s)
    runner = web.AppRunner(server.app(), shutdown_timeout=_CLOSE_S)
    await runner.setup()
    ended = ending()
    sweeps = asyncio.ensure_future(_sweep(service))
    try:
        await listen(Site(runner, settings.host, settings.port, limits, settings.tls))
        url = url_of(runner, settings.host, tls=settings.tls is not None)
        echo(f"orchestrator API at {url}/api/v1, runs kept in {store.name}")
        number = await ended
    finally:
        sweeps.cancel()
        await service.end()
        await runner.cleanup()
        service.close()
    return status_of(number)


async def _sweep(service: Service) -> None:
    """Look second by second who is silent: the border of a task that must not end."""
    while True:
        try:
            await service.sweep()
        except Exception:  # noqa: BLE001 logged, and tried again
            _log.exception("looking at who is silent failed")
        await asyncio.sleep(SWEEP_S)
