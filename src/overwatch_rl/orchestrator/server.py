"""The orchestrator over HTTP: its addresses and who may ask each, and its life as a process.

Rules: the line with the address is printed once requests are served; SIGTERM and SIGINT let requests that are
being answered end. What was answered is stored, so there is nothing to save.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from litestar import Request, Response, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from msgspec.structs import asdict

from overwatch.sdk import Run
from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.commands import Command, Done, Identifier, Pause, Resume, Terminate, Tune
from overwatch_rl.orchestrator.config import ROLES, OrchestratorConfig
from overwatch_rl.orchestrator.core import LONGEST_WAIT_S, MOST_RUNS, ConflictError, Orchestrator
from overwatch_rl.orchestrator.states import State
from overwatch_rl.orchestrator.store import Store
from overwatch_rl.orchestrator.telemetry import Telemetry, start_run
from overwatch_rl.orchestrator.wire import PREFIX
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.bodies import Intake
from overwatch_rl.web.faults import Fault, InvalidError, canonical
from overwatch_rl.web.gateway import PROBE, Gateway, Rules, application
from overwatch_rl.web.process import ending
from overwatch_rl.web.site import listening, repeated

KEY: Final = "Idempotency-Key"
"""Header of a shorthand that is the command's id: the same one again is the same command."""
SMALL: Final = 32 << 10
"""Most bytes of a heartbeat, a command, an acknowledgement."""
LARGE: Final = 1 << 20
"""Most bytes of a run's config, and of an artifact's details."""
MOST_RECEIVED: Final = 64 << 20
"""Bytes of all bodies that are being received or answered."""
_RUN: Final = PREFIX + "/runs/{run_id:str}"
_BOTH: Final = ("operator", "learner")
_REASONED: Final[dict[str, type[Pause | Resume | Terminate]]] = {
    "pause": Pause, "resume": Resume, "terminate": Terminate,
}  # fmt: skip

Runs = NamedDependency[Orchestrator]
RunId = FromPath[str]
Caller = NamedDependency[str]
"""The role of who calls."""
Key = Annotated[Identifier | None, HeaderParameter(name=KEY)]


@post(f"{PREFIX}/runs", roles=_BOTH)
async def create_run(
    data: JSONBody[wire.RunRequest], service: Runs, role: Caller
) -> Response[wire.RunRecord]:
    """Create a run, pending; the same body again is the same run (200)."""
    return _created(*await service.create(data, role))


@get(f"{PREFIX}/runs", roles=ROLES)
async def list_runs(
    service: Runs,
    of_state: Annotated[State | None, QueryParameter(name="state")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MOST_RUNS)] = 100,
) -> wire.Runs:
    """List runs, the newest first."""
    return wire.Runs(runs=await service.runs(of_state, limit))


@get(_RUN, roles=ROLES)
async def get_run(run_id: RunId, service: Runs) -> wire.RunRecord:
    """Show all that is known of a run: its config, seed base, key, state, last heartbeat."""
    return await service.run(run_id)


@post(f"{_RUN}/heartbeat", roles=("learner",), status_code=200, most_bytes=SMALL)
async def heartbeat(
    run_id: RunId, data: JSONBody[wire.Heartbeat], service: Runs, role: Caller
) -> wire.Beaten:
    """Report where a learner is; a run that is pending begins with it."""
    if data.run_id != run_id:
        raise InvalidError(Fault("run_id", f"is {data.run_id!r} in a heartbeat of {run_id[:128]!r}"))
    return await service.beat(run_id, data, role)


@post(f"{_RUN}/commands", roles=("operator",), most_bytes=SMALL)
async def issue_command(
    run_id: RunId, data: JSONBody[wire.CommandRequest], service: Runs, role: Caller, key: Key = None
) -> Response[wire.CommandRecord]:
    """Command the learner; the same id again is the same command (200)."""
    if data.id is not None:
        return _created(*await service.command(run_id, data.command, data.id, role))
    return await _issued(service, run_id, data.command, key, role)


