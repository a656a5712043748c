"""Client of collectors' view APIs: snapshots of one run as they are made, the runs of all, acknowledging.

Owns which collector is watched, the WebSocket, reconnecting, and the age of what arrived, on a monotonic
clock. Whatever the network or a collector does becomes a `Connection`, counted, and never an exception in the
view; a collector that cannot answer is listed so, and never keeps the others out.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

import aiohttp
import msgspec

from overwatch import codec, discovery
from overwatch.snapshot import SCHEMA_VERSION, RunLine, RunList, Snapshot, View
from overwatch.snapshot.history import HISTORY_VERSION, History, HistoryQuery
from overwatch.snapshot.history import decode as decode_history

_MOST_BYTES: Final = 64 << 20
_CONNECT_S: Final = 5.0
"""How long one attempt to connect may take."""
_HEARTBEAT_S: Final = 5.0
"""A collector that answers no ping for half as long again is gone."""
_CLOSE_S: Final = 0.5
"""How long a collector that is left may take to close its end."""
_OVER: Final = frozenset(
    {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
)
_ANSWER_S: Final = 5.0
_runs: Final = msgspec.json.Decoder(RunList).decode
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How this end is connected to the collector."""

    state: str
    """`connecting`, `up` or `down`."""
    reason: str | None = None
    """Why it is down, in a few words."""


class AckError(RuntimeError):
    """A finding that could not be acknowledged; names the reason and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A run, and the collector that knows it; or a collector that does not answer."""

    collector: str
    """Its view API, as `Live.address`."""
    run: RunLine | None = None
    reason: str | None = None
    """Why the collector does not answer."""


Update: TypeAlias = Snapshot | Connection


