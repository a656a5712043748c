"""Client of the collector's view API: snapshots of one run as they are made, for as long as anyone looks.

Owns the WebSocket, reconnecting, and the age of what arrived, on a monotonic clock. Whatever the network or
the collector does becomes a `Connection`, counted, and never an exception in the view.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import aiohttp
import msgspec

from overwatch import codec, discovery
from overwatch.snapshot import Snapshot, View

_MOST_BYTES: Final = 64 << 20
_OVER: Final = frozenset(
    {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
)
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """How patiently a collector is called again."""

    first_wait_s: float = 0.25
    """After the first failure; doubles with each one that follows."""
    longest_wait_s: float = 2.0
    connect_s: float = 5.0
    """How long one attempt to connect may take."""
    heartbeat_s: float = 5.0
    """A collector that answers no ping for half as long again is gone."""
    close_s: float = 0.5
    """How long a collector that is left may take to say goodbye."""

    def __post_init__(self) -> None:
        if not 0 < self.first_wait_s <= self.longest_wait_s:
            raise ValueError(
                f"waits of {self.first_wait_s} s to {self.longest_wait_s} s are not a range; "
                "use 0 < first_wait_s <= longest_wait_s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How this end is connected to the collector."""

    state: str
    """`connecting`, `up` or `down`."""
    reason: str | None = None
    """Why it is down, in a few words."""


Update: TypeAlias = Snapshot | Connection


class Live:
    """Snapshots of one run and view; `run_id` of `None` follows the newest run."""

    def __init__(
        self,
        url: str,
        run_id: str | None = None,
        view: View | None = None,
        *,
        config: LiveConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raise `ValueError` when `url` is not `ws://HOST:PORT` or `http://HOST:PORT`."""
        self.address = _address(url)
        self.run_id = run_id
        self.view = view or View()
        self.config = config or LiveConfig()
        self.connection = Connection(state="connecting")
        self.received = 0
        self.unreadable = 0
        """Messages that were no snapshot of a schema this build reads."""
        self._clock = clock
        self._last_at: float | None = None
        self._good = self.view
        """The view that the collector took last."""
        self._selected = asyncio.Event()

    @property
    def age_s(self) -> float | None:
        """Seconds since the last snapshot arrived; `None` before the first."""
        return None if self._last_at is None else self._clock() - self._last_at

    def select(self, view: View) -> None:
        """Show another view of the run from now on; snapshots of the old one come until then.

        A view that the collector refuses is given up for the one it took last, and the connection says why.
        """
        if view != self.view:
            self.view = view
            self._selected.set()

    def go(self, address: str, run_id: str | None) -> None:
        """Watch another run, of this collector or of another one, from now on."""
        self.address, self.run_id = address, run_id
        self._selected.set()

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Every snapshot, and every change of the connection, until the caller stops."""
        wait_s = self.config.first_wait_s
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.config.connect_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                before = self.received
                reason = "the collector closed the stream"
                try:
                    async for update in self._stream(session):
                        yield update
                    if self._selected.is_set():
                        continue
                except (aiohttp.ClientError, OSError, TimeoutError, codec.SchemaVersionError) as error:
                    reason = reason_of(error)
                    if isinstance(error, aiohttp.WSServerHandshakeError) and self.view != self._good:
                        self.view = self._good
                        self.connection = Connection(state="up", reason=f"view {reason}")
                        yield self.connection
                        continue
                if self.received > before:
                    wait_s = self.config.first_wait_s
                self.connection = Connection(state="down", reason=reason)
                yield self.connection
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, self.config.longest_wait_s)

    async def _stream(self, session: aiohttp.ClientSession) -> AsyncGenerator[Update, None]:
        """Snapshots of the selected view until another one is selected or the connection ends."""
        self._selected.clear()
        view = self.view
        token = discovery.token_to_read(self.address)
        socket = await session.ws_connect(
            f"{self.address}/api/v1/stream",
            params={"run": self.run_id or "", **query_of(view)},
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            heartbeat=self.config.heartbeat_s,
            max_msg_size=_MOST_BYTES,
        )
        try:
            self._good = view
            if self.connection.state != "up":
                self.connection = Connection(state="up")
                yield self.connection
            async for message in self._messages(socket):
                if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    snapshot = self._read(message.data)
                    if snapshot is not None:
                        yield snapshot
        finally:
            # Who goes on sending instead of answering would be listened to for ever.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.config.close_s):
                    await socket.close()

    async def _messages(
        self, socket: aiohttp.ClientWebSocketResponse
    ) -> AsyncGenerator[aiohttp.WSMessage, None]:
        """What arrives, until the end of the socket or until another view is selected."""
        changed = asyncio.create_task(self._selected.wait())
        try:
            while not changed.done():
                coming = asyncio.create_task(socket.receive())
                await asyncio.wait({coming, changed}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
                    return
                message = coming.result()
                if message.type in _OVER:
                    return
                yield message
        finally:
            changed.cancel()

    def _read(self, data: str | bytes) -> Snapshot | None:
        """One message; what is no snapshot is counted and passed over."""
        try:
            snapshot = codec.decode(data.encode() if isinstance(data, str) else data)
        except codec.SchemaVersionError:
            self.unreadable += 1
            raise
        except (msgspec.DecodeError, UnicodeError):
            self.unreadable += 1
            return None
        self.received += 1
        self._last_at = self._clock()
        return snapshot


def query_of(view: View) -> dict[str, str]:
    """The view as the API's parameters; what is as usual is left out."""
    usual = View()
    query = {"rows": str(view.rows)}
    if view.env_id is not None:
        query["env"] = str(view.env_id)
    if (view.sort, view.descending) != (usual.sort, usual.descending):
        query |= {"sort": view.sort, "order": "desc" if view.descending else "asc"}
    if view.filter:
        query["filter"] = view.filter
    if not view.grouped:
        query["grouped"] = "no"
    return query


def _address(url: str) -> str:
    scheme, found, rest = url.partition("://")
    host = rest.rstrip("/")
    if not found or scheme not in _SCHEMES or not host or "/" in host:
        raise ValueError(f"view URL {url!r} is not an address; use ws://HOST:PORT, e.g. ws://127.0.0.1:4380")
    return f"{_SCHEMES[scheme]}://{host}"


def reason_of(error: BaseException) -> str:
    """Why a collector cannot be reached, in a few words."""
    if isinstance(error, aiohttp.WSServerHandshakeError) and error.status in (401, 403):
        return f"refused with HTTP {error.status}; set {discovery.VARIABLE} to a token that may read"
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"refused with HTTP {error.status}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror.lower() if error.os_error.strerror else "cannot connect"
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(error) or type(error).__name__
