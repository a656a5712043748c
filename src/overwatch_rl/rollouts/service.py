"""The queue in service: calls wait for the transaction under way, the next one has them all.

Owns the order: decide, commit, answer. Where the database cannot be written, calls are tried again for
`PATIENCE_S`, then answered that they did not happen; one whose commit broke off, that nobody knows.
Must not know HTTP or JSON.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Offer, Outcomes, Source
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import AmbiguousError, Store
from overwatch_rl.rollouts.telemetry import Telemetry
from overwatch_rl.web.faults import RefusedError

A = TypeVar("A")
PATIENCE_S: Final = 10.0
"""So long an answer waits for the database."""
_PAUSE_S: Final = 0.2
"""Between two tries of a transaction."""

_log = logging.getLogger("overwatch_rl.rollouts")


class UnsafeError(RefusedError):
    """What was asked could not be committed in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=503, retry_s=5)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    decide: Callable[[State, int], Any]
    answer: "asyncio.Future[Any]"


class Service:
    """Everything the server does but speak."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.problem: str | None = None
        """Why nothing can be committed now."""
        self.latest: bytes | None = None
        """The body of the group that was accepted here last."""
        self.store = store
        self._calls: list[_Call] = []
        self._thread = ThreadPoolExecutor(1, "rollouts-database")
        self._running: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """The queue as the last transaction left it."""
        return self.store.state

    async def do(self, decide: Callable[[State, int], A]) -> A:
        """Decide in a transaction, and answer once that is committed; raise `UnsafeError`."""
        call = _Call(decide, asyncio.get_running_loop().create_future())
        self._calls.append(call)
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer: A = await call.answer
                return answer
        except TimeoutError:
            why = self.problem or "the disk is slow"
            raise UnsafeError(f"the database was not written within {PATIENCE_S:g} s: {why}") from None

    async def begin(self) -> None:
        """Take up the queue; raise `UnsafeError`."""
        await self.do(lambda state, now: queue.restarted(state, now, is_alone=self.store.is_alone))
        await self.sweep()

    async def sweep(self) -> None:
        """End what time has ended, and report how things stand."""

        def _decide(state: State, now: int) -> None:
            queue.sweep(state, now)
            self.telemetry.swept(state, now)

        await self.do(_decide)

    async def accept(self, offers: Sequence[Offer], source: Source) -> Outcomes:
        """Take the groups of a request."""
        size = sum(len(offer.body) for offer in offers)
        if size and not self.room(size):
            raise self.full()
        outcomes = await self.do(lambda state, now: queue.accept(state, offers, now, source))
        for offer, outcome in zip(offers, outcomes, strict=True):
            if outcome.id is not None:
                self.latest = offer.body
        return outcomes

    def full(self) -> RefusedError:
        """To a sender whose groups find no room."""
        return queue.full(self.state, self.problem)

    def room(self, size: int) -> bool:
        """Whether bodies of so many bytes may be received beside the groups that are held."""
        return self.problem is None and self.store.room(size)

    async def close(self) -> None:
        """End once every call has its answer."""
        if self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown()
        self.store.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._calls:
            calls = [call for call in self._calls if not call.answer.done()]
            self._calls.clear()
            try:
                answers = await loop.run_in_executor(self._thread, self._transact, calls)
                self.problem = None
            except SQLAlchemyError as error:
                self.problem = str(getattr(error, "orig", None) or error)
                self._calls[:0] = calls
                await asyncio.sleep(_PAUSE_S)
                continue
            except AmbiguousError as error:
                reason = f"the database went away during a commit ({error}); this may have happened or not"
                answers = [UnsafeError(reason)] * len(calls)
            for call, answer in zip(calls, answers, strict=True):
                if call.answer.done():
                    continue
                if isinstance(answer, Exception):
                    call.answer.set_exception(answer)
                else:
                    call.answer.set_result(answer)

    def _transact(self, calls: list[_Call]) -> list[Any]:
        """The answers of calls, all in one transaction; a fault of ours costs its own call alone."""
        answers: list[Any] = []

        def _decide(now: int) -> None:
            answers.extend(self._decided(call, now) for call in calls)

        try:
            self.store.transact(_decide)
        except (SQLAlchemyError, AmbiguousError):
            raise
        except Exception as error:  # noqa: BLE001 the border: a fault of ours costs its own call
            if len(calls) == 1:
                return [error]
            return [answer for call in calls for answer in self._transact([call])]
        self.telemetry.emit(self.state.reports)
        self.state.reports.clear()
        return answers

    def _decided(self, call: _Call, now: int) -> Any:
        """The answer, or why nothing was done."""
        try:
            return call.decide(self.state, now)
        except RefusedError as error:
            return error
