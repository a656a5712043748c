"""Ports for servers that tests start, stop and start again.

Not one of those that the kernel gives to connections: between two lives of a server, somebody's connection
would get its port, and the next life could not listen.
"""

import contextlib
import random
import socket
from pathlib import Path

_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_USUAL = 32_768


def _first_given() -> int:
    """The lowest port that connections get; elsewhere than on Linux it is higher than this."""
    return int(_GIVEN.read_text().split()[0]) if _GIVEN.exists() else _USUAL


def free_port() -> int:
    """A port at which nothing listens."""
    end = max(_first_given(), _LOWEST + 1_000)
    while True:
        port = random.randrange(_LOWEST, end)  # noqa: S311 no secret
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
