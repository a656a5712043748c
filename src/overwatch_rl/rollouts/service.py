"""The queue in service: decisions become operations, operations become durable, then the answer goes out.

Owns the order: decide, apply, log, wait until that is safe, answer. An answer that reports nothing new waits
too, as it may repeat one that is not safe yet. Where the log cannot be written within `PATIENCE_S` no answer
is given: what was decided stands, and is written once the disk takes it. Must not know HTTP or JSON.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeAlias, TypeVar

from overwatch_rl.clock import elapsing
from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Decision, Full, Offer, Outcomes, Reused, Unknown
from overwatch_rl.rollouts.operations import Accepted, Expired, Operation
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import StoreClosedError
from overwatch_rl.rollouts.telemetry import Telemetry

A = TypeVar("A")
Record: TypeAlias = tuple[Operation, bytes | None]
"""An operation and, of an accepted group, its bytes."""

PATIENCE_S: Final = 10.0
"""So long an answer waits for the disk."""

_log = logging.getLogger("overwatch_rl.rollouts")


class Store(Protocol):
    """Where operations are kept, and the bytes of groups that are queued or leased."""

    payloads: dict[int, bytes]

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now."""

    def keep(self, records: Iterable[Record]) -> "Future[None]":
        """Keep records that were applied, in order; done once they are safe."""

    def room(self, size: int) -> bool:
        """Whether groups of so many bytes may be kept."""


class UnsafeError(Exception):
    """What was decided could not be made safe in time; whether it stands is seen once it is."""


class Service:
    """Everything the server does but speak."""

    def __init__(
        self, state: State, store: Store, telemetry: Telemetry, clock: Callable[[], int] | None = None
    ) -> None:
        """`clock` gives nanoseconds that never go back; begin it where the last life of the log ended."""
        self.state = state
        self.telemetry = telemetry
        self.latest = store.payloads[max(store.payloads)] if store.payloads else None
        """The bytes of the group that was accepted last."""
        self._store = store
        self.now = clock or elapsing(time.time_ns())
        self._last: Future[None] | None = None

    @property
    def payloads(self) -> Mapping[int, bytes]:
        """The bytes of the groups that are queued or leased, by id."""
        return self._store.payloads

    @property
    def problem(self) -> str | None:
        """Why nothing can be made safe now."""
        return self._store.problem

    async def do(
        self, decide: Callable[[State, int], Decision[A]], payloads: Mapping[int, bytes] | None = None
    ) -> A:
        """Decide, apply, and answer once that and all before it is safe; raises `UnsafeError`.

        `payloads` are the bytes of offered groups, by their place in the request.
        """
        answer = self.note(decide, payloads)
        await self.safe()
        return answer

    async def safe(self) -> None:
        """Wait until all that was decided is safe; raises `UnsafeError`."""
        if self._last is not None and not self._last.done():
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.wrap_future(self._last)
            except TimeoutError:
                why = self.problem or "the disk is slow"
                raise UnsafeError(f"the log was not written within {PATIENCE_S:g} s: {why}") from None
            except StoreClosedError as error:
                raise UnsafeError(str(error)) from error

    def note(
        self, decide: Callable[[State, int], Decision[A]], payloads: Mapping[int, bytes] | None = None
    ) -> A:
        """Decide and apply, and do not wait."""
        decision = decide(self.state, self.now())
        records = [self._apply(operation, payloads or {}) for operation in decision.operations]
        if records:
            made = self._store.keep(records)
            # What is safe at once may hold nothing for the disk, and shows nothing of what came before it.
            if not made.done():
                self._last = made
        return decision.answer

    async def accept(
        self, offers: Sequence[Offer], payloads: Mapping[int, bytes]
    ) -> Outcomes | Full | Reused | Unknown:
        """Take the groups of a request; the payload of each is given by its place."""
        if payloads and not self._store.room(sum(map(len, payloads.values()))):
            return self.full()
        return await self.do(lambda state, now: queue.accept(state, offers, now), payloads)

    def full(self) -> Full:
        """No room for more groups."""
        queued, retry_s = self.state.account.queued, self.state.limits.retry_s
        return Full(queued_groups=queued.groups, queued_sequences=queued.sequences, retry_s=retry_s)

    def room(self, size: int) -> bool:
        """Whether bodies of so many bytes may be received beside the groups that are held."""
        return self._store.room(size)

    def _apply(self, operation: Operation, payloads: Mapping[int, bytes]) -> Record:
        self.telemetry.applied(self.state, operation)
        if isinstance(operation, Expired) and operation.reason == "returned":
            _log.warning("groups %s came back unused too often: they are set aside", operation.items)
        queue.apply(self.state, operation)
        if not isinstance(operation, Accepted):
            return operation, None
        self.latest = payloads[operation.index]
        return operation, self.latest
