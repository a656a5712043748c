"""Addresses: how they are read and who can reach them, a free port, and who holds a busy one.

Must not know what is served at an address.
"""

import contextlib
import errno
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

import psutil

PORTS_TRIED: Final = 64
"""How many ports after a busy one are tried."""


class AddressError(ValueError):
    """An address that cannot be read or used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host and a port, as `host:port` or `[v6]:port` in the configuration."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def url(self, scheme: str) -> str:
        """As a URL that a client on this machine can use."""
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
        return f"{scheme}://{Address(host=anywhere.get(self.host, self.host), port=self.port)}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse(text: str) -> Address:
    """Read `host:port`; raises `AddressError`.

    >>> str(parse("[::1]:4318")), parse("127.0.0.1:0").loopback
    ('[::1]:4318', True)
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{text!r}: write an IPv6 address in brackets, e.g. [::1]:4318")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise AddressError(f"{text!r} is not host:port; write e.g. 127.0.0.1:4318")
    return Address(host=host or "0.0.0.0", port=int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A listening socket and where it came to be."""

    sock: socket.socket
    address: Address
    moved: str | None
    """Why it is not the wanted port, for a person; `None` where it is."""


def listen(wanted: Address, *, may_move: bool = True) -> Listening:
    """Listen at an address or, where its port is busy and it `may_move`, at the next free one.

    Raises `AddressError`.
    """
    last = min(65535, wanted.port + PORTS_TRIED) if wanted.port and may_move else wanted.port
    for port in range(wanted.port, last + 1):
        try:
            sock = _bind(wanted.host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise AddressError(f"cannot listen at {wanted}: {error.strerror or error}") from error
        bound = Address(host=wanted.host, port=sock.getsockname()[1])
        moved = None
        if port != wanted.port:
            moved = f"port {wanted.port} is held by {holder(wanted.port)}; listening at {bound} instead"
        return Listening(sock=sock, address=bound, moved=moved)
    if not may_move:
        raise AddressError(
            f"cannot listen at {wanted}: the port is held by {holder(wanted.port)}; "
            "stop it, or set another port (0 takes any free one)"
        )
    raise AddressError(f"no free port from {wanted.port} to {last} at {wanted.host}; choose another address")


def _bind(host: str, port: int) -> socket.socket:
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    family, *_, place = socket.getaddrinfo(host, port, type=kind, flags=flags)[0]
    sock = socket.create_server(place[:2], family=family, backlog=512)
    sock.setblocking(False)
    return sock


def holder(port: int) -> str:
    """Who listens at a port, as far as this user may see."""
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.pid and one.laddr and one.laddr.port == port:
                return f"{psutil.Process(one.pid).name()} (pid {one.pid})"
    return "another process"
