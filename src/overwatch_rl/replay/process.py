"""The replay server as a process: what it is made of, its clock, its signals, its end.

Rules: the line with the address is printed once calls are answered; SIGTERM and SIGINT end calls that wait,
let others be answered, and end; a second signal is the interpreter's own. Must not know what is served.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Final

from grpc import aio

from overwatch.platform import keep_large_blocks
from overwatch_rl.replay.calls import Calls
from overwatch_rl.replay.protocol import options
from overwatch_rl.replay.server import Server
from overwatch_rl.replay.service import Replay
from overwatch_rl.replay.settings import ReplaySettings
from overwatch_rl.replay.telemetry import Tower, start_run
from overwatch_rl.web.process import AddressError, ending, loop_factory, status_of

SWEEP_S: Final = 1.0
"""Between two looks at what time has ended."""
_CLOSE_S: Final = 5.0
"""So long calls that are being answered may take at the end."""
_KEEPALIVE: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
"""A client that vanished is noticed in 40 s; one address has one server."""

_log = logging.getLogger("overwatch_rl.replay")


def run(settings: ReplaySettings, replay: Replay, echo: Callable[[str], None]) -> int:
    """Serve until a signal; 0, or 130 where that was SIGINT. Raises `OSError` where it cannot begin.

    `echo` is given lines for a person, the address first.
    """
    keep_large_blocks()
    of = settings.tower
    reported = None if of is None else start_run(of.run_id, of.endpoint, of.rank)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            status = runner.run(_serve(settings, replay, Tower(reported), echo))
    except BaseException as error:
        if reported is not None:
            reported.close(outcome="failed", reason=str(error))
        raise
    if reported is not None:
        reported.close(outcome="completed")
    return status


async def _serve(
    settings: ReplaySettings,
    replay: Replay,
    telemetry: Tower,
    echo: Callable[[str], None],
) -> int:
    gc.freeze()
    server = Server(Calls(replay, settings.most_wait_s), settings.authorisation, telemetry)
    rpc = aio.server(
        handlers=server.handlers(),
        options=[*options(settings.most_message_bytes), *_KEEPALIVE],
        maximum_concurrent_rpcs=settings.most_requests,
    )
    port = _listen(rpc, settings)
    ended = ending()
    sweeps = asyncio.ensure_future(_sweep(replay, telemetry))
    try:
        await rpc.start()
        echo(_greeting(settings, port))
        number = await ended
        server.drain()
    finally:
        sweeps.cancel()
        await rpc.stop(_CLOSE_S)
    look(replay, telemetry)
    return status_of(number)


def _listen(rpc: aio.Server, settings: ReplaySettings) -> int:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    where = f"{host}:{settings.port}"
    try:
        if settings.credentials is None:
            port: int = rpc.add_insecure_port(where)
        else:
            port = rpc.add_secure_port(where, settings.credentials)
    except RuntimeError as error:
        raise AddressError(f"{where}: cannot be bound; choose another address with --listen") from error
    return port


def _greeting(settings: ReplaySettings, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    scheme = "grpc" if settings.credentials is None else "grpcs"
    tables = ", ".join(f"{table.name} ({table.kind})" for table in settings.tables)
    return f"replay server at {scheme}://{where}, in memory: {tables}"


def look(replay: Replay, telemetry: Tower) -> None:
    """End what time has ended, and report."""
    replay.expire()
    telemetry.swept(replay.stats(), {name: held.refused for name, held in replay.tables.items()})


async def _sweep(replay: Replay, telemetry: Tower) -> None:
    """Look second by second: the border of a task that must not end."""
    while True:
        try:
            look(replay, telemetry)
        except Exception:  # noqa: BLE001 logged, and tried again
            _log.exception("looking at what time has ended failed")
        await asyncio.sleep(SWEEP_S)
