"""What each address does: bodies in, decisions of the queue, replies out.

Owns the table of routes: one row an address, from which the server routes and the document are made.
Rules: a body that is wrong costs its sender only; what is acknowledged is safe. Must not know sockets.
"""

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from overwatch import __version__
from overwatch_rl.rollouts import queue, wire
from overwatch_rl.rollouts.admission import KEY
from overwatch_rl.rollouts.answers import Offer, Outcome, Refusal, Source
from overwatch_rl.rollouts.leases import Leased
from overwatch_rl.rollouts.service import Service
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.validation import FIXES, one, placed, several
from overwatch_rl.web.faults import Fault, InvalidError, decode
from overwatch_rl.web.openapi import document
from overwatch_rl.web.spans import HEADER, named

T = TypeVar("T")
EXPLICIT: Final = "Overwatch-Lease"
"""Header of `GET /batch` that asks for an explicit lease: `1`."""
_LONGEST_KEY: Final = 256
_LARGE: Final = 1 << 18
"""Bytes of a body that is not looked at by the thread that serves."""
_WHY: Final[dict[Refusal, tuple[str, str]]] = {
    "invalid": ("", "cannot be used"),
    "stale": ("version", "its policy is older than the trainer allows; take tickets with POST /admit"),
    "abandoned": ("version", "its policy's line of training was given up; load the current version"),
    "too_large": ("tokens", "has more sequences than a batch; send smaller groups"),
    "unreachable": (
        "tokens",
        "groups of this size never fill a batch exactly; see unreachable in /status-env",
    ),
}
"""The field that a refusal is about, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    body: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)
    match: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_explicit(self) -> bool:
        """Whether a trainer acknowledges by itself."""
        return self.headers.get(EXPLICIT, "") == "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is answered."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    lease: int | None = None
    """The lease that the body carries: whether it arrives whole matters."""


Handler = Callable[["Handlers", Call], Awaitable[Reply]]


_IDENTIFIER: Final = msgspec.json.Decoder(wire.EnvIdentifier)
_EXTENSION: Final = msgspec.json.Decoder(wire.Extension)


class Handlers:
    """The addresses, over one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._telemetry = service.telemetry
        self._judging = asyncio.Lock()

    async def banner(self, _: Call) -> Reply:
        """Names the server."""
        return Reply(body=wire.Banner(message="Overwatch rollouts API", version=__version__))

    async def health(self, _: Call) -> Reply:
        """Whether the server can go on."""
        problem = self.service.problem
        if problem is None:
            return Reply(body=wire.Health(status="ok"))
        return Reply(body=wire.Health(status="failed", error=problem), status=503)

    async def openapi(self, _: Call) -> Reply:
        """This API as a document."""
        return Reply(body=document("Overwatch rollouts API", ROUTES, _NUMBERS))

    async def batch(self, call: Call) -> Reply:
        """The next batch, oldest first within fair shares, or null where there is none yet."""
        with self._telemetry.span(call.headers.get(HEADER), "rollouts.batch") as span:
            reply = await self._batch(call)
            if span is not None:
                items = reply.body.items if isinstance(reply.body, wire.Batch) else []
                span.is_void = not items
                span.attributes["groups"] = len(items)
                for item in items:
                    span.link(item.traceparent)
            return reply

    async def _batch(self, call: Call) -> Reply:
        number, lineage = call.query.get("version"), call.query.get("lineage", "0")
        stated = None
        if number is not None:
            stated = wire.VersionMove(
                lineage=_natural(lineage, "lineage"), number=_natural(number, "version")
            )

        def _decide(state: State, now: int) -> tuple[Leased, Mapping[int, bytes]]:
            if stated is not None:
                queue.move_version(state, stated, now)
            leased = queue.batch(state, now, is_explicit=call.is_explicit)
            return leased, self.service.store.read(leased.items)

        (reply, lease, items), bodies = await self.service.do(_decide)
        if lease is not None:
            reply = msgspec.structs.replace(reply, batch=[msgspec.Raw(bodies[item]) for item in items])
        return Reply(body=reply, lease=lease)

    async def latest_example(self, _: Call) -> Reply:
        """The group that was accepted last."""
        latest = await self.service.do(lambda *_: self.service.store.latest())
        latest = latest or self.service.latest
        return Reply(body=wire.NoExample() if latest is None else msgspec.Raw(latest))

    async def scored_data(self, call: Call) -> Reply:
        """One group of sequences."""
        return await self._accept([await self._judged(one, call.body)], call, is_list=False)

    async def scored_data_list(self, call: Call) -> Reply:
        """Several groups of one environment; the good ones are queued, the bad ones named."""
        groups = await self._judged(several, call.body)
        if not groups:
            return Reply(body=wire.ReceivedList(groups_processed=0, ids=[]))
        return await self._accept(groups, call, is_list=True)

    async def status_env(self, call: Call) -> Reply:
        """The queue as one environment sees it; renews the environment."""
        given = call.query.get("env_id")
        env_id = decode(call.body, _IDENTIFIER, FIXES).env_id if given is None else _natural(given, "env_id")
        return Reply(body=await self.service.do(lambda state, now: queue.status_env(state, env_id, now)))

    async def acknowledge(self, call: Call) -> Reply:
        """The trainer has used the groups of a lease: they are never served again."""
        return await self._lease(call, queue.acknowledge)

    async def release(self, call: Call) -> Reply:
        """The trainer gives a lease back: its groups are served again, flagged."""
        return await self._lease(call, queue.release)

    async def extend(self, call: Call) -> Reply:
        """The trainer needs longer with a lease."""
        wanted = decode(call.body, _EXTENSION, FIXES).seconds if call.body else None
        return await self._lease(call, lambda state, lease, now: queue.extend(state, lease, wanted, now))

    async def reset_data(self, _: Call) -> Reply:
        """Discards nothing: an address that is followed by crawlers and browsers must not."""
        error = 'GET discards nothing here; send POST /reset with {"confirm": "discard everything"}'
        return Reply(body=wire.Problem(error=error), status=405, headers={"Allow": "POST"})

    async def _judged(self, judge: Callable[[bytes, int], T], body: bytes) -> T:
        """A large body is looked at by another thread, one at a time: the others need not wait for it."""
        longest = await self.service.do(lambda state, _: state.longest)
        if len(body) < _LARGE:
            return judge(body, longest)
        async with self._judging:
            return await asyncio.to_thread(judge, body, longest)

    async def _accept(self, groups: Sequence[Offer], call: Call, *, is_list: bool) -> Reply:
        given = call.headers.get(HEADER)
        with self._telemetry.span(given, "rollouts.ingest") as span:
            if span is not None:
                span.attributes["groups"] = len(groups)
            # Of the environment of the first good group, else of the first one.
            sender = next((group for group in groups if group.fault is None), groups[0]).env_id
            offers = [_of(sender, group, number, is_list=is_list) for number, group in enumerate(groups)]
            outcomes = await self.service.accept(offers, _source(call, named(span, given)))
        reply = _received(outcomes, [offer.fault for offer in offers], is_list=is_list)
        return Reply(body=reply, status=422 if isinstance(reply, wire.Refused) else 200)

    async def _lease(self, call: Call, decide: Callable[[State, int, int], wire.Lease]) -> Reply:
        lease = _natural(call.match["id"], "id")
        return Reply(body=await self.service.do(lambda state, now: decide(state, lease, now)))


