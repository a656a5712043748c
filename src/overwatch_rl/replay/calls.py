"""What each call of `replay.v1` does with the tables, waiting included.

Rules: a call that must wait is tried again whenever a table moved, up to its deadline; no answer states that
it is durable, as tables are in memory; a fault is a `Failure` with its status, or a `ValueError` that begins
with the field's path. Must not know connections nor tokens.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import grpc

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.base import Refused, Sampled, Taken, Wait, Writer
from overwatch_rl.replay.chunk import Encoding
from overwatch_rl.replay.messages import at
from overwatch_rl.replay.service import Answer, Held, Replay

FULL_RETRY_S: Final = 0.25
"""When a client whose append found no room asks again."""
MOST_CREDITS: Final = 1 << 16
MOST_DRAWS: Final = 16
"""Writers whose newest sample is kept, in case that its answer was lost."""
MOST_LETTERS: Final = 256
"""Of the name of who appends, samples or learns: such names are remembered."""
_MARGIN: Final = 0.1
"""Part of a deadline that is left for the answer."""
_MOST_MARGIN_S: Final = 0.25
_REFUSALS: Final[Mapping[str, grpc.StatusCode]] = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "encoding": grpc.StatusCode.FAILED_PRECONDITION,
    "too_large": grpc.StatusCode.INVALID_ARGUMENT,
}

T = TypeVar("T")


@dataclass(slots=True)
class Failure(Exception):  # noqa: N818 an answer of the protocol
    """A call that is answered with a status."""

    code: grpc.StatusCode
    message: str
    retry_s: float | None = None
    """When to ask again, where that may help."""
    waited_for: str | None = None
    """What held the call back until its deadline."""


@dataclass(slots=True)
class Draw:
    """The newest sample of a writer."""

    number: int
    answer: pb.SampleResponse | None = None
    """`None` while it waits for steps."""


@dataclass(slots=True)
class Moves:
    """Wakes calls that wait when a table moved."""

    is_draining: bool = False
    _waiting: set["asyncio.Future[None]"] = field(default_factory=set)

    def moved(self) -> None:
        """Wake all."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    def drain(self) -> None:
        """From now on nothing waits."""
        self.is_draining = True
        self.moved()

    async def next(self, seconds: float) -> bool:
        """Whether a table moved within so many seconds."""
        if self.is_draining:
            raise Failure(grpc.StatusCode.UNAVAILABLE, "the server ends; ask again once it is back")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)
        return True


