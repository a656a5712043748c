"""A client of replay servers, for an event loop.

Rules: what may succeed later is tried again with growing, jittered pauses until the caller's deadline; a
repeated append is stored once; `state` is `degraded` while a server does not answer. With several servers
an environment's chunks all go to one, by a hash of its name, and leases are numbered by each for itself: a
cursor is one number a server, in their order. What comes is checked before it is given on, so that decoding
reads no byte that is not there.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import uuid4

import grpc
import numpy as np
import numpy.typing as npt
import xxhash

from overwatch.sdk import Run
from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.appending import Appending, requests_of
from overwatch_rl.replay.base import LeaseOf, Resumed, Sampled, TableStats
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.connection import Access, Line, Metadata, Patience, ReplayError, State
from overwatch_rl.replay.lines import kind_of
from overwatch_rl.replay.telemetry import Tower
from overwatch_rl.web.spans import CONSUMED_A_SECOND, HEADER, Spans

__all__ = ["Access", "Appended", "Drawn", "Leased", "Patience", "ReplayClient", "ReplayError", "State"]

USUAL_S: Final = 60.0
"""How long calls are tried that are given no time."""
_REPORT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A lease as it came."""

    shard: int
    """Which server: its place in `servers`."""
    lease: LeaseOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A sample as it came."""

    shard: int
    sampled: Sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """Priorities of the steps of a sample."""

    drawn: Drawn
    priorities: npt.NDArray[np.floating[Any]]

    def message(self, table: str) -> pb.UpdatePrioritiesRequest:
        """As it is sent."""
        return pb.UpdatePrioritiesRequest(
            table=table,
            slots=self.drawn.sampled.slots.astype("<i8").tobytes(),
            generations=self.drawn.sampled.generations.astype("<i8").tobytes(),
            new_priorities=self.priorities.tolist(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What the servers took."""

    items: int
    steps: int


Arrived: TypeAlias = "asyncio.Queue[tuple[int, LeaseOf | Exception]]"


def _put(arrived: Arrived, shard: int, found: LeaseOf | Exception) -> None:
    arrived.put_nowait((shard, found))


def shard_of(env: str, shards: int) -> int:
    """Which of so many servers has an environment's chunks: xxh3-64 of its name in UTF-8, modulo them.

    >>> shard_of("env-1", 1)
    0
    """
    return xxhash.xxh3_64_intdigest(env.encode()) % shards


