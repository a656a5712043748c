"""What each address does: bodies in, decisions of the queue, replies out.

Owns the table of routes: one row an address, from which the server routes and the document are made.
Rules: a body that is wrong costs its sender only; what is acknowledged is safe. Must not know sockets.
"""

import asyncio
import hashlib
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from overwatch import __version__
from overwatch_rl.rollouts import answers, queue, replies, wire
from overwatch_rl.rollouts.answers import Trainer, Version
from overwatch_rl.rollouts.leases import NO_TRAINER
from overwatch_rl.rollouts.service import Service
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.validation import FIXES, Invalid, Valid, one, several
from overwatch_rl.web.faults import Fault, InvalidError, decode
from overwatch_rl.web.spans import HEADER, named

T = TypeVar("T")
EXPLICIT: Final = "Overwatch-Lease"
"""Header of `GET /batch` that asks for an explicit lease: `1`."""
KEY: Final = "Idempotency-Key"
"""Header of a request that may be sent again: the first answer is repeated."""
_LONGEST_KEY: Final = 256
_LARGE: Final = 1 << 18
"""Bytes of a body that is not looked at by the thread that serves."""
_NO_ENV: Final = "send the env_id that /register-env answered"


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


class Key(NamedTuple):
    """An idempotency key, and what came under it."""

    name: str
    digest: str


Handler = Callable[["Handlers", Call], Awaitable[Reply]]


_REGISTRATION: Final = msgspec.json.Decoder(wire.Registration)
_ENV: Final = msgspec.json.Decoder(wire.EnvRegistration)
_IDENTIFIER: Final = msgspec.json.Decoder(wire.EnvIdentifier)
_ADMISSION: Final = msgspec.json.Decoder(wire.Admission)
_MOVE: Final = msgspec.json.Decoder(wire.VersionMove)
_EXTENSION: Final = msgspec.json.Decoder(wire.Extension)
_CONFIRMATION: Final = msgspec.json.Decoder(wire.Confirmation)


