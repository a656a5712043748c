"""The I/O thread of a learner whose experience is sampled: it leases nothing, and asks what it is asked for.

Rules: the training thread waits for two seconds at most, then looks around while its sample stays asked for;
each sample is drawn once, after the priorities of the one before, which go with it. What a server holds back
or cannot answer now is no error; a priority that is lost is as one that came too late. Must not know torch,
nor what is learned.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from overwatch_rl.learner.io import Io, IoError, Sampling
from overwatch_rl.replay.base import Sampled, TableConfig
from overwatch_rl.replay.client import Drawn, ReplayClient, ReplayError, Revised, State
from overwatch_rl.replay.settings import table_words
from overwatch_rl.telemetry.meter import Meter

TRY_S: Final = 2.0
"""So long the training thread waits: less would find a busy server away."""
_AGAIN_S: Final = 1.0
"""After a sample that was refused for now."""
_LONG_S: Final = 86_400.0
"""Of a call that goes on until it is answered; each of its tries is shorter."""
T = TypeVar("T")


class SampledIo(Io):
    """A memory on a replay server; `start` and `close` it."""

    def __init__(
        self,
        connect: Callable[[Callable[[State, str], None]], ReplayClient],
        table: TableConfig,
        meter: Meter,
        attend: Callable[[], Awaitable[None]] | None = None,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """As `Io`; `table` is what the server's table should be."""
        nothing = Sampling(table=table.name, learner="", steps=0, depth=1, cursor=())
        super().__init__(connect, nothing, meter, attend, beside)
        self._table = table
        self._drawn: Drawn | None = None
        self._revised: Revised | None = None
        """What goes with the next sample."""
        self._pending: Future[Drawn] | None = None
        self._since = 0.0

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """Steps, with importance weights of that exponent; `None` where none come within a while.

        Then ask again: what comes is what was asked for first. Raises `IoError` where none can come any more.
        """
        with self._meter.span("learner.sample") as span:
            if self._pending is None:
                revised, self._revised = self._revised, None
                self._since = time.perf_counter()
                self._pending = self._query(lambda client: self._sampled(client, count, exponent, revised))
            try:
                drawn = self._answer(self._pending)
            except TimeoutError:
                self._count_none()
                return None
            except ReplayError as error:
                self._pending = None
                self._count_none()
                if error.is_final:
                    raise IoError(f"replay refuses samples: {error}") from error
                return None
        self._pending = None
        self._meter.observe("sample_latency", time.perf_counter() - self._since, span)
        self._meter.count("samples", status="ok")
        self._drawn = drawn
        return drawn.sampled

    def update_priorities(self, sampled: Sampled, priorities: npt.NDArray[np.float64]) -> None:
        """Set those of the newest sample: with the next one, or by `settle`."""
        drawn = self._drawn
        if drawn is None or drawn.sampled is not sampled:
            raise ValueError("these steps are not those of the newest sample")
        self._revised = Revised(drawn=drawn, priorities=priorities)

    def settle(self) -> None:
        """Set priorities now, and wait until they are; they are lost where replay is away."""
        revised, self._revised = self._revised, None
        if revised is None:
            return
        name, drawn, priorities = self._table.name, revised.drawn, revised.priorities
        requested = self._query(lambda client: client.update_priorities(name, drawn, priorities, _LONG_S))
        while True:
            try:
                self._answer(requested)
            except TimeoutError:
                if self.away is None:
                    continue
                requested.cancel()
            except ReplayError as error:
                if error.is_final:
                    raise IoError(f"replay refuses priorities: {error}") from error
            return

    def _count_none(self) -> None:
        self._meter.count("samples", status="empty" if self.away is None else "error")

    def _parts(self, client: ReplayClient) -> list[Coroutine[Any, Any, None]]:  # noqa: ARG002 it is asked
        return []

    def _query(self, call: Callable[[ReplayClient], Coroutine[Any, Any, T]]) -> Future[T]:
        """Begin a call on the loop. Raises `IoError` where the thread has ended."""
        loop = self._loop
        if loop is None or self._failure is not None:
            raise IoError(self._failure or "the I/O thread was not started")
        requested = call(self._client)
        try:
            return asyncio.run_coroutine_threadsafe(requested, loop)
        except RuntimeError as error:
            requested.close()
            raise IoError(f"the I/O thread ended: {error!r}") from error

    def _answer(self, requested: Future[T]) -> T:
        """What it gave. Raises `TimeoutError` after a while, `IoError` where the thread has ended."""
        try:
            return requested.result(TRY_S)
        except CancelledError as error:
            raise IoError(self._failure or "the I/O thread ended") from error
        except TimeoutError:
            if self._failure is not None:
                raise IoError(self._failure) from None
            raise

    async def _sampled(
        self, client: ReplayClient, count: int, exponent: float, revised: Revised | None
    ) -> Drawn:
        name = self._table.name
        try:
            await client.encoding(name, TRY_S)
            drawn = await client.draw(name, count, exponent, revised, _LONG_S)
            self.encoding = await client.encoding(name, TRY_S)
        except ReplayError as error:
            if error.code == grpc.StatusCode.FAILED_PRECONDITION:
                await self._check_kind(client)
            await asyncio.sleep(_AGAIN_S)
            raise
        return drawn

    async def _check_kind(self, client: ReplayClient) -> None:
        (tables,) = await client.stats(TRY_S)
        found = next((one for one in tables if one.name == self._table.name), None)
        if found is not None and found.kind != self._table.kind:
            raise IoError(
                f"table {found.name} of the replay server holds {found.kind}, and steps are to be sampled: "
                f"start it with --table {table_words(self._table)}"
            )
