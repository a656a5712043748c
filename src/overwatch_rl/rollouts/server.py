"""The rollouts API over HTTP: what each address does, and its life as a process.

Rules: a group that cannot be used is answered with the field and the fix, and every other group of the same
request is taken all the same. A batch that does not arrive whole is queued again. Batches of trainers that do
not acknowledge go out one at a time, so that a request never acknowledges a batch that is still on its way.
The line with the address is printed once requests are served; SIGTERM and SIGINT let requests that are being
answered end, and what was accepted is written.
"""

import asyncio
import contextlib
import functools
import gc
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec
from litestar import Request, Response, get, post
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import Headers
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import OpenAPIMediaType, Operation, Reference, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import FromPath, JSONBody, QueryParameter

from overwatch import __version__
from overwatch.deflate import fast_zlib
from overwatch.platform import return_memory_soon
from overwatch.sdk import Run
from overwatch_rl.rollouts import queue, wire
from overwatch_rl.rollouts.admission import KEY
from overwatch_rl.rollouts.answers import Offer, Outcome, Refusal, Source
from overwatch_rl.rollouts.config import RolloutsConfig
from overwatch_rl.rollouts.delivery import Delivery
from overwatch_rl.rollouts.leases import Leased
from overwatch_rl.rollouts.service import Service, UnsafeError
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import Store
from overwatch_rl.rollouts.telemetry import Telemetry, start_run
from overwatch_rl.rollouts.validation import FIXES, one, placed, several
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.bodies import Intake
from overwatch_rl.web.faults import Fault, InvalidError, RefusedError, decode
from overwatch_rl.web.gateway import PROBE, Gateway, Rules, application
from overwatch_rl.web.process import ending
from overwatch_rl.web.site import Connection, listening, repeated
from overwatch_rl.web.spans import HEADER, named

T = TypeVar("T")
EXPLICIT: Final = "Overwatch-Lease"
"""Header of `GET /batch` that asks for an explicit lease: `1`."""
PACKED_FROM: Final = 1024
"""A batch of so many bytes goes as gzip where the client takes that."""
_LONGEST_KEY: Final = 256
_LARGE: Final = 1 << 18
"""Bytes of a body that is not looked at by the thread that serves."""
_YOUNG: Final = (50_000, 20, 50)
"""Thresholds of the garbage collector: a request makes many objects, none of them in a cycle."""
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
_IDENTIFIER: Final = msgspec.json.Decoder(wire.EnvIdentifier)