@get(f"{_RUN}/commands", roles=ROLES)
async def list_commands(run_id: RunId, service: Runs) -> wire.Commands:
    """List commands of a run and what became of them, the oldest first."""
    return wire.Commands(commands=await service.rows(run_id, wire.CommandRecord))


@get(f"{_RUN}/commands/next", roles=("learner",))
async def next_command(
    run_id: RunId,
    service: Runs,
    role: Caller,
    wait_s: Annotated[float, QueryParameter(ge=0, le=LONGEST_WAIT_S)] = 0.0,
    lineage: Annotated[int | None, QueryParameter(ge=0)] = None,
) -> wire.Next:
    """Take the command in force; with `wait_s` the next one that comes within that time."""
    return wire.Next(command=await service.next_command(run_id, lineage, wait_s, role))


@post(f"{_RUN}/commands/{{command_id:str}}/ack", roles=("learner",), status_code=200, most_bytes=SMALL)
async def acknowledge_command(
    run_id: RunId, command_id: RunId, data: JSONBody[Done], service: Runs, role: Caller
) -> wire.CommandRecord:
    """Report what the learner has done; the first acknowledgement counts."""
    return await service.acknowledge(run_id, command_id, data, role)


@post([f"{_RUN}/pause", f"{_RUN}/resume", f"{_RUN}/terminate"], roles=("operator",), most_bytes=SMALL)
async def pause_resume_terminate(  # noqa: PLR0917 Litestar gives them by name
    run_id: RunId,
    service: Runs,
    role: Caller,
    request: Request[Any, Any, Any],
    data: JSONBody[wire.ReasonRequest | None] = None,
    key: Key = None,
) -> Response[wire.CommandRecord]:
    """Shorthand of the command: finish the update in progress; then wait, go on, or save and end."""
    reason = None if data is None else data.reason
    kind = _REASONED[request.url.path.rpartition("/")[2]]
    return await _issued(service, run_id, kind(reason=reason), key, role)


@post(f"{_RUN}/tune", roles=("operator",), most_bytes=SMALL)
async def tune(
    run_id: RunId, data: JSONBody[wire.TuneRequest], service: Runs, role: Caller, key: Key = None
) -> Response[wire.CommandRecord]:
    """Shorthand of the command: hyperparameters to their new values, within their bounds."""
    return await _issued(service, run_id, Tune(values=data.values), key, role)


@put(f"{_RUN}/weights-key", roles=_BOTH, most_bytes=SMALL)
async def publish_key(
    run_id: RunId, data: JSONBody[wire.KeyRequest], service: Runs, role: Caller
) -> wire.RunRecord:
    """Publish the key that weights are signed with; once."""
    return await service.publish_key(run_id, data.weights_public_key, role)


@post(f"{_RUN}/artifacts", roles=("learner",))
async def register_artifact(
    run_id: RunId, data: JSONBody[wire.ArtifactRequest], service: Runs, role: Caller
) -> Response[wire.ArtifactRecord]:
    """Register a checkpoint or weights; one of a kind and version."""
    return _created(*await service.register(run_id, data, role))


@get(f"{_RUN}/artifacts", roles=ROLES)
async def list_artifacts(run_id: RunId, service: Runs) -> wire.Artifacts:
    """List what a run has written, the oldest first."""
    found = await service.rows(run_id, wire.ArtifactRecord)
    returns = {row.version: row.mean_return for row in await service.rows(run_id, wire.EvaluationRecord)}
    return wire.Artifacts(
        artifacts=[wire.ListedArtifact(**asdict(row), mean_return=returns.get(row.version)) for row in found]
    )


@post(f"{_RUN}/evaluations", roles=_BOTH)
async def post_evaluation(
    run_id: RunId, data: JSONBody[wire.EvaluationRequest], service: Runs, role: Caller
) -> wire.EvaluationRecord:
    """Report how well a version did."""
    return await service.evaluated(run_id, data, role)


