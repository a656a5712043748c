"""The I/O thread of a learner whose experience is sampled: it leases nothing, and asks what it is asked for.

Rules: a call waits for two seconds at most, so that the training thread looks around; what a server holds
back or cannot answer now is no error; a priority that is lost is as one that came too late. Must not know
torch, nor what is learned.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, Protocol, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from overwatch_rl.learner.io import Io, IoError, Replay, Sampling
from overwatch_rl.replay.base import Sampled, TableConfig, TableStats
from overwatch_rl.replay.client import Drawn, ReplayError, State
from overwatch_rl.replay.settings import table_words
from overwatch_rl.telemetry.meter import Meter

TRY_S: Final = 2.0
"""So long one call is tried: a shorter one would find a busy server away."""
T = TypeVar("T")


class Steps(Replay, Protocol):
    """What a learner that samples needs of a replay client besides."""

    async def sample(
        self, table: str, count: int, exponent: float | None = None, timeout_s: float = ...
    ) -> Drawn:
        """Draw steps; waits until there are enough."""
        ...

    async def update_priorities(
        self, table: str, drawn: Drawn, priorities: npt.NDArray[np.floating[Any]], timeout_s: float = ...
    ) -> int:
        """Of the steps of a sample; how many were gone."""
        ...

    async def stats(self, timeout_s: float = ...) -> list[list[TableStats]]:
        """By server, of each table."""
        ...


class SampledIo(Io):
    """A memory on a replay server; `start` and `close` it."""

    def __init__(
        self,
        connect: Callable[[Callable[[State, str], None]], Steps],
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

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """Steps, with importance weights of that exponent; `None` where none come within a while.

        Raises `IoError` where none can come any more.
        """
        began = time.perf_counter()
        with self._meter.span("learner.sample") as span:
            try:
                drawn = self._ask(lambda client: self._sampled(client, count, exponent))
            except ReplayError as error:
                self._meter.count("samples", status="empty" if self.away is None else "error")
                if error.is_final:
                    raise IoError(f"replay refuses samples: {error}") from error
                return None
        self._meter.observe("sample_latency", time.perf_counter() - began, span)
        self._meter.count("samples", status="ok")
        self._drawn = drawn
        return drawn.sampled

    def update_priorities(self, sampled: Sampled, priorities: npt.NDArray[np.float64]) -> int:
        """Set those of the newest sample; how many steps of it were gone, 0 where replay is away."""
        drawn = self._drawn
        if drawn is None or drawn.sampled is not sampled:
            raise ValueError("these steps are not those of the newest sample")
        try:
            return self._ask(
                lambda client: client.update_priorities(self._table.name, drawn, priorities, TRY_S)
            )
        except ReplayError as error:
            if error.is_final:
                raise IoError(f"replay refuses priorities: {error}") from error
            return 0

    def accepted(self) -> int | None:
        """Env steps that the table took since its server began; `None` where that is not known now."""
        try:
            return self._ask(self._accepted)
        except ReplayError:
            return None

    def _parts(self, client: Replay) -> list[Coroutine[Any, Any, None]]:  # noqa: ARG002 it is asked
        return []

    def _ask(self, call: Callable[[Steps], Coroutine[Any, Any, T]]) -> T:
        """The result of a call on the loop. Raises `IoError` where the thread has ended."""
        loop = self._loop
        if loop is None or self._failure is not None:
            raise IoError(self._failure or "the I/O thread was not started")
        asked = call(self._client)
        try:
            return asyncio.run_coroutine_threadsafe(asked, loop).result()
        except IoError:
            raise
        except (CancelledError, RuntimeError) as error:
            asked.close()
            raise IoError(f"the I/O thread ended: {error!r}") from error

    async def _sampled(self, client: Steps, count: int, exponent: float) -> Drawn:
        loop = asyncio.get_running_loop()
        ends = loop.time() + TRY_S
        try:
            drawn = await client.sample(self._table.name, count, exponent, TRY_S)
        except ReplayError as error:
            if error.code == grpc.StatusCode.FAILED_PRECONDITION:
                await self._accepted(client)
            await asyncio.sleep(max(0.0, ends - loop.time()))
            raise
        self.encoding = await client.encoding(self._table.name)
        return drawn

    async def _accepted(self, client: Steps) -> int | None:
        (tables,) = await client.stats(TRY_S)
        found = next((one for one in tables if one.name == self._table.name), None)
        if found is not None and found.kind != self._table.kind:
            raise IoError(
                f"table {found.name} of the replay server holds {found.kind}, and steps are to be sampled: "
                f"start it with --table {table_words(self._table)}"
            )
        return None if found is None else found.accepted
