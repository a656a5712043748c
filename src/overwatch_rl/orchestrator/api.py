"""What each address does, and who may ask it: bodies in, decisions of the service, replies out.

Owns the table of routes: one row an address, from which the server routes and the document are made. Rules: a
body that is wrong is answered with the field and the fix. Must not know sockets.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from overwatch_rl.orchestrator import tables, wire
from overwatch_rl.orchestrator.commands import Command, Done, Identifier, Pause, Resume, Terminate, Tune
from overwatch_rl.orchestrator.runs import ConflictError
from overwatch_rl.orchestrator.service import LONGEST_WAIT_S, MOST_RUNS, Service, UnknownError
from overwatch_rl.orchestrator.states import State
from overwatch_rl.orchestrator.wire import PREFIX
from overwatch_rl.web.faults import Fault, InvalidError, canonical, decode

T = TypeVar("T")
Role: TypeAlias = Literal["operator", "learner", "reader"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
LOCAL: Final = "local"
"""Who calls where there are no tokens: this machine, which may do everything."""

KEY: Final = "Idempotency-Key"
"""Header of a shorthand that is the command's id: the same one again is the same command."""
SMALL: Final = 32 << 10
"""Most bytes of a heartbeat, a command, an acknowledgement."""
LARGE: Final = 1 << 20
"""Most bytes of a run's config, and of an artifact's details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    role: str
    body: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)
    match: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """Of the run in the path."""
        return self._named("run_id")

    @property
    def command_id(self) -> str:
        """Of the command in the path."""
        return self._named("command_id")

    def _named(self, name: str) -> str:
        try:
            return msgspec.convert(self.match[name], Identifier)
        except msgspec.ValidationError as error:
            raise UnknownError(f"{self.match[name][:128]!a} is no {name}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is answered."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[["Api", Call], Awaitable[Reply]]

_RUN: Final = msgspec.json.Decoder(wire.RunRequest)
_BEAT: Final = msgspec.json.Decoder(wire.Heartbeat)
_COMMAND: Final = msgspec.json.Decoder(wire.CommandRequest)
_DONE: Final = msgspec.json.Decoder(Done)
_REASON: Final = msgspec.json.Decoder(wire.ReasonRequest)
_TUNE: Final = msgspec.json.Decoder(wire.TuneRequest)
_KEY: Final = msgspec.json.Decoder(wire.KeyRequest)
_ARTIFACT: Final = msgspec.json.Decoder(wire.ArtifactRequest)
_EVALUATION: Final = msgspec.json.Decoder(wire.EvaluationRequest)


class Api:
    """The addresses, over one service."""

    def __init__(self, service: Service, document: Callable[[], object]) -> None:
        """`document` gives the OpenAPI document."""
        self._service = service
        self._document = document

    async def create_run(self, call: Call) -> Reply:
        """A run is created, pending; the same body again is the same run (200)."""
        record, is_new = await self._service.create(_whole(call.body, _RUN), call.role)
        return Reply(body=record, status=201 if is_new else 200)

    async def list_runs(self, call: Call) -> Reply:
        """Runs, the newest first; `state` and `limit` choose."""
        state = call.query.get("state")
        if state is not None and state not in get_args(State):
            raise InvalidError(Fault("state", f"is {state[:40]!r}; use one of {', '.join(get_args(State))}"))
        limit = int(_number(call, "limit", MOST_RUNS, least=1) or 100)
        return Reply(body=wire.Runs(runs=await self._service.runs(cast("State | None", state), limit)))

    async def get_run(self, call: Call) -> Reply:
        """All that is known of a run: its config, seed base, key, state, last heartbeat."""
        return Reply(body=await self._service.run(call.run_id))

    async def heartbeat(self, call: Call) -> Reply:
        """A learner reports where it is; a run that is pending begins with it."""
        beat = decode(call.body, _BEAT)
        if beat.run_id != call.run_id:
            raise InvalidError(Fault("run_id", f"is {beat.run_id!r} in a heartbeat of {call.run_id[:128]!r}"))
        return Reply(body=await self._service.beat(call.run_id, beat))

    async def issue_command(self, call: Call) -> Reply:
        """A command to the learner; the same id again is the same command (200)."""
        request = decode(call.body, _COMMAND)
        return await self._issue(call, request.command, request.id)

    async def list_commands(self, call: Call) -> Reply:
        """Commands of a run and what became of them, the oldest first."""
        return Reply(body=wire.Commands(commands=await self._service.commands(call.run_id)))

    async def next_command(self, call: Call) -> Reply:
        """The command in force; with `wait_s` the next one that comes within that time."""
        wait_s = _number(call, "wait_s", LONGEST_WAIT_S) or 0.0
        lineage = _number(call, "lineage", 2**53)
        found = await self._service.next_command(
            call.run_id, None if lineage is None else int(lineage), wait_s
        )
        return Reply(body=wire.Next(command=found))

    async def acknowledge_command(self, call: Call) -> Reply:
        """What the learner has done; the first acknowledgement counts."""
        done = decode(call.body, _DONE)
        record = await self._service.acknowledge(call.run_id, call.command_id, done, call.role)
        return Reply(body=record)

    async def pause(self, call: Call) -> Reply:
        """Shorthand of the command: finish the update in progress, sample no more, wait."""
        return await self._issue(call, Pause(reason=_reason(call)), None)

    async def resume(self, call: Call) -> Reply:
        """Shorthand of the command: go on after a pause."""
        return await self._issue(call, Resume(reason=_reason(call)), None)

    async def terminate(self, call: Call) -> Reply:
        """Shorthand of the command: finish the update in progress, write a last checkpoint, end."""
        return await self._issue(call, Terminate(reason=_reason(call)), None)

    async def tune(self, call: Call) -> Reply:
        """Shorthand of the command: hyperparameters to their new values, within their bounds."""
        return await self._issue(call, Tune(values=decode(call.body, _TUNE).values), None)

    async def publish_key(self, call: Call) -> Reply:
        """The public key that weights are signed with; once."""
        key = decode(call.body, _KEY).weights_public_key
        return Reply(body=await self._service.publish_key(call.run_id, key, call.role))

    async def register_artifact(self, call: Call) -> Reply:
        """A checkpoint or weights were written; one of a kind and version."""
        request = _whole(call.body, _ARTIFACT)
        record, is_new = await self._service.register(call.run_id, request, call.role)
        return Reply(body=record, status=201 if is_new else 200)

    async def list_artifacts(self, call: Call) -> Reply:
        """What a run has written, the oldest first."""
        found = await self._service.rows(tables.ARTIFACTS, call.run_id, wire.ArtifactRecord)
        posted = await self._service.rows(tables.EVALUATIONS, call.run_id, wire.EvaluationRecord)
        returns = {one.version: one.mean_return for one in posted}
        listed = [
            wire.ListedArtifact(**msgspec.structs.asdict(one), mean_return=returns.get(one.version))
            for one in found
        ]
        return Reply(body=wire.Artifacts(artifacts=listed))

    async def post_evaluation(self, call: Call) -> Reply:
        """A version was evaluated."""
        request = _whole(call.body, _EVALUATION)
        return Reply(body=await self._service.evaluated(call.run_id, request, call.role), status=201)

    async def list_evaluations(self, call: Call) -> Reply:
        """Evaluations of a run, the oldest first."""
        found = await self._service.rows(tables.EVALUATIONS, call.run_id, wire.EvaluationRecord)
        return Reply(body=wire.Evaluations(evaluations=found))

    async def list_transitions(self, call: Call) -> Reply:
        """Moves of a run between states, the oldest first."""
        found = await self._service.rows(tables.TRANSITIONS, call.run_id, wire.TransitionRecord)
        return Reply(body=wire.Transitions(transitions=found))

    async def audit(self, call: Call) -> Reply:
        """What was asked of a run, with its sender, the oldest first; what was refused too."""
        found = await self._service.rows(tables.AUDIT, call.run_id, wire.AuditRecord)
        return Reply(body=wire.Audit(audit=found))

    async def run_health(self, call: Call) -> Reply:
        """How long the learner has been silent, and what that means."""
        return Reply(body=await self._service.health(call.run_id))

    async def server_health(self, _: Call) -> Reply:
        """Whether the store can be read; needs no token."""
        problem = await self._service.problem()
        if problem is None:
            return Reply(body=wire.ServerHealth(status="ok"))
        return Reply(body=wire.ServerHealth(status="failed", error=problem), status=503)

    async def openapi(self, _: Call) -> Reply:
        """This API as a document."""
        return Reply(body=self._document())

    async def _issue(self, call: Call, command: Command, command_id: str | None) -> Reply:
        header = call.headers.get(KEY)
        if header is not None and command_id is None:
            command_id = _identifier(header)
        try:
            record, is_new = await self._service.command(call.run_id, command, command_id, call.role)
        except ConflictError as error:
            if header is None or error.path != "id":
                raise
            raise InvalidError(
                Fault(KEY, f"{header!r} came before with another body; send a new key with each new request")
            ) from error
        return Reply(body=record, status=201 if is_new else 200)


def _whole(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A body with values of any kind, which everyone can read who is answered with it."""
    found = decode(body, decoder)
    canonical(body)
    return found