class Api:
    """The addresses that do more than decide, over one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._telemetry = service.telemetry
        self._judging = asyncio.Lock()
        self._one_batch = asyncio.Lock()
        self._is_known = asyncio.Event()
        """Set while nothing of a trainer that does not acknowledge is on its way."""
        self._is_known.set()

    async def batch(self, request: Request[Any, Any, Any], stated: wire.VersionMove | None) -> Response[Any]:
        """Answer with the next batch; implicit ones wait for what became of the last."""
        is_explicit = request.headers.get(EXPLICIT) == "1"
        if is_explicit:
            return await self._batch(request, stated, is_explicit=True)
        async with self._one_batch:
            await self._is_known.wait()
            return await self._batch(request, stated, is_explicit=False)

    async def _batch(
        self, request: Request[Any, Any, Any], stated: wire.VersionMove | None, *, is_explicit: bool
    ) -> Response[Any]:
        connection: Connection = request.scope["state"]["connection"]
        if connection.transport.is_closing():
            raise RefusedError("the connection ended before its turn came", status=400)

        def decide(state: State, now: int) -> tuple[Leased, Mapping[int, bytes]]:
            if stated is not None:
                queue.move_version(state, stated, now)
            leased = queue.batch(state, now, is_explicit=is_explicit)
            return leased, self.service.store.read(leased.items)

        with self._telemetry.span(request.headers.get(HEADER), "rollouts.batch") as span:
            (reply, lease, items), bodies = await self.service.do(decide)
            if span is not None:
                served = reply.items if isinstance(reply, wire.Batch) else []
                span.is_void = not served
                span.attributes["groups"] = len(served)
                for item in served:
                    span.link(item.traceparent)
        if lease is None:
            return _json(msgspec.json.encode(reply))
        if not is_explicit:
            self._is_known.clear()
        reply = msgspec.structs.replace(reply, batch=[msgspec.Raw(bodies[item]) for item in items])
        body, headers = msgspec.json.encode(reply), {"Vary": "Accept-Encoding"}
        if len(body) >= PACKED_FROM and "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = await asyncio.to_thread(_packed, body), "gzip"
        try:
            delivery = Delivery(connection)
        except OSError:
            await self._note(queue.broken, lease)
            raise RefusedError("the connection ended before its batch was sent", status=400) from None
        return _json(body, headers, BackgroundTask(self._watch, delivery, lease))

    async def _watch(self, delivery: Delivery, lease: int) -> None:
        await self._note(queue.delivered if await delivery.arrived() else queue.broken, lease)

    async def _note(self, decide: Callable[[State, int, int], Any], lease: int) -> None:
        """Write what became of a reply; where that fails, time ends its lease."""
        with contextlib.suppress(UnsafeError):
            await self.service.do(lambda state, now: decide(state, lease, now))
        self._is_known.set()

    async def judged(self, judge: Callable[[bytes, int], T], body: bytes) -> T:
        """A large body is looked at by another thread, one at a time: the others need not wait for it."""
        longest = self.service.state.longest
        if len(body) < _LARGE:
            return judge(body, longest)
        async with self._judging:
            return await asyncio.to_thread(judge, body, longest)

    async def accept(
        self, groups: Sequence[Offer], headers: Headers, body: bytes, *, is_list: bool
    ) -> Response[Any]:
        """Take the groups of a request, and answer what became of each."""
        traceparent = headers.get(HEADER)
        with self._telemetry.span(traceparent, "rollouts.ingest") as span:
            if span is not None:
                span.attributes["groups"] = len(groups)
            # Of the environment of the first good group, else of the first one.
            sender = next((group for group in groups if group.fault is None), groups[0]).env_id
            offers = [_of(sender, group, number, is_list=is_list) for number, group in enumerate(groups)]
            source = _source(headers.get(KEY), body, named(span, traceparent))
            outcomes = await self.service.accept(offers, source)
        reply = _received(outcomes, [offer.fault for offer in offers], is_list=is_list)
        return Response(reply, status_code=422 if isinstance(reply, wire.Refused) else 200)


Service_ = NamedDependency[Api]
Natural = Annotated[int | None, QueryParameter(ge=0, lt=10**18)]


@get("/")
async def banner() -> wire.Banner:
    """Name the server."""
    return wire.Banner(message="Overwatch rollouts API", version=__version__)


@get(PROBE)
async def health(service: Service_) -> Response[wire.Health]:
    """Show whether the server can go on; needs no token."""
    problem = service.service.problem
    reply = wire.Health(status="failed" if problem else "ok", error=problem)
    return Response(reply, status_code=503 if problem else 200)


@get("/batch")
async def batch(
    request: Request[Any, Any, Any], service: Service_, version: Natural = None, lineage: Natural = None
) -> Response[wire.Batch | wire.NoTrainer]:
    """Lease the next batch, oldest first within fair shares, or null where there is none yet.

    With the header `Overwatch-Lease: 1` the trainer acknowledges it. Version and lineage are the trainer's.
    """
    stated = None if version is None else wire.VersionMove(lineage=lineage or 0, number=version)
    return await service.batch(request, stated)


@get("/latest_example")
async def latest_example(service: Service_) -> Response[wire.Scored | wire.NoExample]:
    """Show the group that was accepted last."""
    latest = await service.service.do(lambda *_: service.service.store.latest())
    return _json(latest or service.service.latest or msgspec.json.encode(wire.NoExample()))


@dataclass
class _TakesGroup(Operation):
    """A body that is no parameter of its handler: it is judged by `validation`."""

    def __post_init__(self) -> None:
        self.request_body = _groups(Reference("#/components/schemas/Scored"))


@dataclass
class _TakesGroups(Operation):
    def __post_init__(self) -> None:
        self.request_body = _groups(
            Schema(type=OpenAPIType.ARRAY, items=Reference("#/components/schemas/Scored"))
        )


def _groups(schema: Schema | Reference) -> RequestBody:
    return RequestBody(content={"application/json": OpenAPIMediaType(schema=schema)})


@post("/scored_data", status_code=200, operation_class=_TakesGroup)
async def scored_data(request: Request[Any, Any, Any], service: Service_) -> Response[wire.Received]:
    """Queue one group of sequences; the same `Idempotency-Key` again is the same request."""
    body = request.scope["state"]["body"]
    return await service.accept([await service.judged(one, body)], request.headers, body, is_list=False)


@post("/scored_data_list", status_code=200, operation_class=_TakesGroups)
async def scored_data_list(request: Request[Any, Any, Any], service: Service_) -> Response[wire.ReceivedList]:
    """Queue several groups of one environment; the good ones are queued, the bad ones named."""
    body = request.scope["state"]["body"]
    groups = await service.judged(several, body)
    if not groups:
        return Response(wire.ReceivedList(groups_processed=0, ids=[]))
    return await service.accept(groups, request.headers, body, is_list=True)


@get("/status-env")
async def status_env(
    request: Request[Any, Any, Any], service: Service_, env_id: Natural = None
) -> wire.EnvStatus:
    """Show the queue as one environment sees it, which is renewed; its id is in the query or in a body."""
    if env_id is None:
        env_id = decode(request.scope["state"]["body"], _IDENTIFIER, FIXES).env_id
    known = env_id
    return await service.service.do(lambda state, now: queue.status_env(state, known, now))


@post("/lease/{lease:int}/ack", status_code=200)
async def acknowledge(lease: FromPath[int], service: Service_) -> wire.Lease:
    """Acknowledge that the groups of a lease are used: they are never served again."""
    return await service.service.do(lambda state, now: queue.acknowledge(state, lease, now))


@post("/lease/{lease:int}/release", status_code=200)
async def release(lease: FromPath[int], service: Service_) -> wire.Lease:
    """Give a lease back: its groups are served again, flagged."""
    return await service.service.do(lambda state, now: queue.release(state, lease, now))


@post("/lease/{lease:int}/extend", status_code=200)
async def extend(
    lease: FromPath[int], service: Service_, data: JSONBody[wire.Extension | None] = None
) -> wire.Lease:
    """Hold a lease for longer."""
    seconds = None if data is None else data.seconds
    return await service.service.do(lambda state, now: queue.extend(state, lease, seconds, now))


@get("/reset_data")
async def reset_data() -> None:
    """Discard nothing: an address that is followed by crawlers and browsers must not."""
    error = 'GET discards nothing here; send POST /reset with {"confirm": "discard everything"}'
    raise RefusedError(error, status=405)


def _shown(path: str, decide: Callable[[State, int], Any], answer: Any) -> HTTPRouteHandler:
    """An address that shows what is decided over the queue alone."""

    @functools.wraps(decide, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    async def handle(service: Service_) -> answer:
        return await service.service.do(decide)

    del handle.__wrapped__
    return get(path)(handle)


def _posted(path: str, decide: Callable[[State, Any, int], Any], kind: Any, answer: Any) -> HTTPRouteHandler:
    """An address that answers what is decided over a body of this type."""

    @functools.wraps(decide, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    async def handle(data: JSONBody[kind], service: Service_) -> answer:
        return await service.service.do(lambda state, now: decide(state, data, now))

    del handle.__wrapped__
    return post(path, status_code=200)(handle)


HANDLERS: Final = (
    banner, health, batch, latest_example, scored_data, scored_data_list, status_env, acknowledge, release,
    extend, reset_data,
    _posted("/register", queue.register_trainer, wire.Registration, wire.Registered),
    _posted("/register-env", queue.register_env, wire.EnvRegistration, wire.EnvRegistered | wire.EnvWaits),
    _posted("/disconnect-env", queue.disconnect_env, wire.EnvIdentifier, wire.Done | wire.Failure),
    _posted("/admit", queue.admit, wire.Admission, wire.Tickets),
    _posted("/version", queue.move_version, wire.VersionMove, wire.Moved),
    _posted("/reset", queue.reset, wire.Confirmation, wire.Done),
    _shown("/wandb_info", queue.wandb_info, wire.WandbInfo),
    _shown("/info", queue.info, wire.Info),
    _shown("/status", queue.status, wire.Status),
)  # fmt: skip


def _packed(body: bytes) -> bytes:
    """A body as gzip, at the lowest level: digits are packed to a third by it."""
    stream = fast_zlib.compressobj(1, fast_zlib.DEFLATED, 31)
    return stream.compress(body) + stream.flush()


def _json(
    body: bytes, headers: dict[str, str] | None = None, background: BackgroundTask | None = None
) -> Response[Any]:
    return Response(body, headers=headers, background=background, media_type="application/json")


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


def _source(key: str | None, body: bytes, traceparent: str | None) -> Source:
    if key is None:
        return Source(traceparent=traceparent)
    if not 0 < len(key) <= _LONGEST_KEY:
        raise InvalidError(Fault(KEY, f"has {len(key)} characters; send 1 to {_LONGEST_KEY}"))
    if not key.isascii():  # bytes that are no UTF-8 cannot be logged
        raise InvalidError(Fault(KEY, f"{key[:40]!a} is not ASCII; send e.g. a UUID"))
    return Source(key, hashlib.blake2b(body, digest_size=16).hexdigest(), traceparent)


def _of(sender: int, group: Offer, number: int, *, is_list: bool) -> Offer:
    """A group of the sender's, or why it cannot be of this sender's request."""
    if group.fault is not None or group.env_id == sender:
        return msgspec.structs.replace(group, env_id=sender)
    fault = Fault("env_id", f"is {group.env_id} beside groups of {sender}; send one list an environment")
    wrong = msgspec.structs.replace(group, env_id=sender, body=b"", ticket=None, fault=fault)
    return placed(wrong, number) if is_list else wrong


def rollouts_application(
    service: Service, authorisation: Authorisation, most_bytes: int, read_s: float = 60.0
) -> Gateway:
    """Return the ASGI application; `most_bytes` is the largest body, inflated, which arrives in `read_s`."""
    rules = Rules(
        authorisation=authorisation,
        intake=Intake(read_s, service.room),
        most_bytes=most_bytes,
        full=service.full,
    )
    return application("Overwatch rollouts API", HANDLERS, rules, Api(service))


def run(config: RolloutsConfig, echo: Callable[[str], None]) -> int:
    """Serve until a signal; 0, or 130 where that was SIGINT. Raises `OSError` where it cannot begin.

    `echo` is given lines for a person, the address first.
    """
    return_memory_soon()

    async def serve(tower: Run | None) -> int:
        """Serve until a signal, and return its number."""
        service = Service(Store(config.store, config.limits), Telemetry(tower))
        await service.begin()
        gc.freeze()
        gc.set_threshold(*_YOUNG)
        app = rollouts_application(service, config.authorisation, config.max_body_mib << 20, config.read_s)
        try:
            async with (
                listening(app, *config.address, config.connections, config.tls) as url,
                repeated(service.sweep),
            ):
                echo(f"rollouts API at {url}, {len(service.state.items)} groups {config.place}")
                return await ending()
        finally:
            await service.close()

    return config.run(start_run, serve)