class Handlers:
    """The addresses, over one service."""

    def __init__(self, service: Service, document: Callable[[], object]) -> None:
        """`document` gives the OpenAPI document."""
        self.service = service
        self._telemetry = service.telemetry
        self._document = document
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
        return Reply(body=self._document())

    async def register(self, call: Call) -> Reply:
        """The trainer registers; what is queued stays."""
        body = decode(call.body, _REGISTRATION, FIXES)
        most = self.service.state.limits.max_batch_size
        if body.batch_size > most:
            message = f"is {body.batch_size}; send at most {most}, or raise --max-memory-mib of the server"
            raise InvalidError(Fault("batch_size", message))
        made = uuid.uuid4()
        trainer = Trainer(
            uuid=str(made),
            batch_size=body.batch_size,
            max_token_len=body.max_token_len,
            starting_step=body.starting_step,
            num_steps=body.num_steps if body.num_steps > 0 else None,
            wandb_group=body.wandb_group,
            wandb_project=body.wandb_project,
            checkpoint_dir=body.checkpoint_dir,
            save_checkpoint_interval=body.save_checkpoint_interval,
            max_staleness=body.max_staleness,
        )
        await self.service.do(lambda state, now: queue.register_trainer(state, trainer, now))
        return Reply(body=wire.Registered(uuid=made.int))

    async def register_env(self, call: Call) -> Reply:
        """An environment registers, or waits for the trainer's first request of a batch."""
        body = decode(call.body, _ENV, FIXES)
        request = answers.EnvRequest(
            desired_name=body.desired_name,
            group_size=body.group_size,
            weight=1.0 if body.weight is None else body.weight,
            max_token_length=body.max_token_length,
            minimum=body.min_batch_allocation or 0.0,
        )
        answer = await self.service.do(lambda state, now: queue.register_env(state, request, now))
        return Reply(body=replies.env_registered(answer))

    async def disconnect_env(self, call: Call) -> Reply:
        """An environment leaves; what it has queued is still served."""
        env_id = decode(call.body, _IDENTIFIER, FIXES).env_id
        answer = await self.service.do(lambda state, now: queue.disconnect_env(state, env_id, now))
        if isinstance(answer, answers.Unknown):
            return Reply(body=wire.Failure(error=answer.reason))
        return Reply(body=wire.Done())

    async def wandb_info(self, _: Call) -> Reply:
        """How runs of an experiment tracker are grouped."""
        return Reply(body=replies.wandb_info(await self._trainer()))

    async def info(self, _: Call) -> Reply:
        """What the trainer takes."""
        return Reply(body=replies.info(await self._trainer()))

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
        stated: Version | None = None
        number = call.query.get("version")
        if number is not None:
            stated = Version(lineage=_natural(call.query.get("lineage", "0"), "lineage"),
                             number=_natural(number, "version"))  # fmt: skip

        def _decide(state: State, now: int) -> tuple[Any, Mapping[int, bytes], int]:
            if stated is not None:
                moved = queue.move_version(state, stated, None, now)
                if isinstance(moved, answers.Unknown):
                    return moved, {}, now
            answer = queue.batch(state, now, is_explicit=call.is_explicit)
            items = [item.id for item in answer.items] if isinstance(answer, answers.Batch) else []
            return answer, self.service.store.read(items), now

        answer, bodies, now = await self.service.do(_decide)
        if isinstance(answer, answers.Unknown) and answer is not NO_TRAINER:
            return Reply(body=wire.Problem(error=answer.reason, path="version"), status=409)
        lease = answer.lease if isinstance(answer, answers.Batch) else None
        return Reply(body=replies.batch(answer, bodies, now), lease=lease)

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

    async def status(self, _: Call) -> Reply:
        """The queue as a whole."""
        return Reply(body=await self.service.do(lambda state, now: replies.status(queue.status(state, now))))

    async def status_env(self, call: Call) -> Reply:
        """The queue as one environment sees it; renews the environment."""
        given = call.query.get("env_id")
        env_id = decode(call.body, _IDENTIFIER, FIXES).env_id if given is None else _natural(given, "env_id")

        def _decide(state: State, now: int) -> answers.Unknown | wire.EnvStatus:
            answer = queue.status_env(state, env_id, now)
            if isinstance(answer, answers.Unknown):
                return answer
            return replies.env_status(answer, state.envs[env_id], state.limits.env_lease_s)

        answer = await self.service.do(_decide)
        if isinstance(answer, answers.Unknown):
            return Reply(body=wire.Problem(error=answer.reason, path="env_id"), status=422)
        return Reply(body=answer)

    async def admit(self, call: Call) -> Reply:
        """Tickets: permissions to generate, so that nothing is too old when it is served."""
        body = decode(call.body, _ADMISSION, FIXES)
        answer, now = await self.service.do(
            lambda state, now: (queue.admit(state, body.env_id, body.groups, now), now)
        )
        if isinstance(answer, answers.Unknown):
            return Reply(body=wire.Problem(error=answer.reason, path="env_id"), status=422)
        return Reply(body=replies.tickets(answer, now))

    async def move_version(self, call: Call) -> Reply:
        """The trainer states which version of the policy it has."""
        body = decode(call.body, _MOVE, FIXES)
        version = Version(lineage=body.lineage, number=body.number)

        def _decide(state: State, now: int) -> answers.Status | answers.Unknown:
            moved = queue.move_version(state, version, body.resumed_from, now)
            return queue.status(state, now) if isinstance(moved, answers.Status) else moved

        answer = await self.service.do(_decide)
        if isinstance(answer, answers.Unknown):
            return Reply(body=wire.Problem(error=answer.reason, path="number"), status=409)
        return Reply(body=wire.Moved(version=replies.version(answer.version)))

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

    async def reset(self, call: Call) -> Reply:
        """Discards the trainer, all environments and all groups."""
        decode(call.body, _CONFIRMATION, FIXES)
        await self.service.do(queue.reset)
        return Reply(body=wire.Done())

    async def reset_data(self, _: Call) -> Reply:
        """Discards nothing: an address that is followed by crawlers and browsers must not."""
        error = 'GET discards nothing here; send POST /reset with {"confirm": "discard everything"}'
        return Reply(body=wire.Problem(error=error), status=405, headers={"Allow": "POST"})

    async def _trainer(self) -> Trainer | None:
        return await self.service.do(lambda state, _: state.trainer)

    async def _judged(self, judge: Callable[[bytes, int], T], body: bytes) -> T:
        """A large body is looked at by another thread, one at a time: the others need not wait for it."""
        longest = await self.service.do(lambda state, _: state.longest)
        if len(body) < _LARGE:
            return judge(body, longest)
        async with self._judging:
            return await asyncio.to_thread(judge, body, longest)

    async def _accept(self, groups: Sequence[Valid | Invalid], call: Call, *, is_list: bool) -> Reply:
        given = call.headers.get(HEADER)
        with self._telemetry.span(given, "rollouts.ingest") as span:
            if span is not None:
                span.attributes["groups"] = len(groups)
            return await self._taken(groups, _key(call), named(span, given), is_list=is_list)

    async def _taken(
        self, groups: Sequence[Valid | Invalid], key: Key | None, traceparent: str | None, *, is_list: bool
    ) -> Reply:
        env_id = _sender(groups)
        groups = [_of(env_id, group, number, is_list=is_list) for number, group in enumerate(groups)]
        offers = [_offer(group, env_id, key, traceparent) for group in groups]
        payloads = {number: group.payload for number, group in enumerate(groups) if isinstance(group, Valid)}
        answer = await self.service.accept(offers, payloads)
        match answer:
            case answers.Unknown(reason=reason):
                path = "[0].env_id" if is_list else "env_id"
                return Reply(body=wire.Problem(error=f"{reason}; {_NO_ENV}", path=path), status=422)
            case answers.Reused(key=name):
                message = f"{name!r} came before with another body; send a new key with each new request"
                return Reply(body=wire.Problem(error=f"{KEY}: {message}", path=KEY), status=422)
            case answers.Full():
                return full(self.service)
            case answers.Outcomes():
                faults = {n: group.fault for n, group in enumerate(groups) if isinstance(group, Invalid)}
                found = replies.outcomes(answer, faults, is_list=is_list)
                return Reply(body=found, status=422 if isinstance(found, wire.Refused) else 200)

    async def _lease(
        self, call: Call,
        decide: Callable[[State, int, int], answers.LeaseAnswer | answers.Unknown],
    ) -> Reply:  # fmt: skip
        lease = _natural(call.match["id"], "id")
        answer, now = await self.service.do(lambda state, now: (decide(state, lease, now), now))
        if isinstance(answer, answers.Unknown):
            return Reply(body=wire.Problem(error=answer.reason, path="id"), status=404)
        return Reply(body=replies.lease(answer, now))