class ReplayClient:
    """One loop uses it. `servers` are `host:port`, or `grpcs://host:port` with TLS, always in one order."""

    def __init__(
        self,
        servers: Sequence[str],
        access: Access | None = None,
        patience: Patience | None = None,
        *,
        on_state: Callable[[State, str], None] = lambda _state, _why: None,
        run: Run | None = None,
    ) -> None:
        """`on_state` is given each new state and why; calls are spans of `run`, named to the servers.

        Each server's address is of a row of `lines.KINDS`.
        """
        if not servers:
            raise ValueError("servers is empty; name one replay server or more")
        self.state: State = "ok"
        self.writer = uuid4().hex
        """This life of the client, to its servers."""
        access, patience = access or Access(), patience or Patience()
        self._kinds = [kind_of(server) for server in servers]
        self._lines = [
            kind.line(server, access, patience, self._turned)
            for kind, server in zip(self._kinds, servers, strict=True)
        ]
        self._access, self._on_state = access, on_state
        self._run, self._spans = run, Spans(run, CONSUMED_A_SECOND)
        self._encodings: dict[str, Encoding] = {}
        self._declared: set[str] = set()
        self._numbers = itertools.count(1)
        self._appending: Appending | None = None
        self._append_lock = asyncio.Lock()
        self._turn = itertools.cycle(range(len(servers)))

    def _turned(self, _: State, why: str) -> None:
        state: State = "ok" if all(line.state == "ok" for line in self._lines) else "degraded"
        if state != self.state:
            self.state = state
            self._on_state(state, why)

    @contextmanager
    def _span(self, name: str) -> Iterator[Metadata]:
        """Measure a call, below what the run is in; the metadata that names the span to the server."""
        above = None if self._run is None else self._run.traceparent
        with self._spans.root(f"replay.{name}", above or None) as span:
            yield [] if span is None else [(HEADER, span.traceparent)]

    async def _all(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        return list(await asyncio.gather(*calls))

    async def declare(self, table: str, encoding: Encoding, timeout_s: float = USUAL_S) -> None:
        """Fix what the bytes of a table mean, before the first append; again where a server forgot it."""
        request = pb.DeclareRequest(table=table, encoding=messages.encoding_message(encoding))
        await self._all([line.call("Declare", request, timeout_s) for line in self._lines])
        self._encodings[table] = encoding
        self._declared.add(table)

    async def encoding(self, table: str, timeout_s: float = USUAL_S) -> Encoding:
        """That of a table; waits until one is declared."""
        if table not in self._encodings:
            answer = await self._lines[0].call(
                "GetEncoding", pb.GetEncodingRequest(table=table), timeout_s, is_early=True
            )
            self._encodings[table] = messages.encoding_of(answer.encoding)
        return self._encodings[table]

    async def append(self, table: str, chunks: Sequence[Chunk], timeout_s: float = USUAL_S) -> Appended:
        """Append; waits while the limiter holds back, the table is full, or a server is away.

        After an error the same chunks may be appended again: what was stored of them is not stored twice.
        """
        ends = asyncio.get_running_loop().time() + timeout_s
        encoding = await self.encoding(table, timeout_s)
        async with self._append_lock:
            appending = self._appending
            if appending is None or not appending.is_of(table, chunks):
                for place, chunk in enumerate(chunks):
                    with messages.at(f"chunks[{place}]"):
                        encoding.check(chunk)
                shards: list[list[Chunk]] = [[] for _ in self._lines]
                for chunk in chunks:
                    shards[shard_of(chunk.env, len(shards))].append(chunk)
                most, begun = self._access.most_message_bytes, self._requests(table, encoding)
                parts = [requests_of(own, encoding, most, begun) for own in shards]
                appending = self._appending = Appending(table, tuple(chunks), parts)
            with self._span("append") as metadata:
                await self._all(
                    [
                        self._append_to(line, own, ends, metadata)
                        for line, own in zip(self._lines, appending.shards, strict=True)
                    ]
                )
            self._appending = None
        return Appended(items=len(chunks), steps=sum(chunk.steps for chunk in chunks))

    def _requests(self, table: str, encoding: Encoding) -> Iterator[pb.AppendRequest]:
        for number in self._numbers:
            yield pb.AppendRequest(
                table=table, encoding_hash=encoding.hash, writer=self.writer, number=number
            )

    async def _append_to(
        self, line: Line, requests: list[pb.AppendRequest], ends: float, metadata: Metadata
    ) -> None:
        """All of one server, in order; those that are stored leave the list."""
        while requests:
            request = requests[0]
            left_s = ends - asyncio.get_running_loop().time()
            try:
                await line.call("Append", request, left_s, metadata)
            except ReplayError as error:
                if error.code != grpc.StatusCode.FAILED_PRECONDITION or request.table not in self._declared:
                    raise
                await self.declare(request.table, self._encodings[request.table], left_s)
                await line.call("Append", request, left_s, metadata)
            requests.pop(0)

    async def stream(
        self, table: str, learner: str, steps: int, depth: int = 4, after: Sequence[int] = ()
    ) -> AsyncIterator[Leased]:
        """Leases of at least `steps` steps; at most `depth` wait here, one a server at least.

        It survives its servers. `after`: by server the last lease that the learner got, or
        `Resumed.next_number - 1` where it begins at a checkpoint.
        """
        shards = len(self._lines)
        start = list(after) or [0] * shards
        self._check_cursor(start)
        arrived: Arrived = asyncio.Queue()
        streams = [
            self._kinds[shard].leases(
                line,
                pb.LeaseRequest(table=table, learner=learner, steps=steps, after=start[shard]),
                max(1, depth // shards),
                partial(_put, arrived, shard),
            )
            for shard, line in enumerate(self._lines)
        ]
        tasks = [asyncio.ensure_future(stream.run()) for stream in streams]
        if self._run is not None and any(kind.is_silent for kind in self._kinds):
            tasks.append(asyncio.ensure_future(self._report(Tower(self._run))))
        try:
            while True:
                shard, found = await arrived.get()
                if isinstance(found, Exception):
                    raise found
                await streams[shard].took()
                yield Leased(shard=shard, lease=found)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def acknowledge(
        self, table: str, learner: str, upto: Sequence[int], timeout_s: float = USUAL_S
    ) -> int:
        """By server the last lease that is used; how many items are so by this."""
        self._check_cursor(upto)
        with self._span("acknowledge") as metadata:
            answers = await self._all(
                [
                    line.call(
                        "Acknowledge",
                        pb.AcknowledgeRequest(table=table, learner=learner, upto=number),
                        timeout_s,
                        metadata,
                    )
                    for line, number in zip(self._lines, upto, strict=True)
                ]
            )
        return sum(answer.items for answer in answers)

    async def extend(self, table: str, learner: str, timeout_s: float = USUAL_S) -> int:
        """Give all leases a new deadline; how many there are."""
        request = pb.ExtendRequest(table=table, learner=learner)
        answers = await self._all([line.call("Extend", request, timeout_s) for line in self._lines])
        return sum(answer.leases for answer in answers)

    async def resume(
        self, table: str, learner: str, cursor: Sequence[int], timeout_s: float = USUAL_S
    ) -> list[Resumed]:
        """Begin a learner's life at the cursor of its checkpoint; by server."""
        self._check_cursor(cursor)
        return await self._all(
            [
                line.call("Resume", pb.ResumeRequest(table=table, learner=learner, cursor=number), timeout_s)
                for line, number in zip(self._lines, cursor, strict=True)
            ]
        )

    async def sample(
        self, table: str, count: int, exponent: float | None = None, timeout_s: float = USUAL_S
    ) -> Drawn:
        """Draw steps from one server, each in turn; waits until it has enough."""
        config = pb.SampleConfig(batch_size=count, importance_exponent=exponent)
        request = pb.SampleRequest(table=table, columnar=True, config=config)
        return await self._drawn(next(self._turn), request, timeout_s)

    async def draw(
        self, table: str, count: int, exponent: float, revised: Revised | None, timeout_s: float = USUAL_S
    ) -> Drawn:
        """The next sample of this client from the first server, after `revised` is set; one at a time.

        However often it is tried until the time is over, it is drawn once.
        """
        config = pb.SampleConfig(batch_size=count, importance_exponent=exponent)
        request = pb.SampleRequest(table=table, columnar=True, config=config)
        request.writer, request.number = self.writer, next(self._numbers)
        if revised is not None:
            request.priorities.CopyFrom(revised.message(""))
        return await self._drawn(0, request, timeout_s)

    async def _drawn(self, shard: int, request: pb.SampleRequest, timeout_s: float) -> Drawn:
        table = request.table
        encoding = await self.encoding(table, timeout_s)
        with self._span("sample") as metadata:
            answer = await self._lines[shard].call("Sample", request, timeout_s, metadata)
            if answer.encoding_hash != encoding.hash:
                del self._encodings[table]
                encoding = await self.encoding(table, timeout_s)
            return Drawn(shard=shard, sampled=messages.sampled_of(answer, encoding))

    async def update_priorities(
        self,
        table: str,
        drawn: Drawn,
        priorities: npt.NDArray[np.floating[Any]],
        timeout_s: float = USUAL_S,
    ) -> int:
        """Of the steps of a sample; how many were gone."""
        request = Revised(drawn=drawn, priorities=priorities).message(table)
        answer = await self._lines[drawn.shard].call("UpdatePriorities", request, timeout_s)
        return int(answer.late)

    async def clear(self, request: pb.ClearRequest, timeout_s: float = USUAL_S) -> int:
        """Remove from all servers; how many items."""
        answers = await self._all([line.call("Clear", request, timeout_s) for line in self._lines])
        return sum(answer.removed for answer in answers)

    async def stats(self, timeout_s: float = USUAL_S) -> list[list[TableStats]]:
        """By server, of each table."""
        answers = await self._all(
            [line.call("GetStats", pb.GetStatsRequest(), timeout_s) for line in self._lines]
        )
        return [[messages.table_of(table) for table in answer.tables] for answer in answers]

    async def _report(self, tower: Tower) -> None:
        """Report tables that no server reports to the tower, second by second."""
        is_known = False
        while True:
            with suppress(ReplayError):
                found = await self.stats(_REPORT_S)
                tables = [
                    table
                    for kind, own in zip(self._kinds, found, strict=True)
                    if kind.is_silent
                    for table in own
                ]
                if not is_known:
                    tower.go_on(tables)
                is_known = True
                tower.swept(tables, {})
            await asyncio.sleep(_REPORT_S)

    def _check_cursor(self, numbers: Sequence[int]) -> None:
        if len(numbers) != len(self._lines):
            raise ValueError(
                f"{len(numbers)} lease numbers for {len(self._lines)} servers; give one a server"
            )

    async def close(self) -> None:
        """End connections. A second call does nothing."""
        await self._all([line.close() for line in self._lines])