def _identifier(text: str) -> str:
    try:
        return msgspec.convert(text, Identifier)
    except msgspec.ValidationError as error:
        raise InvalidError(
            Fault(KEY, f"is {text[:40]!a}; send letters, digits and ._:-, e.g. a UUID")
        ) from error


def _reason(call: Call) -> str | None:
    """Of a shorthand, whose body may be empty."""
    return decode(call.body, _REASON).reason if call.body.strip() else None


def _number(call: Call, name: str, most: float, *, least: float = 0.0) -> float | None:
    text = call.query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise InvalidError(Fault(name, f"is {text[:40]!r}; use a number from {least:g} to {most:g}"))
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One address."""

    method: str
    path: str
    handler: Handler
    roles: tuple[Role, ...]
    """Who may ask; none for everybody, without a token."""
    replies: Mapping[int, type]
    """Types of the bodies that it answers, by status."""
    body: Any = None
    """Type of the request's body."""
    most_bytes: int = SMALL
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


_ALL: Final[tuple[Role, ...]] = ROLES
_OPERATOR: Final[tuple[Role, ...]] = ("operator",)
_LEARNER: Final[tuple[Role, ...]] = ("learner",)
_BOTH: Final[tuple[Role, ...]] = ("operator", "learner")
_RUN_PATH: Final = PREFIX + "/runs/{run_id}"
_UNKNOWN: Final = {404: wire.Problem}
_WRONG: Final = {404: wire.Problem, 409: wire.Problem, 413: wire.Problem, 422: wire.Problem}
_COMMANDED: Final = {200: wire.CommandRecord, 201: wire.CommandRecord, **_WRONG}


