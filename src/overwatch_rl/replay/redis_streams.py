"""A table of experience in Redis Streams: what a replay server does for chunks that are used once, in order.

Owns one place of experience in Redis, for one event loop, which answers as a replay server would. Rules:
nothing is asked of a Redis that does not sync to its disk before it answers; a full table is waited for and
nothing is dropped; a learner's life that begins ends the one before. Must not know the order of calls.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import grpc
import redis.asyncio
import xxhash
from google.protobuf.message import Message
from redis import exceptions
from redis.backoff import NoBackoff

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages, redis_scripts
from overwatch_rl.replay.base import Capacity, ItemId, LeasedChunk, LeaseOf, TableStats
from overwatch_rl.replay.chunk import Encoding
from overwatch_rl.replay.connection import Access, Line, Metadata, Patience, ReplayError, State

_KEPT_S: Final = 7 * 24 * 3600
"""A writer that appends nothing for so long is forgotten: a repeat after that is stored twice."""
_BLOCK_MS: Final = 1000
_MOST_READ: Final = 256
"""Chunks of one reply."""
_FOREVER: Final = (1 << 63) - 1
_STATED: Final = "durability=stated"
_OFFERED: Final = (
    "Redis Streams give chunks in order, each once; sampling, priorities and clearing need a replay server: "
    "start overwatch-rl replay-server and name it with --replay"
)
_CODES: Final = {
    "ENCODING": (grpc.StatusCode.INVALID_ARGUMENT, "the table has another encoding; use another run id"),
    "UNDECLARED": (grpc.StatusCode.FAILED_PRECONDITION, "the table has no encoding yet: declare it first"),
    "LARGE": (
        grpc.StatusCode.INVALID_ARGUMENT,
        "a request larger than the table; raise max_mib or max_items",
    ),
    "OTHER": (
        grpc.StatusCode.INVALID_ARGUMENT,
        "this request was sent before with other chunks; give each request a number of its own",
    ),
    "FULL": (grpc.StatusCode.RESOURCE_EXHAUSTED, "the table is full of what no checkpoint contains yet"),
    "OOM": (grpc.StatusCode.RESOURCE_EXHAUSTED, "Redis is at its maxmemory"),
    "NOGROUP": (
        grpc.StatusCode.PERMISSION_DENIED,
        "this learner's life is over: another learner began after it, or Redis lost its data",
    ),
    "NOPERM": (grpc.StatusCode.PERMISSION_DENIED, "Redis does not allow this user what is needed"),
}
"""What an error of Redis or of a script means, by its first word; no other one may pass by itself."""
_PASSING: Final = ("MISCONF", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")
"""First words of errors of a Redis that fails over, or whose disk fails."""


class Place(NamedTuple):
    """An address, apart from what is not Redis's own."""

    url: str
    where: str
    """Without a password."""
    capacity: Capacity
    is_stated: bool
    """Whether the address states that Redis syncs before it answers."""


def place_of(address: str) -> Place:
    """`redis://…?max_items=N&max_mib=N&durability=stated`. Raises `ValueError` naming what is wrong."""
    parts = urlsplit(address)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    query = dict(parse_qsl(parts.query))
    stated = query.pop("durability", None)
    if stated not in (None, "stated"):
        raise ValueError(f"{where}: durability is {stated!r}; leave it out, or write {_STATED}")
    usual, sizes = Capacity(), {}
    for name, least in {"max_items": usual.items, "max_mib": usual.bytes >> 20}.items():
        text = query.pop(name, str(least))
        if not text.isdecimal() or not int(text):
            raise ValueError(f"{where}: {name} is {text!r}, not a whole number from 1")
        sizes[name] = int(text)
    return Place(
        url=parts._replace(query=urlencode(query)).geturl(),
        where=where,
        capacity=Capacity(items=sizes["max_items"], bytes=sizes["max_mib"] << 20),
        is_stated=stated is not None,
    )


