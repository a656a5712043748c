"""The learner's one I/O thread: experience in, acknowledgements out, heartbeats and commands beside them.

Owns the event loop, and the two ways by which the training thread meets it: a bounded queue of leases, and
calls that return at once. Rules: the training thread never waits for a service but for the next lease; no
more leases are fetched than the queue has room for; when a part of this thread ends, the training thread is
woken with the reason. Must not know torch, nor what is learned.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from overwatch_rl.replay.base import Resumed, TableStats
from overwatch_rl.replay.chunk import Encoding
from overwatch_rl.replay.client import Leased, ReplayClient, ReplayError, State
from overwatch_rl.telemetry.meter import Meter

_log: Final = logging.getLogger(__name__)
_EXTEND_S: Final = 60.0
"""Leases get a new deadline so often, while they wait for an update."""
_AGAIN_S: Final = 1.0
_POLL_INTERVAL_S: Final = 1.0
"""Between two looks at the table, while the training thread waits in vain."""
_END_S: Final = 15.0


class IoError(RuntimeError):
    """The I/O thread has ended; why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What is fetched."""

    table: str
    learner: str
    """Name under which leases are held."""
    steps: int
    """Of a lease, at least."""
    depth: int
    """Leases that wait here at most."""
    cursor: tuple[int, ...]
    """By server the last lease that is in the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Replay does not answer."""

    since: float
    """By the monotonic clock."""
    why: str


class Io:
    """The thread; `start` and `close` it."""

    def __init__(
        self,
        connect: Callable[[Callable[[State, str], None]], ReplayClient],
        sampling: Sampling,
        meter: Meter,
        attend: Callable[[], Awaitable[None]] | None = None,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """`connect` makes the client, given what to call with its state; `attend` talks to control.

        `beside` are further parts, which run until the end.
        """
        self._connect = connect
        self._sampling = sampling
        self._meter = meter
        self._attend = attend
        self._beside = beside
        self._leases: deque[Leased] = deque()
        self._news = threading.Condition()
        self._failure: str | None = None
        self._upto: tuple[int, ...] | None = None
        self.encoding: Encoding | None = None
        """What the table's bytes mean; there when the first lease is."""
        self.resumed: list[Resumed] | None = None
        """How the table took this life's beginning; `None` until it answered."""
        self.is_held_back = False
        """Whether no lease can come, since the table is full of those that are not acknowledged."""
        self._is_wanted = False
        """Whether a lease is fetched that the training thread waits for, beyond those that wait here."""
        self._is_vain = False
        """Whether the training thread waited last without a lease."""
        self.away: Away | None = None
        """Since when and why replay does not answer."""
        self._posted: set[asyncio.Future[None]] = set()
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="learner-io", daemon=True)

    def start(self) -> None:
        """Begin; returns when the loop runs."""
        self._thread.start()
        with self._news:
            self._news.wait_for(lambda: self._loop is not None or self._failure is not None)

    def next(self, timeout: float) -> Leased | None:
        """The next lease, waited for so long. Raises `IoError` when none can come any more."""
        with self._news:
            if not self._is_wanted:
                self._is_wanted = True
                self._call(self._room.release)
            self._news.wait_for(lambda: self._leases or self._failure, timeout)
            self._is_vain = not self._leases
            if self._leases:
                self.is_held_back = self._is_wanted = False
                return self._leases.popleft()
            if self._failure is not None:
                raise IoError(self._failure)
            return None

    def depth(self) -> int:
        """Leases that wait."""
        return len(self._leases)

    def hold(self, *, is_held: bool) -> None:
        """Fetch no more, or again."""
        self._call(self._open.clear if is_held else self._open.set)

    def acknowledge(self, upto: Sequence[int]) -> None:
        """By server the last lease that is safe; sent until it is taken, a later one before an earlier."""
        self._upto = tuple(upto)
        self._call(self._unsent.set)

    def post(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have something called on the loop; what it raises is a line of the log."""
        self._call(lambda: self._posted.add(asyncio.ensure_future(_quietly(call))))

    def close(self) -> None:
        """Send what waits, end the loop and the thread. A second call does nothing."""
        self._call(self._closing.set)
        self._thread.join(2 * _END_S)

    def _call(self, what: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # closed: the reason is raised by `next`
                self._loop.call_soon_threadsafe(what)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 the training thread raises it
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._fail("it was closed")

    def _fail(self, why: str) -> None:
        with self._news:
            self._failure = f"the I/O thread ended: {why}"
            self._news.notify_all()

    async def _run(self) -> None:
        self._room = asyncio.Semaphore(self._sampling.depth)
        self._open, self._unsent, self._closing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._open.set()
        client = self._client = self._connect(self._on_state)
        with self._news:
            self._loop = asyncio.get_running_loop()
            self._news.notify_all()
        parts = [*self._parts(client), *(part() for part in self._beside)]
        tasks = {asyncio.ensure_future(part) for part in parts}
        control = None if self._attend is None else asyncio.ensure_future(self._attend())
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await _until(closing, tasks | ({control} if control else set()))
        finally:
            if control is not None and not control.done():
                await asyncio.wait({control}, timeout=_END_S)
            if self._unsent.is_set() and self._upto is not None:
                with suppress(ReplayError, TimeoutError):
                    await asyncio.wait_for(self._send(client, self._upto), _END_S)
            for task in (*tasks, closing, *([control] if control else [])):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    def _parts(self, client: ReplayClient) -> list[Coroutine[Any, Any, None]]:
        """What runs on the loop until the end."""
        return [self._prefetch(client), self._acknowledge(client), self._extend(client), self._look(client)]

    def _on_state(self, state: State, why: str) -> None:
        self.away = None if state == "ok" else Away(since=time.monotonic(), why=why)

    async def _prefetch(self, client: ReplayClient) -> None:
        sampling = self._sampling
        self.resumed = await self._until_taken(
            lambda: client.resume(sampling.table, sampling.learner, sampling.cursor)
        )
        self.encoding = await self._until_taken(lambda: client.encoding(sampling.table))
        after = [one.next_number - 1 for one in self.resumed]
        stream = client.stream(sampling.table, sampling.learner, sampling.steps, 1, after)
        while True:
            await self._open.wait()
            await self._room.acquire()
            began = time.perf_counter()
            with self._meter.span("learner.sample") as span:
                try:
                    leased = await anext(stream)
                except ReplayError:
                    self._meter.count("samples", status="error")
                    raise
            self._meter.observe("sample_latency", time.perf_counter() - began, span)
            self._meter.count("samples", status="ok")
            with self._news:
                self._leases.append(leased)
                self._news.notify_all()

    async def _until_taken(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What a call gives, once a server answers."""
        while True:
            try:
                return await call()
            except ReplayError as error:
                # A server that answers waits as this does: the first actor declares the table's encoding.
                is_early = self.away is None and not error.is_final
                self._meter.count("samples", status="empty" if is_early else "error")
                if error.is_final:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _acknowledge(self, client: ReplayClient) -> None:
        while True:
            await self._unsent.wait()
            upto = self._upto
            if upto is None:
                raise AssertionError("nothing is to be sent")
            self._unsent.clear()
            try:
                await self._send(client, upto)
            except ReplayError:
                self._unsent.set()
                await asyncio.sleep(_AGAIN_S)

    async def _send(self, client: ReplayClient, upto: tuple[int, ...]) -> None:
        await client.acknowledge(self._sampling.table, self._sampling.learner, upto)

    async def _look(self, client: ReplayClient) -> None:
        """See why the training thread waits in vain."""
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            if self._is_vain:
                with suppress(ReplayError):
                    self._see(await self._requested(client))

    def _see(self, tables: Sequence[TableStats]) -> None:
        # A lease may have come since they were asked for.
        self.is_held_back = self._is_vain and any(map(_is_held_back, tables))

    async def _requested(self, client: ReplayClient) -> list[TableStats]:
        name = self._sampling.table
        return [one for server in await client.stats() for one in server if one.name == name]

    async def _extend(self, client: ReplayClient) -> None:
        while True:
            await asyncio.sleep(_EXTEND_S)
            with suppress(ReplayError):
                await client.extend(self._sampling.table, self._sampling.learner)


def _is_held_back(table: TableStats) -> bool:
    """Whether a table has no room, and most of what it holds is leased."""
    return table.is_full and (table.leased or 0) > (table.queued or 0)


async def _until(closing: "asyncio.Future[Any]", tasks: "set[asyncio.Future[Any]]") -> None:
    """Wait until it is asked to close. Raises what a task raised."""
    waiting = set(tasks)
    while not closing.done():
        done, _ = await asyncio.wait({closing, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {closing}:
            task.result()
        waiting -= done


async def _quietly(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await call()
    except Exception:  # noqa: BLE001 a record that is not made costs nothing else
        _log.warning("a record was not made", exc_info=True)
