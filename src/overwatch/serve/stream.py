"""The view API: runs, snapshots, a stream of them, their past; JSON over HTTP and WebSocket.

Rules: a slow reader gets the newest snapshot, never a backlog; views are registered while they are read.
One route changes something: an operator's acknowledgement becomes an event like any other, and success is
answered once that is as safe as what trainers emit. Errors are JSON and name the parameter. Must not know how
snapshots are made or the past is kept, who may ask, or what hosts it.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

import msgspec
from aiohttp import WSMsgType, web
from multidict import MultiDict

from overwatch import codec
from overwatch.events import FindingAcknowledged
from overwatch.journal import JournalFullError
from overwatch.projection.board import SORTS
from overwatch.projection.filtering import FilterError, parse
from overwatch.projection.run import aged, aged_snapshot, late, run_list
from overwatch.serve.answers import BadRequest, answer, only, problem
from overwatch.serve.archive import Archive, ArchiveError, as_it_was
from overwatch.serve.past import PastAnswers, live_timeline
from overwatch.snapshot import Finding, Snapshot, View
from overwatch.snapshot.heat import OF, HeatMap, HeatQuery
from overwatch.snapshot.heat import SORTS as HEAT_SORTS
from overwatch.snapshot.history import MOST_COLUMNS, History, HistoryQuery
from overwatch.state.envs import MAX_ENVS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from multidict import MultiMapping

    from overwatch.aggregator import Frame

MOST_ROWS: Final = 4096
ANSWER_S: Final = 3.0
"""How long a request for a view without readers waits for its first snapshot, in seconds."""

REVOKED: Final = 1008
"""Code that closes the stream of a reader that may not read any more; WebSocket's for a policy."""

_MOST_NAMES: Final = 64
_NO_NAME: Final = "-"
"""A name that no number has: what else a history holds is wanted."""
_LONGEST_NAME: Final = 100
_HEARTBEAT_S: Final = 20.0
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
Keep: TypeAlias = Callable[[str, FindingAcknowledged], Awaitable[None]]
"""Keeps an event of a run; raises `JournalFullError` when there is no room."""
_A = TypeVar("_A")
_R = TypeVar("_R")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Tower(Protocol):
    """What makes the frames: an aggregator, or who stands at the end of a recording."""

    @property
    def frame(self) -> "Frame | None":
        """The newest one."""
        ...

    def behind_s(self) -> float:
        """How long ago the newest one was made for, seconds; 0 where it is meant to be of the past."""
        ...

    def watch(self, run_id: str | None, view: View) -> None:
        """Make a view part of the frames to come; raises `ValueError` beyond the most."""
        ...

    def unwatch(self, run_id: str | None, view: View) -> None:
        """Withdraw one `watch`."""
        ...

    def history(self, run_id: str | None, query: HistoryQuery) -> "Future[History | None]":
        """The past of a run; `None` where there is no such run."""
        ...

    def heat(self, run_id: str | None, query: HeatQuery) -> "Future[HeatMap | None]":
        """Its envs or lanes over time."""
        ...


class FrameNotifier:
    """A frame sink that wakes what waits for the next frame in an event loop."""

    def __init__(self) -> None:
        self.latest: Frame | None = None
        """The latest frame that was published."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.Event | None = None

    def attach(self) -> None:
        """Ring in the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._next = asyncio.Event()

    def publish(self, frame: "Frame") -> None:
        """Keep the frame and wake all that wait; returns at once."""
        self.latest = frame
        loop = self._loop
        if loop is not None:
            # The loop may close between the check and the call; nothing waits there any more then.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ring)

    def close(self) -> None:
        """Ring no more."""
        self._loop = None

    def next(self) -> asyncio.Event:
        """The event that the next frame sets; take it before looking at the current frame."""
        if self._next is None:
            raise RuntimeError("the bell has no event loop; call attach() inside of it")
        return self._next

    def _ring(self) -> None:
        rung, self._next = self.next(), asyncio.Event()
        rung.set()


class ViewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader asked for."""

    run_id: str | None
    view: View


class ViewApi:
    """The routes of the view API over one tower."""

    def __init__(
        self,
        tower: "Tower",
        notifier: FrameNotifier,
        keep: Keep | None = None,
        archive: Archive | None = None,
        admits: Callable[[web.Request], bool] = lambda _: True,
    ) -> None:
        """Without `keep` nothing can be acknowledged; runs in `archive` are shown as they were last.

        `admits` judges the request of an open stream anew.
        """
        self._tower = tower
        self._archive = archive
        self._notifier = notifier
        self._keep = keep
        self._readers: Counter[ViewRequest] = Counter()
        self._encoded: dict[ViewRequest, tuple[Snapshot, bytes]] = {}
        self._admits = admits
        self.past = PastAnswers(None)
        """What answers `at`; set before it is served."""
        self._sockets: dict[web.WebSocketResponse, web.Request] = {}
        self._closing: set[asyncio.Future[bool]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def app(self) -> web.Application:
        """The web application."""

        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            """Let in who may read; answer others with the reason."""
            return await self._guard(request, handler)

        app = web.Application(middlewares=[guard])
        app.router.add_get("/api/v1/runs", self._runs)
        app.router.add_get("/api/v1/snapshot", self._snapshot)
        app.router.add_get("/api/v1/stream", self._stream)
        app.router.add_get("/api/v1/history", self._history)
        app.router.add_get("/api/v1/heat", self._heat)
        app.router.add_get("/api/v1/timeline", self._timeline)
        if self._keep is not None:
            app.router.add_post("/api/v1/findings/{finding}/ack", self._acknowledge)
        app.on_startup.append(self._attach)
        app.on_shutdown.append(self._hang_up)
        return app

    async def _attach(self, _: web.Application) -> None:
        self._notifier.attach()
        self._loop = asyncio.get_running_loop()

    def review(self) -> None:
        """Close the streams of readers that may not read any more; from any thread, returns at once."""
        loop = self._loop
        if loop is not None:
            # The loop may close between the check and the call; no stream is open then.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._close_unadmitted)

    def _close_unadmitted(self) -> None:
        for socket, request in self._sockets.items():
            if not self._admits(request):
                closing = asyncio.ensure_future(socket.close(code=REVOKED, message=b"the token was revoked"))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _hang_up(self, _: web.Application) -> None:
        for socket in tuple(self._sockets):
            await socket.close(code=1001, message=b"the collector stops")
        self.past.close()

    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadRequest as error:
            return problem(error.status, str(error), error.parameter)
        except web.HTTPException as error:
            return problem(error.status, f"{error.reason}: {request.method} {request.path}", None)

    async def _runs(self, request: web.Request) -> web.Response:
        only(request.query, frozenset())
        frame = self._tower.frame
        archived = self._archive.lines() if self._archive else ()
        if frame is None:
            return answer(200, msgspec.json.encode(run_list({}, None, archived)))
        behind_s = self._tower.behind_s()
        shown = {key: late(snapshot, behind_s) for key, snapshot in frame.snapshots.items()}
        listed = run_list(shown, frame.newest, [aged(line, frame.tick) for line in archived])
        return answer(200, msgspec.json.encode(listed))

    async def _snapshot(self, request: web.Request) -> web.Response:
        at, query = _moment(request.query)
        wanted = _query(query)
        if at is not None:
            return answer(200, codec.encode(await self.past.snapshot(wanted.run_id, wanted.view, at)))
        with self._reading(wanted):
            try:
                async with asyncio.timeout(ANSWER_S):
                    snapshot = await self._first(wanted)
            except TimeoutError:
                if self.past.is_all:
                    raise self.past.late from None
                raise BadRequest(404, self._missing(wanted), "run") from None
            return answer(200, self._encode(wanted, snapshot))

    async def _first(self, wanted: ViewRequest) -> Snapshot:
        while True:
            coming = self._notifier.next()
            snapshot = self._pick(wanted)
            if snapshot is not None:
                return snapshot
            if self._is_missing(wanted):
                archived = await self._archived(wanted)
                if archived is None:
                    raise BadRequest(404, self._missing(wanted), "run")
                return archived
            await coming.wait()

    def _is_missing(self, wanted: ViewRequest) -> bool:
        """Whether no frame will show it: there is none of the run in the newest one."""
        frame, plain = self._tower.frame, View()
        return frame is not None and (wanted.run_id or frame.newest) not in {
            run for run, view in frame.snapshots if view == plain
        }

    async def _archived(self, wanted: ViewRequest) -> Snapshot | None:
        """How a run was when it made room; `None` where it is not kept."""
        if self._archive is None or wanted.run_id is None:
            return None
        kept = await self._opened(self._archive.snapshot, wanted.run_id, wanted.view)
        frame = self._tower.frame
        return kept if kept is None or frame is None else aged_snapshot(kept, frame.tick)

    async def _opened(self, read: Callable[[str, _A], _R], run_id: str, wanted: _A) -> _R:
        """What the archive has, read in another thread: a run may take long to open."""
        try:
            return await asyncio.to_thread(read, run_id, wanted)
        except ArchiveError as error:
            raise BadRequest(404, str(error), "run") from error

    async def _last_picture(self, wanted: ViewRequest, sent: Snapshot | None) -> Snapshot | None:
        """Of a run that made room while it was watched: as archived, or as sent where nothing is kept."""
        kept = await self._archived(wanted)
        return as_it_was(sent) if kept is None and sent is not None else kept

    def _missing(self, wanted: ViewRequest) -> str:
        if wanted.run_id is None:
            return "no run has reported yet"
        known = "GET /api/v1/runs lists those that are, and overwatch replay shows what is recorded"
        return f"run {wanted.run_id!r} is not known here; {known}"

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        wanted = _query(request.query)
        if self._is_missing(wanted):
            await self._archived(wanted)  # One that cannot be opened is refused before there is a socket.
        with self._reading(wanted):
            socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=1 << 16)
            if not socket.can_prepare(request):
                raise BadRequest(426, "this address speaks WebSocket; GET /api/v1/snapshot is one answer")
            await socket.prepare(request)
            self._sockets[socket] = request
            listener = asyncio.create_task(_until_closed(socket))
            try:
                await self._send_all(wanted, socket, listener)
            except ConnectionError:
                pass  # The reader went away in the middle of a snapshot: nothing is owed to it.
            finally:
                listener.cancel()
                del self._sockets[socket]
            return socket

    async def _send(self, socket: web.WebSocketResponse, text: bytes) -> None:
        """Send one message, in a task that goes on where this one is cancelled, as a reader's end does.

        aiohttp packs a large message in a task of its own, whose error nothing would retrieve.
        """
        sending = asyncio.create_task(socket.send_frame(text, WSMsgType.TEXT))
        self._sending.add(sending)
        sending.add_done_callback(self._sent)
        await asyncio.shield(sending)

    def _sent(self, sending: "asyncio.Task[None]") -> None:
        self._sending.discard(sending)
        if not sending.cancelled():
            sending.exception()

    async def _send_all(
        self, wanted: ViewRequest, socket: web.WebSocketResponse, listener: "asyncio.Task[None]"
    ) -> None:
        sent: Snapshot | None = None
        is_live = True
        while not socket.closed:
            coming = self._notifier.next()
            snapshot = self._pick(wanted)
            if snapshot is not None and snapshot is not sent:
                await self._send(socket, self._encode(wanted, snapshot))
                sent, is_live = snapshot, True
                continue
            if snapshot is None and is_live and self._is_missing(wanted):
                kept = await self._last_picture(wanted, sent)
                if kept is not None:
                    await self._send(socket, codec.encode(kept))
                    is_live = False
                    continue
            waiter = asyncio.create_task(coming.wait())
            await asyncio.wait({waiter, listener}, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            if listener.done():
                return

    def _pick(self, wanted: ViewRequest) -> Snapshot | None:
        frame = self._tower.frame
        if frame is None:
            return None
        run_id = wanted.run_id or frame.newest
        return None if run_id is None else frame.snapshots.get((run_id, wanted.view))

    async def _history(self, request: web.Request) -> web.Response:
        at, query = _moment(request.query)
        run_id, wanted = query.get("run") or None, _requested(query)
        if at is not None or self.past.is_all:
            return answer(200, _encode(await self.past.history(run_id, wanted, at)))
        found, frame = self._known(run_id, await self._find(run_id, wanted)), self._tower.frame
        if frame is not None:
            found = await self.past.closer(found, wanted, frame.tick)
        return answer(200, _encode(found))

    async def _heat(self, request: web.Request) -> web.Response:
        at, query = _moment(request.query)
        run_id, wanted = query.get("run") or None, _heat_query(query)
        if at is not None or self.past.is_all:
            return answer(200, _encode(await self.past.heat(run_id, wanted, at)))
        kept = None if self._archive is None else self._archive.heat
        found = await self._past(run_id, wanted, self._tower.heat(run_id, wanted), kept)
        return answer(200, _encode(self._known(run_id, found)))

    def _known(self, run_id: str | None, found: _R | None) -> _R:
        """What was found of a run; raises `BadRequest` where that is nothing."""
        if found is None:
            what = "no run has reported yet" if run_id is None else f"run {run_id!r} is not known here"
            raise BadRequest(404, f"{what}; GET /api/v1/runs lists those that are", "run")
        return found

    async def _timeline(self, request: web.Request) -> web.Response:
        only(request.query, frozenset({"run"}))
        run_id, frame = request.query.get("run") or None, self._tower.frame
        if self.past.is_all:
            return answer(200, _encode(await self.past.timeline(run_id)))
        found = await self._find(run_id, HistoryQuery(names=(_NO_NAME,)))
        if found is None or frame is None:
            raise BadRequest(404, self._missing(ViewRequest(run_id=run_id, view=View())), "run")
        shown = next((one for (run, _), one in frame.snapshots.items() if run == found.run_id), None)
        return answer(200, _encode(live_timeline(found, frame.tick, shown, past=self.past.is_there)))

    async def _find(self, run_id: str | None, wanted: HistoryQuery) -> History | None:
        kept = None if self._archive is None else self._archive.history
        return await self._past(run_id, wanted, self._tower.history(run_id, wanted), kept)

    async def _past(
        self,
        run_id: str | None,
        wanted: _A,
        coming: "Future[_R | None]",
        kept: Callable[[str, _A], _R | None] | None,
    ) -> _R | None:
        """What the tower has of a run's past, or else the archive."""
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await asyncio.wrap_future(coming)
        except TimeoutError:
            raise BadRequest(503, "the collector has no tick yet; ask again in a moment", None) from None
        if found is not None or run_id is None or kept is None:
            return found
        return await self._opened(kept, run_id, wanted)

    async def _acknowledge(self, request: web.Request) -> web.Response:
        """Acknowledge one finding that is open; who asks again gets the same answer."""
        only(request.query, frozenset({"run", "by"}))
        named = request.query.get("run") or None
        snapshot = self._pick(ViewRequest(run_id=named, view=View()))
        if (
            snapshot is None
            and named is not None
            and self._archive is not None
            and self._archive.holds(named)
        ):
            over = f"run {named!r} is over and archived: it is shown as it was, and can only be read"
            raise BadRequest(409, over, "run")
        if snapshot is None or self._keep is None:
            raise BadRequest(404, "no such run; GET /api/v1/runs lists those that are known", "run")
        run_id, finding = snapshot.run.run_id, _open(snapshot, request.match_info["finding"])
        if not finding.acknowledged:
            event = FindingAcknowledged(at=time.time_ns(), finding=finding.id, by=_name(request.query))
            try:
                await self._keep(run_id, event)
            except JournalFullError as error:
                raise BadRequest(503, f"not acknowledged: {error}") from error
        made = {"run": run_id, "finding": finding.id, "acknowledged": True}
        return answer(200, msgspec.json.encode(made))

    def _encode(self, wanted: ViewRequest, snapshot: Snapshot) -> bytes:
        kept = self._encoded.get(wanted)
        if kept is None or kept[0] is not snapshot:
            kept = self._encoded[wanted] = (snapshot, codec.encode(late(snapshot, self._tower.behind_s())))
        return kept[1]

    @contextmanager
    def _reading(self, wanted: ViewRequest) -> "Iterator[None]":
        if not self._readers[wanted]:
            try:
                self._tower.watch(wanted.run_id, wanted.view)
            except ValueError as error:
                del self._readers[wanted]
                raise BadRequest(503, str(error), "rows") from error
        self._readers[wanted] += 1
        try:
            yield
        finally:
            self._readers[wanted] -= 1
            if not self._readers[wanted]:
                del self._readers[wanted]
                self._encoded.pop(wanted, None)
                self._tower.unwatch(wanted.run_id, wanted.view)