class Calls:
    """All of them, over one `Replay`."""

    def __init__(self, replay: Replay, most_wait_s: float = 60.0) -> None:
        """`most_wait_s` bounds calls that have no deadline."""
        self.replay = replay
        self.moves = Moves()
        self._most_wait_s = most_wait_s
        self._draws: dict[tuple[str, str], Draw] = {}
        replay.changed = self.moves.moved

    async def store_transition(
        self, request: pb.StoreTransitionRequest, left_s: float | None
    ) -> pb.StoreTransitionResponse:
        """One step."""
        with renamed("transitions[0]", "transition"):
            stored = await self._store(request.table, [request.transition], left_s)
        return pb.StoreTransitionResponse(stored=stored)

    async def store_batch(self, request: pb.StoreBatchRequest, left_s: float | None) -> pb.StoreBatchResponse:
        """Steps, all or none."""
        if not request.transitions:
            raise ValueError("transitions is empty; send one or more")
        return pb.StoreBatchResponse(stored=await self._store(request.table, request.transitions, left_s))

    async def _store(self, table: str, batch: Sequence[pb.Transition], left_s: float | None) -> int:
        name, _ = self._encoding(table)
        return (await self._take(lambda: self.replay.store(name, batch), name, left_s)).steps

    async def append(self, request: pb.AppendRequest, left_s: float | None) -> pb.AppendResponse:
        """Chunks, all or none."""
        name, encoding = self._encoding(request.table)
        if request.encoding_hash != encoding.hash:
            raise Failure(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"encoding_hash is {request.encoding_hash[:60]!r}; table {name} has {encoding.hash}",
            )
        if not request.chunks:
            raise ValueError("chunks is empty; send one or more")
        _check_name("writer", request.writer, least=0)
        chunks = [
            messages.chunk_of(chunk, encoding, f"chunks[{place}]")
            for place, chunk in enumerate(request.chunks)
        ]
        writer = Writer(id=request.writer, number=request.number) if request.writer else None
        taken = await self._take(
            lambda: self.replay.append(name, encoding.hash, chunks, writer), name, left_s
        )
        return pb.AppendResponse(items=taken.items, steps=taken.steps, is_repeat=taken.is_repeat)

    async def _take(self, attempt: Callable[[], Answer], name: str, left_s: float | None) -> Taken:
        """Try until it is taken."""

        def once() -> Taken | None:
            """What an attempt gives, `None` while the limiter holds it back."""
            match attempt():
                case Taken() as taken:
                    return taken
                case Wait(reason="limiter"):
                    return None
                case Wait():
                    full = f"table {name} is full; ask again in a while, or raise its capacity"
                    raise Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, full, retry_s=FULL_RETRY_S)
                case Refused(reason=reason, message=message):
                    raise Failure(_REFUSALS[reason], message)

        return await self._until(once, left_s, lambda: _held_back(self.replay.tables[name]), "limiter")

    async def _until(
        self, attempt: Callable[[], T | None], left_s: float | None, why: Callable[[], str], what: str
    ) -> T:
        """What an attempt gives once it gives something. Raises `Failure` when the time is over."""
        loop = asyncio.get_running_loop()
        left = self._most_wait_s if left_s is None else min(left_s, self._most_wait_s)
        ends = loop.time() + left - min(_MOST_MARGIN_S, left * _MARGIN)
        while True:
            found = attempt()
            if found is not None:
                return found
            if loop.time() >= ends or not await self.moves.next(ends - loop.time()):
                raise Failure(grpc.StatusCode.DEADLINE_EXCEEDED, why(), waited_for=what)

    async def sample(self, request: pb.SampleRequest, left_s: float | None) -> pb.SampleResponse:
        """Steps drawn now, or once there are some."""
        name, encoding = self._encoding(request.table)
        config = request.config
        held = self.replay.tables[name]
        _check_sample(config, held)
        exponent = config.importance_exponent if config.HasField("importance_exponent") else None
        draw = self._draw(name, request)

        def once() -> pb.SampleResponse | None:
            """The writer's sample, drawn where it was not."""
            if draw.answer is None:
                sampled = self.replay.sample(name, config.batch_size, exponent)
                if sampled is not None:
                    draw.answer = _sample_message(sampled, encoding.hash, columnar=request.columnar)
            return draw.answer

        return await self._until(
            once, left_s, lambda: f"table {name} has too few steps to sample: {_counts(held)}", "steps"
        )

    def _draw(self, name: str, request: pb.SampleRequest) -> Draw:
        """That of the request, which may have been made; what it sets before the draw is set once."""
        _check_name("writer", request.writer, least=0)
        key, number = (name, request.writer), request.number
        known = self._draws.get(key)
        if known is not None and number == known.number:
            return known
        if known is not None and number < known.number:
            raise ValueError(f"number is {number}; writer {request.writer[:60]!r} had {known.number}: go on")
        if request.HasField("priorities"):
            with at("priorities"):
                self._set_priorities(name, request.priorities)
        draw = Draw(number)
        if request.writer:
            self._draws.pop(key, None)
            self._draws[key] = draw
            if len(self._draws) > MOST_DRAWS:
                del self._draws[next(iter(self._draws))]
        return draw

    async def lease(self, request: pb.LeaseRequest, left_s: float | None) -> pb.LeaseResponse:
        """The next lease of a learner, now, or once there are enough steps."""
        return pb.LeaseResponse(lease=await self._lease(request, request.after, left_s))

    async def _lease(self, request: pb.LeaseRequest, after: int, left_s: float | None) -> pb.LeaseOf:
        name, encoding = self._encoding(request.table)
        _check_name("learner", request.learner)
        if not request.steps:
            raise ValueError("steps is 0; lease one or more")
        held = self.replay.tables[name]
        lease = await self._until(
            lambda: self.replay.lease(name, request.learner, request.steps, after),
            left_s,
            lambda: f"table {name} has fewer than {request.steps} steps to lease: {_counts(held)}",
            "steps",
        )
        return messages.lease_message(lease, encoding)

    async def acknowledge(self, request: pb.AcknowledgeRequest) -> pb.AcknowledgeResponse:
        """Leases that are used."""
        name, _ = self._encoding(request.table)
        _check_name("learner", request.learner)
        return pb.AcknowledgeResponse(items=self.replay.acknowledge(name, request.learner, request.upto))

    async def extend(self, request: pb.ExtendRequest) -> pb.ExtendResponse:
        """A new deadline."""
        name, _ = self._encoding(request.table)
        _check_name("learner", request.learner)
        return pb.ExtendResponse(leases=self.replay.extend(name, request.learner))

    async def resume(self, request: pb.ResumeRequest) -> pb.ResumeResponse:
        """A learner's new life."""
        name, _ = self._encoding(request.table)
        _check_name("learner", request.learner)
        if not 0 <= request.cursor < 1 << 62:
            raise ValueError(f"cursor is {request.cursor}; send the number of a lease, below 2^62")
        return self.replay.resume(name, request.learner, request.cursor)

    async def update_priorities(self, request: pb.UpdatePrioritiesRequest) -> pb.UpdatePrioritiesResponse:
        """Those of sampled steps."""
        name, _ = self._encoding(request.table)
        return self._set_priorities(name, request)

    def _set_priorities(self, name: str, request: pb.UpdatePrioritiesRequest) -> pb.UpdatePrioritiesResponse:
        slots, generations, priorities = messages.ids_of(request)
        with at("new_priorities"):
            late = self.replay.update_priorities(name, slots, generations, priorities)
        return pb.UpdatePrioritiesResponse(updated=len(slots) - late, late=late)

    async def clear(self, request: pb.ClearRequest) -> pb.ClearResponse:
        """Remove."""
        name, _ = self._encoding(request.table)
        return pb.ClearResponse(removed=self.replay.clear(name, request))

    async def get_stats(self, request: pb.GetStatsRequest) -> pb.GetStatsResponse:
        """Of all tables, or of one."""
        name = request.table and self.replay.held(request.table).config.name
        return messages.stats_message([one for one in self.replay.stats() if name in ("", one.name)])

    async def declare(self, request: pb.DeclareRequest) -> pb.DeclareResponse:
        """An encoding, once."""
        held, encoding = self.replay.held(request.table), messages.encoding_of(request.encoding)
        declared = self.replay.declare(held.config.name, encoding)
        self.moves.moved()
        return pb.DeclareResponse(encoding_hash=declared)

    async def get_encoding(self, request: pb.GetEncodingRequest) -> pb.GetEncodingResponse:
        """That of a table."""
        name, encoding = self._encoding(request.table)
        return pb.GetEncodingResponse(
            encoding=messages.encoding_message(encoding),
            encoding_hash=encoding.hash,
            kind=self.replay.tables[name].config.kind,
        )

    async def sample_stream(
        self, requests: AsyncIterator[pb.SampleStreamRequest]
    ) -> AsyncIterator[pb.SampleStreamResponse]:
        """Answers while there are credits; the stream ends once the client gives none and has closed."""
        first = await anext(requests, None)
        if first is None or first.WhichOneof("begin") is None:
            raise ValueError("begin: the first message of a stream has sample or lease")
        credits_ = Credits(first.credits)
        reader = asyncio.ensure_future(credits_.read(requests))
        try:
            async with aclosing(self._answers(first)) as answers:
                while await credits_.spend():
                    yield await anext(answers)
        finally:
            reader.cancel()

    async def _answers(self, first: pb.SampleStreamRequest) -> AsyncGenerator[pb.SampleStreamResponse]:
        after = first.lease.after
        while True:
            try:
                if first.WhichOneof("begin") == "sample":
                    yield pb.SampleStreamResponse(sample=await self.sample(first.sample, None))
                else:
                    lease = await self._lease(first.lease, after, None)
                    after = lease.number
                    yield pb.SampleStreamResponse(lease=lease)
            except Failure as failure:
                if failure.waited_for is None:
                    raise

    def _encoding(self, table: str) -> tuple[str, Encoding]:
        return self.replay.held(table).config.name, self.replay.encoding(table)


