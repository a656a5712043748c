"""The queue in service: decisions become operations, operations become durable, then the answer goes out.

Owns the one live `State`, the bytes of every group that is queued or leased, and the order: decide, apply,
log, wait until that is safe, answer. An answer that says nothing new waits too, as it may repeat one that is
not safe yet. Once the log cannot be written nothing more is answered, as the state is ahead of the disk.
Must not know HTTP or JSON. One thread.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeAlias, TypeVar

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Decision, Full, Outcomes, Unknown
from overwatch_rl.rollouts.operations import Accepted, Acknowledged, Expired, Operation, Reset, is_logged
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.telemetry import Telemetry

A = TypeVar("A")
Record: TypeAlias = tuple[Operation, bytes | None]
"""An operation and, of an accepted group, its bytes."""


class Store(Protocol):
    """Where operations are kept."""

    def submit(self, records: Sequence[Record]) -> "Future[None]":
        """Keep records in order; done once they are safe."""

    def room(self, size: int) -> bool:
        """Whether so many bytes more may be kept."""

    def close(self) -> None:
        """Write what was submitted and end."""


class FailedError(Exception):
    """The log cannot be written: nothing more can be answered."""


class Service:
    """Everything the server does but speak."""

    def __init__(
        self, state: State, payloads: Mapping[int, bytes], store: Store, telemetry: Telemetry, *,
        most_bytes: int, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        """`payloads` are the bytes of the groups in `state`, by id."""
        self.state = state
        self.payloads = dict(payloads)
        self.held = sum(map(len, self.payloads.values()))
        """Bytes of all groups that are queued or leased."""
        self.latest = self.payloads[max(self.payloads)] if self.payloads else None
        """The bytes of the group that was accepted last."""
        self.failure: str | None = None
        """Why nothing can be answered any more."""
        self.telemetry = telemetry
        """Told of each operation."""
        self._store = store
        self._most_bytes = most_bytes
        self._clock = clock
        self._now = 0
        self._last: Future[None] | None = None

    def now(self) -> int:
        """Unix nanoseconds that never go back."""
        self._now = max(self._now, self._clock())
        return self._now

    async def do(
        self, decide: Callable[[State, int], Decision[A]], payloads: Mapping[int, bytes] | None = None
    ) -> A:
        """Decide, apply, and answer once that and all before it is safe; raises `FailedError`.

        `payloads` are the bytes of offered groups, by their place in the request.
        """
        answer = self.note(decide, payloads)
        await self._safe()
        return answer

    def note(
        self, decide: Callable[[State, int], Decision[A]], payloads: Mapping[int, bytes] | None = None
    ) -> A:
        """Decide and apply, and do not wait; raises `FailedError`."""
        if self.failure is not None:
            raise FailedError(self.failure)
        decision = decide(self.state, self.now())
        records = [self._apply(operation, payloads or {}) for operation in decision.operations]
        logged = [record for record in records if is_logged(record[0])]
        if logged:
            self._last = self._store.submit(logged)
        return decision.answer

    async def accept(
        self, offers: Sequence[queue.Offer], payloads: Mapping[int, bytes]
    ) -> Outcomes | Full | Unknown:
        """Take the groups of a request; the payload of each is given by its place."""
        if not self.has_room(sum(map(len, payloads.values()))):
            return self.full()
        return await self.do(lambda state, now: queue.accept(state, offers, now), payloads)

    def has_room(self, size: int) -> bool:
        """Whether groups of so many bytes can be kept."""
        return self.held + size <= self._most_bytes and self._store.room(size)

    def full(self) -> Full:
        """The answer where there is no room for more bytes."""
        queued = self.state.account.queued
        return Full(
            queued_groups=queued.groups,
            queued_sequences=queued.sequences,
            retry_s=self.state.limits.retry_s,
        )

    def close(self) -> None:
        """Write what was submitted."""
        self._store.close()

    def _apply(self, operation: Operation, payloads: Mapping[int, bytes]) -> Record:
        gone = list(self._ended(operation))
        self.telemetry.applied(self.state, operation)
        queue.apply(self.state, operation)
        for item in gone:
            self.held -= len(self.payloads.pop(item, b""))
        if not isinstance(operation, Accepted):
            return operation, None
        payload = payloads[operation.index]
        self.payloads[operation.id] = self.latest = payload
        self.held += len(payload)
        return operation, payload

    def _ended(self, operation: Operation) -> Iterator[int]:
        """Groups that an operation ends."""
        match operation:
            case Acknowledged(lease=lease):
                yield from self.state.leases[lease].items
            case Expired(items=items):
                yield from items
            case Reset():
                yield from self.state.items
            case _:
                pass

    async def _safe(self) -> None:
        last = self._last
        if last is None:
            return
        try:
            await asyncio.wrap_future(last)
        except OSError as error:
            self.failure = f"the log cannot be written: {error}; free the disk and start the server again"
            raise FailedError(self.failure) from error