async def _until_closed(socket: web.WebSocketResponse) -> None:
    """Read and ignore what the peer sends until it closes; answers to pings come from here."""
    async for _ in socket:
        continue


def _query(query: Mapping[str, str]) -> ViewRequest:
    only(query, frozenset({"run", "rows", "env", "sort", "order", "filter", "grouped", "offset"}))
    rows = _number(query, "rows", MOST_ROWS)
    view = View(
        rows=View().rows if rows is None else rows,
        env_id=_number(query, "env", (1 << 31) - 1),
        sort=_word(query, "sort", SORTS),
        descending=_word(query, "order", ("desc", "asc")) == "desc",
        filter=_filter(query),
        grouped=_word(query, "grouped", ("yes", "no")) == "yes",
        offset=_number(query, "offset", MAX_ENVS),
    )
    return ViewRequest(run_id=query.get("run") or None, view=view)


def _word(query: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """One of the known words; the first of them where none is given."""
    word = query.get(name) or known[0]
    if word not in known:
        raise BadRequest(400, f"{name}={word[:40]!r} is not one of {', '.join(known)}", name)
    return word


def _filter(query: Mapping[str, str]) -> str:
    text = query.get("filter", "").strip()
    try:
        parse(text)
    except FilterError as error:
        raise BadRequest(400, f"filter: {error}", "filter") from error
    return text


def _number(query: Mapping[str, str], name: str, most: int, least: int = 0) -> int | None:
    text = query.get(name)
    if not text:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not (is_number and least <= int(text) <= most):
        raise BadRequest(400, f"{name}={text[:40]!r} is not a whole number from {least} to {most}", name)
    return int(text)


def _requested(query: "MultiMapping[str]") -> HistoryQuery:
    """What the parameters ask of the past."""
    only(query, frozenset({"run", "name", "columns", "from", "to", "about"}))
    names = tuple(dict.fromkeys(name for name in query.getall("name", ()) if name))
    if len(names) > _MOST_NAMES:
        raise BadRequest(400, f"{len(names)} names; ask for at most {_MOST_NAMES}, or use a pattern", "name")
    since, until = _span(query)
    columns = _number(query, "columns", MOST_COLUMNS, least=1)
    return HistoryQuery(
        names=names,
        columns=HistoryQuery().columns if columns is None else columns,
        since=since,
        until=until,
        about=_word(query, "about", ("no", "yes")) == "yes",
    )


def _heat_query(query: Mapping[str, str]) -> HeatQuery:
    """What the parameters ask of envs or lanes over time."""
    only(query, frozenset({"run", "of", "from", "to", "columns", "offset", "rows", "sort", "filter"}))
    usual, (since, until) = HeatQuery(), _span(query)
    columns, rows = _number(query, "columns", MOST_COLUMNS, least=1), _number(query, "rows", MOST_ROWS)
    return HeatQuery(
        of=_word(query, "of", OF),
        since=since,
        until=until,
        columns=usual.columns if columns is None else columns,
        offset=_number(query, "offset", MAX_ENVS) or 0,
        rows=usual.rows if rows is None else rows,
        sort=_word(query, "sort", HEAT_SORTS),
        filter=_filter(query),
    )


def _span(query: Mapping[str, str]) -> tuple[float | None, float | None]:
    """From when until when."""
    since, until = _time(query, "from"), _time(query, "to")
    if since is not None and until is not None and since > until:
        raise BadRequest(400, f"from={since:g} is after to={until:g}; exchange them", "from")
    return since, until


def _moment(query: "MultiMapping[str]") -> tuple[float | None, MultiDict[str]]:
    """The moment that is wanted, `None` for the newest, and all other parameters."""
    rest = MultiDict(query)
    return _time({"at": rest.popone("at", "")}, "at"), rest


def _time(query: Mapping[str, str], name: str) -> float | None:
    text = query.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e10:
        raise BadRequest(400, f"{name}={text[:40]!r} is not a time; use Unix seconds, e.g. 1700000000", name)
    return value


def _open(snapshot: Snapshot, wanted: str) -> Finding:
    for finding in snapshot.findings:
        if finding.id == wanted and finding.cleared_at is None:
            return finding
    raise BadRequest(404, f"run {snapshot.run.run_id!r} has no open finding {wanted[:80]!r}", "finding")


def _name(query: Mapping[str, str]) -> str | None:
    name = query.get("by", "").strip()
    if len(name) > _LONGEST_NAME:
        raise BadRequest(400, f"by: a name has at most {_LONGEST_NAME} characters, not {len(name)}", "by")
    return name or None