@get(f"{_RUN}/evaluations", roles=ROLES)
async def list_evaluations(run_id: RunId, service: Runs) -> wire.Evaluations:
    """List evaluations of a run, the oldest first."""
    return wire.Evaluations(evaluations=await service.rows(run_id, wire.EvaluationRecord))


@get(f"{_RUN}/transitions", roles=ROLES)
async def list_transitions(run_id: RunId, service: Runs) -> wire.Transitions:
    """List moves of a run between states, the oldest first."""
    return wire.Transitions(transitions=await service.rows(run_id, wire.TransitionRecord))


@get(f"{_RUN}/audit", roles=("operator",))
async def audit(run_id: RunId, service: Runs) -> wire.Audit:
    """List what was asked of a run, with its sender, the oldest first; what was refused too."""
    return wire.Audit(audit=await service.rows(run_id, wire.AuditRecord))


@get(f"{_RUN}/health", roles=ROLES)
async def run_health(run_id: RunId, service: Runs) -> wire.RunHealth:
    """Show how long the learner has been silent, and what that means."""
    return await service.health(run_id)


@get(PROBE)
async def server_health(service: Runs) -> Response[wire.ServerHealth]:
    """Show whether the store can be read; needs no token."""
    problem = await service.problem()
    health = wire.ServerHealth(status="failed" if problem else "ok", error=problem)
    return Response(health, status_code=503 if problem else 200)


HANDLERS: Final = (
    create_run, list_runs, get_run, heartbeat, issue_command, list_commands, next_command,
    acknowledge_command, pause_resume_terminate, tune, publish_key, register_artifact, list_artifacts,
    post_evaluation,
    list_evaluations, list_transitions, audit, run_health, server_health,
)  # fmt: skip


async def _issued(
    service: Runs, run_id: RunId, command: Command, key: str | None, role: str
) -> Response[wire.CommandRecord]:
    try:
        return _created(*await service.command(run_id, command, key, role))
    except ConflictError as error:
        if key is None or error.path != "id":
            raise
        message = f"{key!r} came before with another body; send a new key with each new request"
        raise InvalidError(Fault(KEY, message)) from error


def _created(record: Any, is_new: bool) -> Response[Any]:  # noqa: FBT001 of a pair
    return Response(record, status_code=201 if is_new else 200)


def orchestrator_application(
    service: Orchestrator, authorisation: Authorisation, read_s: float = 30.0
) -> Gateway:
    """Return the ASGI application; the body of a request must arrive in `read_s`."""
    telemetry = service.telemetry
    rules = Rules(
        authorisation=authorisation,
        intake=Intake(read_s, MOST_RECEIVED.__ge__),
        most_bytes=LARGE,
        observe=telemetry.requested,
        span=telemetry.span,
        check=canonical,
    )
    return application("Overwatch orchestrator API", HANDLERS, rules, service)


def run(config: OrchestratorConfig, echo: Callable[[str], None]) -> int:
    """Serve until a signal; 0, or 130 where that was SIGINT.

    `echo` is given lines for a person, the address first. Raises `OSError`, `ValueError` or `SQLAlchemyError`
    where it cannot begin.
    """
    store = Store(config.store)

    async def serve(tower: Run | None) -> int:
        """Serve until a signal, and return its number."""
        service = Orchestrator(store, Telemetry(tower), pace=config.pace)
        app = orchestrator_application(service, config.authorisation, config.read_s)
        async with (
            listening(app, *config.address, config.connections, config.tls) as url,
            repeated(service.sweep),
        ):
            echo(f"orchestrator API at {url}/api/v1, runs kept in {store.name}")
            number = await ending()
            await service.end()
        service.close()
        return number

    try:
        return config.run(start_run, serve)
    finally:
        store.close()