class RedisLine(Line):
    """One Redis."""

    faults = (exceptions.RedisError, OSError, TimeoutError, ReplayError)

    def __init__(
        self,
        address: str,
        access: Access,
        patience: Patience,
        changed: Callable[[State, str], None] = lambda _state, _why: None,
    ) -> None:
        self.place = place_of(address)
        super().__init__(self.place.where, patience, changed)
        self.group = ""
        """The life of the learner that resumed here."""
        self.served = 0
        """The last chunk that lives before it were served."""
        self._leases: list[int] = []
        self._tables: dict[str, None] = {}
        """That were asked for, in order."""
        self._prefix = f"overwatch-rl:experience:{access.namespace}"
        self._is_checked = False
        self._redis: Any = _client(self.place.url, access, patience)
        self._methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "Declare": self._declare,
            "GetEncoding": self._encoding,
            "Append": self._append,
            "Resume": self._resume,
            "Acknowledge": self._acknowledge,
            "Extend": self._extend,
            "GetStats": self._stats,
        }
        self._scripts: dict[str, Any] = {}

    async def attempt(
        self,
        name: str,
        request: Message,
        seconds: float,
        metadata: Metadata,  # noqa: ARG002 Redis knows no traces
    ) -> Any:
        """The answer that a replay server would give."""
        method = self._methods.get(name)
        if method is None:
            raise self.error(f"{name}: {_OFFERED}", grpc.StatusCode.UNIMPLEMENTED)
        async with asyncio.timeout(seconds):
            await self.check()
            return await method(request)

    def key(self, table: str, *part: str) -> str:
        """Of one slot of a cluster, a table's."""
        self._tables[table] = None
        return ":".join([f"{{{self._prefix}:{table}}}", *part])

    async def read(self, table: str, after: str, count: int) -> list[tuple[int, dict[bytes, bytes]]]:
        """Chunks of this life: new ones, waited for, or what it was given after an id already."""
        words = ("XREADGROUP", "GROUP", self.group, "learner", "COUNT", count, "BLOCK", _BLOCK_MS)
        await self.check()
        answer = await self._redis.execute_command(*words, "STREAMS", self.key(table, "items"), after)
        self.well()
        entries = answer[0][1] if answer else []
        return [(int(id_.partition(b"-")[0]), fields) for id_, fields in entries if fields]

    def leased(self, number: int) -> None:
        """A lease was given to the learner."""
        self._leases.append(number)

    def met(self, error: Exception) -> tuple[ReplayError, float | None]:
        """What an error of Redis means."""
        if isinstance(error, ReplayError):
            raise error
        word, text = str(error).partition(" ")[0], str(error) or type(error).__name__
        if isinstance(error, exceptions.AuthenticationError):
            text = f"{text}; give the password with --replay-token"
            raise self.error(text, grpc.StatusCode.UNAUTHENTICATED) from error
        if isinstance(error, exceptions.ResponseError) and not any(one in text for one in _PASSING):
            word = "OOM" if isinstance(error, exceptions.OutOfMemoryError) else word
            word = "NOPERM" if isinstance(error, exceptions.NoPermissionError) else word
            code, meaning = _CODES.get(word, (grpc.StatusCode.INVALID_ARGUMENT, "Redis cannot do this"))
            found = self.error(f"{meaning} ({text})", code)
            if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise found from error
            self.well()
            return found, None
        self._is_checked = False
        found = self.error(text, grpc.StatusCode.UNAVAILABLE)
        self.turn("degraded", str(found))
        return found, None

    def error(self, message: str, code: grpc.StatusCode) -> ReplayError:
        """One that names this Redis."""
        return ReplayError(f"{self.where}: {message}", code)

    async def close(self) -> None:
        """End it. A second call does nothing."""
        await self._redis.aclose()

    async def check(self) -> None:
        """Once a connection, as a Redis that starts again reads its file: it must keep what it answers."""
        if self._is_checked:
            return
        known: dict[str, str] = {}
        if not self.place.is_stated:
            try:
                for pattern in ("append*", "maxmemory*"):
                    known |= await self._redis.config_get(pattern)
            except exceptions.ResponseError as error:
                why = (
                    f"CONFIG GET is refused ({error}), so it is not known whether Redis syncs before it "
                    f"answers; where appendonly is yes and appendfsync always, add ?{_STATED} to its address"
                )
                raise self.error(why, grpc.StatusCode.INVALID_ARGUMENT) from error
            if wrong := _wrong(known):
                raise self.error(wrong, grpc.StatusCode.INVALID_ARGUMENT)
        self._is_checked = True

    async def _run(self, script: str, table: str, *words: Any, writer: str = "") -> Any:
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(script)
        keys = [self.key(table), self.key(table, "items"), *([self.key(table, writer)] if writer else [])]
        return await self._scripts[script](keys=keys, args=words)

    async def _declare(self, request: pb.DeclareRequest) -> pb.DeclareResponse:
        encoding = messages.encoding_of(request.encoding)
        body = request.encoding.SerializeToString()
        await self._run(redis_scripts.DECLARE, request.table, encoding.hash, body)
        return pb.DeclareResponse(encoding_hash=encoding.hash)

    async def _encoding(self, request: pb.GetEncodingRequest) -> pb.GetEncodingResponse:
        body = await self._redis.hget(self.key(request.table), "encoding")
        if body is None:
            code, meaning = _CODES["UNDECLARED"]
            raise self.error(meaning, code)
        message = pb.Encoding.FromString(body)
        hash_ = messages.encoding_of(message).hash
        return pb.GetEncodingResponse(encoding=message, encoding_hash=hash_, kind="sequences")

    async def _append(self, request: pb.AppendRequest) -> pb.AppendResponse:
        capacity, steps = self.place.capacity, sum(chunk.steps for chunk in request.chunks)
        checksum, chunks = xxhash.xxh3_64(), list[Any]()
        for chunk in request.chunks:
            chunks += chunk.steps, chunk.SerializeToString()
            checksum.update(chunks[-1])
        words = [request.encoding_hash, request.number, capacity.items, capacity.bytes, _KEPT_S]
        is_repeat = await self._run(
            redis_scripts.APPEND,
            request.table,
            *words,
            checksum.hexdigest(),
            *chunks,
            writer=f"writer:{request.writer}",
        )
        return pb.AppendResponse(
            items=len(request.chunks), steps=steps, is_repeat=bool(is_repeat), durable=True
        )

    async def _resume(self, request: pb.ResumeRequest) -> pb.ResumeResponse:
        group = f"{request.learner}:{uuid4().hex}"
        found = await self._run(redis_scripts.RESUME, request.table, group, request.cursor)
        acked, again, used, gap, unknown, served = map(int, found)
        self.group, self.served, self._leases = group, served, []
        return pb.ResumeResponse(
            next_number=acked + 1, redelivered=again, acknowledged=used, gap=gap, is_unknown=bool(unknown)
        )

    async def _acknowledge(self, request: pb.AcknowledgeRequest) -> pb.AcknowledgeResponse:
        used = await self._run(redis_scripts.ACKNOWLEDGE, request.table, self.group, request.upto)
        self._leases = [number for number in self._leases if number > request.upto]
        return pb.AcknowledgeResponse(items=used)

    async def _extend(self, request: pb.ExtendRequest) -> pb.ExtendResponse:  # noqa: ARG002 they never end
        return pb.ExtendResponse(leases=len(self._leases))

    async def _stats(self, request: pb.GetStatsRequest) -> pb.GetStatsResponse:
        names = [request.table] if request.table else list(self._tables)
        found = [await self._table(name) for name in names]
        return messages.stats_message([table for table in found if table is not None])

    async def _table(self, name: str) -> TableStats | None:
        found = await self._run(redis_scripts.STATS, name)
        born, last, acked, served, pending, again, size, steps = map(int, found)
        if not born:
            return None
        return TableStats(
            name=name,
            kind="sequences",
            items=last - acked,
            steps=steps,
            bytes=size,
            accepted=last - born,
            queued=last - acked - pending,
            leased=pending,
            acknowledged=acked - born,
            sampled=served - born + again,
            redelivered=again,
            leases=len(self._leases) if self.group else None,
        )


