"""What the processes of HTTP servers share: the loop, the address, the signals.

Rules: SIGTERM and SIGINT end a server once, a second one is the interpreter's own; an address that cannot be
used is an error that names it and the fix. Must not know what is served.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from overwatch.sdk.arguments import is_url
from overwatch_rl.web.site import Site

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class AddressError(OSError):
    """Requests cannot be served at the address that was given; the message names it and the fix."""


class Senders(logging.Filter):
    """Drop what aiohttp logs, with a traceback, of a request that is no HTTP: its sender has a 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is an error of this server."""
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fast loop, where there is one."""
    if sys.platform == "win32":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def listen(site: Site) -> None:
    """Serve at an address; raises `AddressError`."""
    try:
        await site.start()
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise AddressError(
            error.errno, f"{site.where}: {why}; choose another address with --listen"
        ) from error


def ending() -> "asyncio.Future[int]":
    """Done with its number when the first signal comes."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        for other in _ENDING:
            loop.remove_signal_handler(other)
        ended.set_result(number)

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    return ended


def status_of(number: int) -> int:
    """The exit status after a signal: that of an interrupt shows it."""
    return 128 + number if number == signal.SIGINT else 0


def url_of(runner: web.AppRunner, host: str, *, tls: bool) -> str:
    """Where a server that listens is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    where = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{where}:{runner.addresses[0][1]}"


def address(text: str) -> tuple[str, int]:
    """The host and the port of `host:port`; raises `ValueError`.

    >>> address("[::1]:8000"), address(":0")
    (('::1', 8000), ('0.0.0.0', 0))
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"listen {text!r} is not host:port; write e.g. 127.0.0.1:8000")
    return host or "0.0.0.0", int(port)


def endpoint(text: str | None) -> str | None:
    """An OTLP endpoint that was given; raises `ValueError` where it is no URL."""
    if text is not None and not is_url(text):
        raise ValueError(f"endpoint {text!r} is no URL; write e.g. http://127.0.0.1:4318")
    return text