class Credits:
    """How many more answers a client takes."""

    def __init__(self, first: int) -> None:
        self._left = min(first, MOST_CREDITS)
        self._is_closed = False
        self._fault: Exception | None = None
        self._came = asyncio.Event()

    async def read(self, requests: AsyncIterator[pb.SampleStreamRequest]) -> None:
        """Add what comes, until the client has sent all."""
        try:
            async for request in requests:
                self._left = min(self._left + request.credits, MOST_CREDITS)
                self._came.set()
        except Exception as error:  # noqa: BLE001 raised to the reader
            self._fault = error
        finally:
            self._is_closed = True
            self._came.set()

    async def spend(self) -> bool:
        """Take one once there is one; false where none will come."""
        while not self._left:
            if self._fault is not None:
                raise self._fault
            if self._is_closed:
                return False
            self._came.clear()
            await self._came.wait()
        self._left -= 1
        return True


def _check_name(what: str, name: str, least: int = 1) -> None:
    if not least <= len(name) <= MOST_LETTERS:
        raise ValueError(f"{what} is {name[:60]!r}; name the {what} in 1 to {MOST_LETTERS} letters")


@contextmanager
def renamed(path: str, wanted: str) -> Iterator[None]:
    """A failure within names a field of the request, not one of what was made of it."""
    try:
        yield
    except Failure as failure:
        failure.message = failure.message.replace(path, wanted)
        raise