def _reading(name: str, handler: Handler, kind: type, roles: tuple[Role, ...] = _ALL) -> Route:
    return Route(
        method="GET", path=f"{_RUN_PATH}{name}", handler=handler, roles=roles, replies={200: kind, **_UNKNOWN}
    )


def _shorthand(name: str, handler: Handler, body: type) -> Route:
    return Route(
        method="POST", path=f"{_RUN_PATH}/{name}", handler=handler, roles=_OPERATOR, replies=_COMMANDED,
        body=body, headers=(KEY,),
    )  # fmt: skip


ROUTES: Final = (
    Route(method="POST", path=f"{PREFIX}/runs", handler=Api.create_run, roles=_BOTH, body=wire.RunRequest,
          most_bytes=LARGE, replies={200: wire.RunRecord, 201: wire.RunRecord, **_WRONG}),
    Route(method="GET", path=f"{PREFIX}/runs", handler=Api.list_runs, roles=_ALL, query=("state", "limit"),
          replies={200: wire.Runs, 422: wire.Problem}),
    _reading("", Api.get_run, wire.RunRecord),
    Route(method="POST", path=f"{_RUN_PATH}/heartbeat", handler=Api.heartbeat, roles=_LEARNER,
          body=wire.Heartbeat, replies={200: wire.Beaten, 429: wire.Problem, **_WRONG}),
    Route(method="POST", path=f"{_RUN_PATH}/commands", handler=Api.issue_command, roles=_OPERATOR,
          body=wire.CommandRequest, replies=_COMMANDED),
    _reading("/commands", Api.list_commands, wire.Commands),
    Route(method="GET", path=f"{_RUN_PATH}/commands/next", handler=Api.next_command, roles=_LEARNER,
          query=("wait_s", "lineage"),
          replies={200: wire.Next, 409: wire.Problem, 422: wire.Problem, **_UNKNOWN}),
    Route(method="POST", path=f"{_RUN_PATH}/commands/{{command_id}}/ack", handler=Api.acknowledge_command,
          roles=_LEARNER, body=Done, replies={200: wire.CommandRecord, **_WRONG}),
    _shorthand("pause", Api.pause, wire.ReasonRequest),
    _shorthand("resume", Api.resume, wire.ReasonRequest),
    _shorthand("terminate", Api.terminate, wire.ReasonRequest),
    _shorthand("tune", Api.tune, wire.TuneRequest),
    Route(method="PUT", path=f"{_RUN_PATH}/weights-key", handler=Api.publish_key, roles=_BOTH,
          body=wire.KeyRequest, replies={200: wire.RunRecord, **_WRONG}),
    Route(method="POST", path=f"{_RUN_PATH}/artifacts", handler=Api.register_artifact, roles=_LEARNER,
          body=wire.ArtifactRequest, most_bytes=LARGE,
          replies={200: wire.ArtifactRecord, 201: wire.ArtifactRecord, **_WRONG}),
    _reading("/artifacts", Api.list_artifacts, wire.Artifacts),
    Route(method="POST", path=f"{_RUN_PATH}/evaluations", handler=Api.post_evaluation, roles=_BOTH,
          body=wire.EvaluationRequest, most_bytes=LARGE, replies={201: wire.EvaluationRecord, **_WRONG}),
    _reading("/evaluations", Api.list_evaluations, wire.Evaluations),
    _reading("/transitions", Api.list_transitions, wire.Transitions),
    _reading("/audit", Api.audit, wire.Audit, _OPERATOR),
    _reading("/health", Api.run_health, wire.RunHealth),
    Route(method="GET", path="/healthz", handler=Api.server_health, roles=(),
          replies={200: wire.ServerHealth, 503: wire.ServerHealth}),
    Route(method="GET", path="/openapi.json", handler=Api.openapi, roles=_ALL, replies={200: dict}),
)  # fmt: skip
"""Every address of the server."""
