"""One TCP or TLS connection on which no wait outlives its deadline.

Rules: the deadline is of the whole exchange, so a peer that sends a byte a second gains nothing; another
thread may cut the line at any time; finding a name's addresses waits no longer than anything else. Must
not know what is said on the line, but for the one word that opens a tunnel through a proxy.
"""

import io
import selectors
import socket
import ssl
import threading
import time
from typing import Final

from overwatch.delivery.destination import Origin, Tls

_SLICE_S: Final = 0.05
"""How soon a wait sees that its line is cut."""
_PIECE: Final = 64 << 10
_GLANCE: Final = 1024
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MAX_TUNNEL: Final = 16 << 10
"""Bytes of a proxy's answer."""

_Address = tuple[int, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]
"""Family and socket address."""


class CutError(OSError):
    """The line was cut from this side."""


class Line:
    """A connection to an origin; one thread speaks, any thread may cut."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._cut = threading.Event()
        self._deadline = 0.0
        self._socket: socket.socket | None = None
        self._early = b""
        self._lookup: _Lookup | None = None

    def cut(self) -> None:
        """From any thread: whatever the line waits for fails within a moment; the line is of no more use."""
        self._cut.set()

    def open(self, deadline: float) -> bool:
        """Connect, or keep a live connection, for an exchange until `deadline`; whether it is a kept one.

        Raises `OSError` when there is no connection by then.
        """
        self._deadline = deadline
        if self._socket is not None and self._is_quiet(self._socket):
            return True
        self.close()
        self._check()
        self._connect()
        if self._origin.tls is not None:
            self._tunnel()
            self._secure(self._origin.tls)
        return False

    def send(self, data: bytes) -> bool:
        """Send all, or stop when the peer speaks before; whether all was sent."""
        live = self._live()
        rest = memoryview(data)
        while rest:
            wanted = selectors.EVENT_WRITE | selectors.EVENT_READ
            try:
                rest = rest[live.send(rest[:_PIECE]) :]
                continue
            except ssl.SSLWantReadError:
                wanted = selectors.EVENT_READ
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            if self._wait(wanted) & selectors.EVENT_READ and self._listen(live):
                return False
        return True

    def receive(self, into: memoryview) -> int:
        """Wait for bytes; how many came, 0 at the end of the stream."""
        if self._early:
            count = min(len(self._early), len(into))
            into[:count] = self._early[:count]
            self._early = self._early[count:]
            return count
        live = self._live()
        while True:
            self._check()
            try:
                return live.recv_into(into)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(selectors.EVENT_READ)
            except ssl.SSLWantWriteError:
                self._wait(selectors.EVENT_WRITE)

    def peek(self) -> bytes:
        """Wait for bytes, which `receive` gives again; none at the end of the stream."""
        into = memoryview(bytearray(_GLANCE))
        came = bytes(into[: self.receive(into)])
        self._early = came + self._early
        return came

    def pass_over(self) -> None:
        """What was peeked at is done with."""
        self._early = b""

    def close(self) -> None:
        """Hang up; by the thread that speaks."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._early = None, b""

    def _connect(self) -> None:
        addresses = self._addresses()
        trouble = OSError("the name has no address")
        for left in range(len(addresses), 0, -1):
            family, address = addresses[-left]
            until = time.monotonic() + (self._deadline - time.monotonic()) / left
            try:
                self._call(family, address, until)
            except CutError:
                self.close()
                raise
            except OSError as error:
                self.close()
                trouble = error
            else:
                return
        raise trouble

    def _call(self, family: int, address: tuple[object, ...], until: float) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.connect(address)
        except BlockingIOError:
            self._wait(selectors.EVENT_WRITE, until)
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "no connection") from None

    def _tunnel(self) -> None:
        """Ask the proxy, if there is one, for the server itself."""
        via, there = self._origin.via, self._origin.authority
        if via is None:
            return
        secret = "" if via.authorization is None else f"Proxy-Authorization: {via.authorization}\r\n"
        self.send(f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{secret}\r\n".encode())
        heard, byte = b"", memoryview(bytearray(1))
        # One byte at a time: what follows the head belongs to TLS.
        while not heard.endswith(b"\r\n\r\n"):
            if len(heard) >= _MAX_TUNNEL or self.receive(byte) == 0:
                raise ConnectionRefusedError("the proxy gives no tunnel")
            heard += byte
        if heard.split(b" ", 2)[1:2] != [b"200"]:
            raise ConnectionRefusedError("the proxy gives no tunnel")

    def _secure(self, tls: Tls) -> None:
        wrapped = context(tls).wrap_socket(
            self._live(), server_hostname=self._origin.host, do_handshake_on_connect=False
        )
        self._socket = wrapped
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                self._wait(selectors.EVENT_READ)
            except ssl.SSLWantWriteError:
                self._wait(selectors.EVENT_WRITE)
            else:
                return

    def _addresses(self) -> list[_Address]:
        try:
            return _find(self._origin, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        if self._lookup is None or self._lookup.done.is_set():
            self._lookup = _Lookup(self._origin)
        while not self._lookup.done.wait(_SLICE_S):
            self._check()
        return self._lookup.addresses()

    def _is_quiet(self, live: socket.socket) -> bool:
        """Whether a kept connection has neither ended nor said what nobody asked for."""
        try:
            return not self._listen(live)
        except OSError:
            return False

    def _listen(self, live: socket.socket) -> bool:
        """Take what the peer has said already; whether there was something."""
        try:
            self._early = live.recv(_PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not self._early:
            raise ConnectionResetError("the peer has hung up")
        return True

    def _wait(self, wanted: int, until: float | None = None) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(self._live(), wanted)
            while True:
                left = self._check(until)
                for _, ready in selector.select(min(left, _SLICE_S)):
                    return ready

    def _check(self, until: float | None = None) -> float:
        """Seconds that are left; raises when there are none."""
        if self._cut.is_set():
            raise CutError("cut")
        left = (self._deadline if until is None else until) - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left

    def _live(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("not connected")
        return self._socket


class Stream(io.RawIOBase):
    """A line as a file; `TooLongError` after `allowance` bytes, and no end while `is_head`."""

    def __init__(self, line: Line, allowance: int) -> None:
        super().__init__()
        self._line = line
        self.allowance = allowance
        self.is_head = True
        """What ends now is cut off."""
        self.heard = bytearray()
        """What came, in full while that is short."""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object) -> int:
        """Wait for some bytes."""
        count = self._line.receive(memoryview(buffer).cast("B"))  # type: ignore[arg-type]
        if count == 0 and self.is_head:
            raise ConnectionResetError("the peer has hung up")
        if len(self.heard) <= _GLANCE:
            self.heard += memoryview(buffer)[:count]  # type: ignore[arg-type]
        self.allowance -= count
        if self.allowance < 0:
            raise TooLongError("the reply is too long")
        return count


class TooLongError(Exception):
    """The peer says more than we are ready to hear."""


class _Lookup:
    """A name's addresses, found on a thread of its own: the system's resolver knows no deadline."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._found: list[_Address] | OSError = []
        self.done = threading.Event()
        threading.Thread(target=self._run, name="overwatch-lookup", daemon=True).start()

    def addresses(self) -> list[_Address]:
        """What was found; raises what the resolver raised."""
        if isinstance(self._found, OSError):
            raise self._found
        return self._found

    def _run(self) -> None:
        try:
            self._found = _find(self._origin, 0)
        except OSError as error:
            self._found = error
        except UnicodeError:
            self._found = OSError("the name of the server is no name")
        self.done.set()


def _find(origin: Origin, flags: int) -> list[_Address]:
    first = origin.via or origin
    found = socket.getaddrinfo(first.host, first.port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]


def context(tls: Tls) -> ssl.SSLContext:
    """What a connection is secured with. Raises `OSError` when a file cannot be used."""
    made = ssl.create_default_context(cafile=tls.authorities)
    made.minimum_version = _VERSIONS[tls.min_version]
    if tls.certificate is not None:
        # An empty password: a key that has one must fail here, not ask at the terminal.
        made.load_cert_chain(tls.certificate, tls.key, password="")
    return made