def full(service: Service) -> Reply:
    """To a sender whose groups find no room."""
    answer = queue.full(service.state)
    headers = {"Retry-After": str(max(1, math.ceil(answer.retry_s)))}
    return Reply(body=replies.full(answer, service.problem), status=429, headers=headers)


def _natural(text: str, path: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise InvalidError(Fault(path, f"{text[:40]!r} is no whole number below 10^18; send 0 or more"))


def _key(call: Call) -> Key | None:
    key = call.headers.get(KEY)
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        raise InvalidError(Fault(KEY, f"has {len(key)} characters; send 1 to {_LONGEST_KEY}"))
    if key is not None and not key.isascii():  # bytes that are no UTF-8 cannot be logged
        raise InvalidError(Fault(KEY, f"{key[:40]!a} is not ASCII; send e.g. a UUID"))
    return None if key is None else Key(key, hashlib.blake2b(call.body, digest_size=16).hexdigest())


def _env(group: Valid | Invalid) -> int:
    env_id = group.head.env_id if isinstance(group, Valid) else group.env_id
    return env_id if isinstance(env_id, int) else answers.ANONYMOUS


def _sender(groups: Sequence[Valid | Invalid]) -> int:
    """The environment that a request is of: that of its first good group, else of its first one."""
    good = next((group for group in groups if isinstance(group, Valid)), groups[0])
    return _env(good)


def _of(env_id: int, group: Valid | Invalid, number: int, *, is_list: bool) -> Valid | Invalid:
    """A group as it is, or why it cannot be of this sender's request."""
    if isinstance(group, Invalid) or _env(group) == env_id:
        return group
    fault = Fault("env_id", f"is {group.head.env_id} beside groups of {env_id}; send one list an environment")
    return Invalid(
        fault.within(f"[{number}]") if is_list else fault, env_id, group.sequences, group.token_count
    )


def _offer(group: Valid | Invalid, env_id: int, key: Key | None, traceparent: str | None) -> answers.Offer:
    is_valid = isinstance(group, Valid)
    stated = group.head.version if isinstance(group, Valid) else None
    return answers.Offer(
        env_id=env_id,
        sequences=group.sequences,
        tokens=group.token_count,
        version=None if stated is None else Version(lineage=stated.lineage, number=stated.number),
        ticket=group.head.ticket if isinstance(group, Valid) else group.ticket,
        key=None if key is None else key.name,
        digest="" if key is None else key.digest,
        size=len(group.payload) if isinstance(group, Valid) else 0,
        traceparent=traceparent,
        is_invalid=not is_valid,
    )


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


_SENT: Final = {422: (wire.Refused, wire.Problem), 429: (wire.Full,)}
_WRONG: Final = {422: (wire.Problem,)}
_LEASE: Final = {200: (wire.Lease,), 404: (wire.Problem,), 422: (wire.Problem,)}

ROUTES: Final = (
    Route(method="GET", path="/", handler=Handlers.banner, replies={200: (wire.Banner,)}),
    Route(method="POST", path="/register", handler=Handlers.register, body=wire.Registration,
          replies={200: (wire.Registered,), **_WRONG}),
    Route(method="POST", path="/register-env", handler=Handlers.register_env, body=wire.EnvRegistration,
          replies={200: (wire.EnvRegistered, wire.EnvWaits), **_WRONG}),
    Route(method="POST", path="/disconnect-env", handler=Handlers.disconnect_env, body=wire.EnvIdentifier,
          replies={200: (wire.Done, wire.Failure), **_WRONG}),
    Route(method="GET", path="/wandb_info", handler=Handlers.wandb_info, replies={200: (wire.WandbInfo,)}),
    Route(method="GET", path="/info", handler=Handlers.info, replies={200: (wire.Info,)}),
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
    Route(method="GET", path="/status", handler=Handlers.status, replies={200: (wire.Status,)}),
    Route(method="GET", path="/status-env", handler=Handlers.status_env, body=wire.EnvIdentifier,
          query=("env_id",), replies={200: (wire.EnvStatus,), **_WRONG}),
    Route(method="POST", path="/admit", handler=Handlers.admit, body=wire.Admission,
          replies={200: (wire.Tickets,), **_WRONG}),
    Route(method="POST", path="/version", handler=Handlers.move_version, body=wire.VersionMove,
          replies={200: (wire.Moved,), 409: (wire.Problem,), **_WRONG}),
    Route(method="POST", path="/lease/{id}/ack", handler=Handlers.acknowledge, replies=_LEASE),
    Route(method="POST", path="/lease/{id}/extend", handler=Handlers.extend, body=wire.Extension,
          replies=_LEASE),
    Route(method="POST", path="/lease/{id}/release", handler=Handlers.release, replies=_LEASE),
    Route(method="POST", path="/reset", handler=Handlers.reset, body=wire.Confirmation,
          replies={200: (wire.Done,), **_WRONG}),
    Route(method="GET", path="/reset_data", handler=Handlers.reset_data, replies={405: (wire.Problem,)}),
    Route(method="GET", path="/healthz", handler=Handlers.health,
          replies={200: (wire.Health,), 503: (wire.Health,)}),
    Route(method="GET", path="/openapi.json", handler=Handlers.openapi, replies={200: (dict,)}),
)  # fmt: skip
"""Every address of the server."""