def _received(
    outcomes: Sequence[Outcome], faults: Sequence[Fault | None], *, is_list: bool
) -> wire.Received | wire.ReceivedList | wire.Refused:
    """To a sender of groups; `faults` are those that validation named, by place."""
    ids = [outcome.id for outcome in outcomes]
    refused = [
        _refusal(index, outcome.reason, faults[index], is_list=is_list)
        for index, outcome in enumerate(outcomes)
        if outcome.reason is not None
    ]
    queued = len(ids) - len(refused)
    if refused:
        first = f"{refused[0].path or 'group'}: {refused[0].message}"
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return wire.Refused(error=first + more, groups_processed=queued, ids=ids, refused=refused)
    if is_list:
        return wire.ReceivedList(groups_processed=queued, ids=ids)
    return wire.Received(id=ids[0] or 0)


def _refusal(index: int, reason: Refusal, fault: Fault | None, *, is_list: bool) -> wire.Refusal:
    if fault is None:
        fault = Fault(*_WHY[reason])
        if is_list:
            fault = fault.within(f"[{index}]")
    return wire.Refusal(index=index, reason=reason, path=fault.path, message=fault.message)


def _natural(text: str, path: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise InvalidError(Fault(path, f"{text[:40]!r} is no whole number below 10^18; send 0 or more"))


def _source(call: Call, traceparent: str | None) -> Source:
    key = call.headers.get(KEY)
    if key is None:
        return Source(traceparent=traceparent)
    if not 0 < len(key) <= _LONGEST_KEY:
        raise InvalidError(Fault(KEY, f"has {len(key)} characters; send 1 to {_LONGEST_KEY}"))
    if not key.isascii():  # bytes that are no UTF-8 cannot be logged
        raise InvalidError(Fault(KEY, f"{key[:40]!a} is not ASCII; send e.g. a UUID"))
    return Source(key, hashlib.blake2b(call.body, digest_size=16).hexdigest(), traceparent)


def _of(sender: int, group: Offer, number: int, *, is_list: bool) -> Offer:
    """A group of the sender's, or why it cannot be of this sender's request."""
    if group.fault is not None or group.env_id == sender:
        return msgspec.structs.replace(group, env_id=sender)
    fault = Fault("env_id", f"is {group.env_id} beside groups of {sender}; send one list an environment")
    wrong = msgspec.structs.replace(group, env_id=sender, body=b"", ticket=None, fault=fault)
    return placed(wrong, number) if is_list else wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One address."""

    method: str
    path: str
    """With `{id}` where a number stands."""
    handler: Handler
    replies: Mapping[int, tuple[type, ...]]
    """Types of the bodies that it answers, by status."""
    body: Any = None
    """Type of the request's body."""
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


_NUMBERS: Final = frozenset(("id", "version", "lineage", "env_id"))
_SENT: Final = {422: (wire.Refused, wire.Problem), 429: (wire.Full,)}
_WRONG: Final = {422: (wire.Problem,)}
_LEASE: Final = {200: (wire.Lease,), 404: (wire.Problem,), 422: (wire.Problem,)}


def _shown(path: str, decide: Callable[[State, int], Any], answer: type) -> Route:
    """An address that shows what is decided over the queue alone."""

    @functools.wraps(decide)
    async def _handle(handlers: Handlers, _: Call) -> Reply:
        return Reply(body=await handlers.service.do(decide))

    return Route(method="GET", path=path, handler=_handle, replies={200: (answer,)})


def _posted(path: str, decide: Callable[[State, Any, int], Any], kind: type, *answers: type) -> Route:
    """An address that answers what is decided over a body of this type."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    @functools.wraps(decide)
    async def _handle(handlers: Handlers, call: Call) -> Reply:
        body = decode(call.body, decoder, FIXES)
        return Reply(body=await handlers.service.do(lambda state, now: decide(state, body, now)))

    replies = {200: answers, 409: (wire.Problem,), **_WRONG}
    return Route(method="POST", path=path, handler=_handle, body=kind, replies=replies)


ROUTES: Final = (
    Route(method="GET", path="/", handler=Handlers.banner, replies={200: (wire.Banner,)}),
    _posted("/register", queue.register_trainer, wire.Registration, wire.Registered),
    _posted("/register-env", queue.register_env, wire.EnvRegistration, wire.EnvRegistered, wire.EnvWaits),
    _posted("/disconnect-env", queue.disconnect_env, wire.EnvIdentifier, wire.Done, wire.Failure),
    _shown("/wandb_info", queue.wandb_info, wire.WandbInfo),
    _shown("/info", queue.info, wire.Info),
    Route(method="GET", path="/batch", handler=Handlers.batch, query=("version", "lineage"),
          headers=(EXPLICIT, HEADER),
          replies={200: (wire.Batch, wire.NoTrainer), 409: (wire.Problem,), **_WRONG}),
    Route(method="GET", path="/latest_example", handler=Handlers.latest_example,
          replies={200: (wire.Scored, wire.NoExample)}),
    Route(method="POST", path="/scored_data", handler=Handlers.scored_data, body=wire.Scored,
          headers=(KEY, HEADER),
          replies={200: (wire.Received,), **_SENT}),
    Route(method="POST", path="/scored_data_list", handler=Handlers.scored_data_list,
          body=list[wire.Scored], headers=(KEY, HEADER), replies={200: (wire.ReceivedList,), **_SENT}),
    _shown("/status", queue.status, wire.Status),
    Route(method="GET", path="/status-env", handler=Handlers.status_env, body=wire.EnvIdentifier,
          query=("env_id",), replies={200: (wire.EnvStatus,), **_WRONG}),
    _posted("/admit", queue.admit, wire.Admission, wire.Tickets),
    _posted("/version", queue.move_version, wire.VersionMove, wire.Moved),
    Route(method="POST", path="/lease/{id}/ack", handler=Handlers.acknowledge, replies=_LEASE),
    Route(method="POST", path="/lease/{id}/extend", handler=Handlers.extend, body=wire.Extension,
          replies=_LEASE),
    Route(method="POST", path="/lease/{id}/release", handler=Handlers.release, replies=_LEASE),
    _posted("/reset", queue.reset, wire.Confirmation, wire.Done),
    Route(method="GET", path="/reset_data", handler=Handlers.reset_data, replies={405: (wire.Problem,)}),
    Route(method="GET", path="/healthz", handler=Handlers.health,
          replies={200: (wire.Health,), 503: (wire.Health,)}),
    Route(method="GET", path="/openapi.json", handler=Handlers.openapi, replies={200: (dict,)}),
)  # fmt: skip
"""Every address of the server."""
