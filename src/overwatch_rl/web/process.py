"""What the processes of HTTP servers share: the loop, the address, the signals.

Rules: SIGTERM and SIGINT end a server once, a second one is the interpreter's own; an address that cannot be
used is an error that names it and the fix. Must not know what is served.
"""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Final

from overwatch.sdk.arguments import is_url

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class AddressError(OSError):
    """Requests cannot be served at the address that was given; the message names it and the fix."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fast loop, where there is one."""
    if sys.platform == "win32":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


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