def _check_sample(config: pb.SampleConfig, held: Held) -> None:
    if not config.batch_size:
        raise ValueError("config.batch_size is 0; sample one or more")
    for name in ("env_id", "min_timestamp", "max_timestamp"):
        if getattr(config, name):
            raise ValueError(f"config.{name} is set; samples are of the whole table, so leave it out")
    if config.HasField("priority_alpha"):
        raise ValueError("config.priority_alpha is set; it is the table's own, so leave it out")
    selector = held.config.selector
    if config.HasField("prioritized") and config.prioritized != (selector == "prioritised"):
        raise ValueError(f"config.prioritized is {config.prioritized}; the table's selector is {selector}")


def _sample_message(sampled: Sampled, encoding_hash: str, *, columnar: bool) -> pb.SampleResponse:
    return pb.SampleResponse(
        total_available=sampled.available,
        accepted=sampled.accepted,
        encoding_hash=encoding_hash,
        rows=messages.rows_message(sampled) if columnar else None,
        weights=() if columnar else sampled.weights.tolist(),
        transitions=() if columnar else messages.transition_messages(sampled),
    )


def _held_back(held: Held) -> str:
    return f"the limiter of table {held.config.name} holds appends back: {_counts(held)}; sample more"


def _counts(held: Held) -> str:
    limiter = held.limiter
    return (
        f"{limiter.inserted} steps inserted and {limiter.sampled} sampled, "
        f"{limiter.rate.min_steps} needed to begin, samples per insert {limiter.rate.samples_per_insert}"
    )


def _at_once(method: Callable[[Calls, Any], Awaitable[Any]]) -> "Unary":
    """A call that waits for no table."""
    return lambda calls, request, _: method(calls, request)


Unary = Callable[[Calls, Any, float | None], Awaitable[Any]]
UNARY: Final[Mapping[str, Unary]] = {
    "StoreTransition": Calls.store_transition,
    "StoreBatch": Calls.store_batch,
    "Sample": Calls.sample,
    "GetStats": _at_once(Calls.get_stats),
    "UpdatePriorities": _at_once(Calls.update_priorities),
    "Clear": _at_once(Calls.clear),
    "Declare": _at_once(Calls.declare),
    "GetEncoding": _at_once(Calls.get_encoding),
    "Append": Calls.append,
    "Lease": Calls.lease,
    "Acknowledge": _at_once(Calls.acknowledge),
    "Extend": _at_once(Calls.extend),
    "Resume": _at_once(Calls.resume),
}
"""Calls with one request and one answer, by their name in the protocol."""