class Live:
    """Snapshots of one run and view; `run_id` of `None` follows the newest run of the first collector."""

    def __init__(
        self,
        urls: str | Sequence[str],
        run_id: str | None = None,
        view: View | None = None,
        *,
        waits_s: tuple[float, float] = (0.25, 2.0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raise `ValueError` for a URL that is not `ws://HOST:PORT` or `http://HOST:PORT`, or for none.

        `waits_s` is the wait after the first failure, which doubles with each that follows, and the longest.
        """
        named = [urls] if isinstance(urls, str) else urls
        if not named:
            raise ValueError("no collector to watch; name one as ws://HOST:PORT")
        self.addresses = tuple(dict.fromkeys(map(address_of, named)))
        """Of all view APIs."""
        self.address = self.addresses[0]
        """The view API that is watched."""
        self.run_id = run_id
        self.view = view or View()
        self._waits_s = waits_s
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

        A refused view is given up for the one that was taken last, and the connection has the reason.
        """
        if view != self.view:
            self.view = view
            self._selected.set()

    def go(self, listed: Listed) -> None:
        """Watch another run, of this collector or of another one, from now on."""
        if listed.run is not None:
            self.address, self.run_id = listed.collector, listed.run.run_id
            self._selected.set()

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Every snapshot, and every change of the connection, until the caller stops."""
        wait_s = self._waits_s[0]
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
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
                    wait_s = self._waits_s[0]
                self.connection = Connection(state="down", reason=reason)
                yield self.connection
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, self._waits_s[1])

    async def runs(self) -> tuple[Listed, ...]:
        """The runs of all collectors, in the order in which these were named; never raises."""
        return await list_runs(self.addresses)

    async def history(self, run_id: str | None, wanted: HistoryQuery) -> History | None:
        """The past of a run of the watched collector; `None` where that has none to give. Never raises."""
        headers = _bearer(discovery.token_to_read(self.address))
        query = history_query(self.run_id if run_id is None else run_id, wanted)
        try:
            async with (
                _session() as session,
                session.get(f"{_http(self.address)}/api/v1/history", params=query, headers=headers) as answer,
            ):
                found = decode_history(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
            return None
        return found if found is not None and is_readable(found) else None

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """Acknowledge a finding; raises `AckError`."""
        url = f"{_http(self.address)}/api/v1/findings/{quote(finding_id, safe='')}/ack"
        headers = _bearer(discovery.token_to_control(self.address))
        try:
            async with (
                _session() as session,
                session.post(url, params={"run": run_id}, headers=headers) as answer,
            ):
                if answer.status >= 300:
                    raise AckError(_why(answer.status, await answer.text()))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AckError(f"not acknowledged: {reason_of(error)}") from None

    async def _stream(self, session: aiohttp.ClientSession) -> AsyncGenerator[Update, None]:
        """Snapshots of the selected view until another one is selected or the connection ends."""
        self._selected.clear()
        view = self.view
        token = discovery.token_to_read(self.address)
        socket = await session.ws_connect(
            f"{self.address}/api/v1/stream",
            params={"run": self.run_id or "", **query_of(view)},
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            heartbeat=_HEARTBEAT_S,
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
                async with asyncio.timeout(_CLOSE_S):
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


async def list_runs(addresses: Sequence[str], within_s: float = _ANSWER_S) -> tuple[Listed, ...]:
    """The runs of all collectors, in the order in which these were named; never raises.

    All are asked at once; one that has not answered after `within_s` seconds is listed so.
    """
    timeout, connector = aiohttp.ClientTimeout(total=within_s), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        found = await asyncio.gather(*(_runs_of(session, one) for one in addresses))
    return tuple(listed for part in found for listed in part)


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
    if view.offset is not None:
        query["offset"] = str(view.offset)
    return query


def address_of(url: str) -> str:
    """The address of a view API, `ws://HOST:PORT` or `wss://HOST:PORT`; raises `ValueError` for another."""
    scheme, found, rest = url.partition("://")
    host = rest.rstrip("/")
    if not found or scheme not in _SCHEMES or not host or "/" in host:
        raise ValueError(f"view URL {url!r} is not an address; use ws://HOST:PORT, e.g. ws://127.0.0.1:4380")
    return f"{_SCHEMES[scheme]}://{host}"


def reason_of(error: BaseException) -> str:
    """Why a collector cannot be reached, in a few words."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return _refused(error.status)
    if isinstance(error, aiohttp.ClientConnectorError):
        # An event loop's own text has the address in it; a resolver's has no number of the system's.
        number, words = error.os_error.errno, error.os_error.strerror
        return (os.strerror(number) if number and number > 0 else words or "cannot connect").lower()
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(error) or type(error).__name__


def _refused(status: int) -> str:
    fix = f"; set {discovery.VARIABLE} to a token that may read" if status in (401, 403) else ""
    return f"refused with HTTP {status}{fix}"


def is_readable(history: History) -> bool:
    """Whether this build reads an answer of that version."""
    return history.schema_version.partition(".")[0] == HISTORY_VERSION.partition(".")[0]


def history_query(run_id: str | None, wanted: HistoryQuery) -> list[tuple[str, str]]:
    """A request as the API's parameters; what is as usual is left out."""
    query = [("name", name) for name in wanted.names]
    if run_id is not None:
        query.append(("run", run_id))
    if wanted.columns != HistoryQuery().columns:
        query.append(("columns", str(wanted.columns)))
    query += [
        (word, repr(at)) for word, at in (("from", wanted.since), ("to", wanted.until)) if at is not None
    ]
    return [*query, ("about", "yes")] if wanted.about else query


def _why(status: int, body: str) -> str:
    if status in (401, 403):
        return f"not acknowledged: HTTP {status}; set {discovery.VARIABLE} to a token that may control"
    try:
        reason = str(msgspec.json.decode(body, type=dict[str, str | None]).get("error") or "")
    except (msgspec.DecodeError, msgspec.ValidationError):
        reason = ""
    return f"not acknowledged: {reason or f'HTTP {status}'}"


async def _runs_of(session: aiohttp.ClientSession, address: str) -> tuple[Listed, ...]:
    headers = _bearer(discovery.token_to_read(address))
    try:
        async with session.get(f"{_http(address)}/api/v1/runs", headers=headers) as answer:
            if answer.status != 200:
                return (Listed(collector=address, reason=_refused(answer.status)),)
            reported = _runs(await answer.read())
    except msgspec.DecodeError as error:
        reason = f"its list of runs is not of schema version {SCHEMA_VERSION}: {error}"
        return (Listed(collector=address, reason=reason),)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return (Listed(collector=address, reason=reason_of(error)),)
    version = reported.schema_version or SCHEMA_VERSION
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        reason = f"its schema version is {version}, this build reads {SCHEMA_VERSION}"
        return (Listed(collector=address, reason=reason),)
    return tuple(Listed(collector=address, run=run) for run in reported.runs)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S))


def _http(address: str) -> str:
    return "http" + address.removeprefix("ws")


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}