class RedisLeases:
    """Leases from one Redis, the next one after the last whatever happens to the connection."""

    def __init__(
        self,
        line: RedisLine,
        request: pb.LeaseRequest,
        depth: int,
        arrived: Callable[[LeaseOf | Exception], None],
    ) -> None:
        self._line = line
        self._request = request
        self._arrived = arrived
        self._room = asyncio.Semaphore(depth)
        self._last = request.after
        """The last chunk that arrived."""
        self._is_sure = False
        """Whether nothing that was given to this life is still to come."""
        self._held: deque[LeasedChunk] = deque()

    async def run(self) -> None:
        """Until it is cancelled, or Redis refuses."""
        table = self._request.table
        try:
            if not self._line.group:
                why = f"table {table!r}: a learner's life begins with Resume; call it first"
                raise self._line.error(why, grpc.StatusCode.FAILED_PRECONDITION)
            answer = await self._line.call("GetEncoding", pb.GetEncodingRequest(table=table), math.inf)
            encoding = messages.encoding_of(answer.encoding)
            while True:
                await self._room.acquire()
                while (steps := self._request.steps - sum(item.chunk.steps for item in self._held)) > 0:
                    self._held += await self._line.retried(partial(self._read, encoding, steps))
                self._arrived(self._lease())
        except (ReplayError, ValueError) as error:
            self._arrived(error)

    async def took(self) -> None:
        """One that arrived was taken: there is room for another."""
        self._room.release()

    def _lease(self) -> LeaseOf:
        items: list[LeasedChunk] = []
        while sum(item.chunk.steps for item in items) < self._request.steps:
            items.append(self._held.popleft())
        number = items[-1].id.slot
        self._line.leased(number)
        return LeaseOf(learner=self._request.learner, number=number, items=tuple(items), deadline=_FOREVER)

    async def _read(self, encoding: Encoding, steps: int, seconds: float) -> list[LeasedChunk]:
        """What comes next; after a break first what may have been on its way to this life."""
        after = ">" if self._is_sure else f"{self._last}-0"
        count = -(-steps // self._held[-1].chunk.steps) if self._held else 1
        is_sure, self._is_sure = self._is_sure, False
        async with asyncio.timeout(seconds + _BLOCK_MS / 1000):
            entries = await self._line.read(self._request.table, after, min(count, _MOST_READ))
        self._is_sure = is_sure or not entries
        found = [(number, fields) for number, fields in entries if number > self._last]
        self._last = found[-1][0] if found else self._last
        return [self._item(number, fields, encoding) for number, fields in found]

    def _item(self, number: int, fields: Mapping[bytes, bytes], encoding: Encoding) -> LeasedChunk:
        path = f"{self._line.where}: chunk {number}"
        chunk = messages.chunk_of(messages.parsed(pb.Chunk, fields[b"chunk"]), encoding, path)
        with messages.at(path):
            encoding.check(chunk)
        return LeasedChunk(
            id=ItemId(number, 1),
            chunk=chunk,
            is_redelivered=number <= self._line.served,
            at=int(fields[b"at"]) * 1000,
        )


def _client(url: str, access: Access, patience: Patience) -> Any:
    if (access.cert is None) != (access.key is None):
        raise ValueError("a client's certificate and its key belong together: give both or none")
    if access.server_name is not None:
        raise ValueError("Redis is called by the name in its certificate; leave server_name out")
    own: dict[str, Any] = {} if access.token is None else {"password": access.token}
    if url.startswith("rediss://"):
        files = {"ssl_ca_certs": access.ca, "ssl_certfile": access.cert, "ssl_keyfile": access.key}
        own |= {name: str(path) for name, path in files.items() if path is not None}
    return redis.asyncio.Redis.from_url(
        url,
        protocol=2,
        retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        socket_connect_timeout=min(5.0, patience.attempt_s),
        # Its own time-out waits by asyncio.wait_for, which may lose a cancellation in Python 3.11.
        socket_timeout=None,
        **own,
    )


def _wrong(known: Mapping[str, str]) -> str | None:
    """Why a Redis may lose what it answered, and what mends it."""
    found = {name: known.get(name, "") for name in ("appendonly", "appendfsync")}
    if found != {"appendonly": "yes", "appendfsync": "always"}:
        words = " and ".join(f"{name} {value or 'unknown'}" for name, value in found.items())
        return (
            f"it has {words}, so a crash loses what it answered; run redis-cli CONFIG SET appendonly yes and "
            "redis-cli CONFIG SET appendfsync always, and CONFIG REWRITE to keep both"
        )
    policy = known.get("maxmemory-policy", "noeviction")
    if known.get("maxmemory", "0") != "0" and policy != "noeviction":
        return (
            f"it has maxmemory-policy {policy}, so it may drop experience; run redis-cli CONFIG SET "
            "maxmemory-policy noeviction"
        )
    return None
