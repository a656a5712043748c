"""The port of the gRPC door: who may connect, over which TLS, for how long without asking.

What gRPC's own server has no limits for is judged here; what passes goes on to it through a socket that only
this user can reach. Rules: bytes pass as they are, a head in one piece; a side that reads slowly slows the
other down; with either side the connection ends. Runs in the event loop only. Must not know calls, tokens or
bodies.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast
from weakref import WeakValueDictionary

import psutil

from overwatch.collector.crowd import Crowd, CrowdConfig, peer_of
from overwatch.collector.net import Listening
from overwatch.collector.receivers.http2 import Http2Error, IdleFrames, Watch, refusal, settings
from overwatch.collector.tls import HTTP2, Certificates
from overwatch.platform import ShortPath, folder_for_sockets

_BACKLOG: Final = 512
_HANDSHAKE_S: Final = 10.0
_FILES_EACH: Final = 3
"""Descriptors of one connection: the client's, and both ends of the one to the server behind."""
_PREFIX: Final = "overwatch-grpc-"
_SOCKET: Final = "grpc.sock"
_RANDOM: Final = "12345678"
"""As long as what makes a folder's name new."""


class Front:
    """A listening port before a gRPC server that listens at `address`."""

    def __init__(
        self,
        config: CrowdConfig,
        certificates: Certificates | None,
        report: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self.crowd = Crowd(config, report, refusing=GrpcRefusal, files_each=_FILES_EACH)
        """Its connections."""
        self._certificates = certificates
        self._folder: Path | None = None
        self._inside: ShortPath | None = None
        self._listening: asyncio.Server | None = None
        self.refused = asyncio.Event()
        """Set when the server behind it takes no connection."""
        self._idle_frames: WeakValueDictionary[str, IdleFrames] = WeakValueDictionary()

    @property
    def secure(self) -> bool:
        """Whether the port speaks TLS."""
        return self._certificates is not None

    @property
    def address(self) -> str:
        """Where the server behind it listens, as gRPC writes it."""
        return f"unix:{self._place}"

    @property
    def _place(self) -> str:
        return "" if self._inside is None else self._inside.of(_SOCKET)

    def prepare(self) -> None:
        """Make the folder of the socket, for this user alone; raises `OSError`."""
        wanted = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        parent = folder_for_sockets(wanted, f"{_PREFIX}{os.getpid()}-{_RANDOM}/{_SOCKET}")
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(parent)
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
            self._inside = ShortPath(self._folder)
        except OSError as error:
            self.end()
            fix = "set XDG_RUNTIME_DIR (TMPDIR without it) to a folder that this user can write to"
            raise OSError(f"{parent}: {error.strerror}; {fix}") from error

    async def open(self, listening: Listening) -> None:
        """Begin to let clients in; the server behind it listens already."""
        context = None if self._certificates is None else self._certificates.context(HTTP2)
        self._listening = await asyncio.get_running_loop().create_server(
            self.crowd.around(lambda: _Client(self)),
            sock=listening.sock,
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if context is None else _HANDSHAKE_S,
        )

    async def close(self) -> None:
        """Let no one else in; who is in stays."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def end(self) -> None:
        """Take the socket's folder away."""
        if self._inside is not None:
            self._inside.close()
            self._inside = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def idle_frames(self, peer: str) -> IdleFrames:
        """The count that an address's connections share, for as long as it has any."""
        return self._idle_frames.setdefault(peer, IdleFrames())

    async def inside(self, make: Callable[[], "_Server"]) -> None:
        """Connect to the server behind it; raises `OSError`."""
        await asyncio.get_running_loop().create_unix_connection(make, self._place)


def _sweep(parent: Path) -> None:
    """Take away what collectors of this user left that were killed."""
    for left in parent.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError, OverflowError):
            if pid.isdecimal() and not psutil.pid_exists(int(pid)) and left.stat().st_uid == os.getuid():
                shutil.rmtree(left, ignore_errors=True)


class _Client(asyncio.Protocol):
    """A client's side of one connection."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._watch = Watch()
        """Replaced once the client's address is known."""
        self._transport: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._watch = Watch(peer=self._front.idle_frames(peer_of(transport)))
        self._connecting = asyncio.get_running_loop().create_task(self._connect(self._transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        try:
            await self._front.inside(lambda: _Server(self, transport))
        except (ConnectionRefusedError, FileNotFoundError):
            self._front.refused.set()
            transport.abort()
        except OSError:
            # Without descriptors here nothing is known of the server; a new one would lack them too.
            transport.abort()

    def joined(self, server: asyncio.Transport) -> None:
        """The server is there: it hears what the client said meanwhile."""
        if self._transport is None:
            server.abort()
            return
        self._server = server
        if self._waiting:
            server.write(bytes(self._waiting))
            self._waiting.clear()
        with contextlib.suppress(RuntimeError):
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        asked = self._watch.asked
        try:
            passing = self._watch.feed(data)
        except Http2Error:
            self._front.crowd.cut += 1
            transport.abort()
            return
        if self._watch.asked and not asked:
            self._front.crowd.settle(transport)
        if self._server is not None:
            if passing:
                self._server.write(passing)
            return
        self._waiting += passing
        with contextlib.suppress(RuntimeError):
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._server is not None:
            self._server.abort() if exc else self._server.close()
            self._server = None

    def pause_writing(self) -> None:
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        if self._server is not None:
            self._server.resume_reading()


class GrpcRefusal(asyncio.Protocol):
    """Answers the first call of a connection beyond a cap with UNAVAILABLE and the reason."""

    def __init__(self, transport: asyncio.Transport, reason: str) -> None:
        self._transport = transport
        self._reason = reason
        self._watch = Watch()
        self._begun = self._answered = False

    def data_received(self, data: bytes) -> None:
        """Give settings at the first words, the answer at the first whole head."""
        if self._answered or self._transport.is_closing():
            return
        try:
            self._watch.feed(data)
        except Http2Error:
            self._transport.abort()
            return
        if not self._begun:
            # A client asks nothing before it has the server's settings.
            self._begun = True
            self._transport.write(settings())
        if self._watch.asked:
            self._answered = True
            self._transport.write(refusal(self._watch.stream, self._reason))
            if self._transport.can_write_eof():
                self._transport.write_eof()


class _Server(asyncio.Protocol):
    """The server's side of the same connection."""

    def __init__(self, client: _Client, outer: asyncio.Transport) -> None:
        self._client = client
        self._outer = outer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.joined(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._outer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._outer.abort() if exc else self._outer.close()

    def pause_writing(self) -> None:
        self._outer.pause_reading()

    def resume_writing(self) -> None:
        self._outer.resume_reading()
