"""Decisions about runs, one at a time: read, decide and write in one transaction, then report, and wake.

Rules: what is answered is stored; a refused request changes nothing but the audit trail. Within one life of a
learner steps and checkpoints never go back; a new life (a greater lineage) goes on from where its checkpoint
was; a former life is refused for good. One command is in force at a time, the oldest; it is delivered until
it is acknowledged. A terminate supersedes those that were not delivered. Must not know HTTP; roles are words.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, assert_never, cast

import msgspec
from msgspec.structs import asdict, replace
from sqlalchemy.exc import SQLAlchemyError

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.commands import (
    Command,
    Done,
    Issued,
    Kind,
    Pause,
    Resume,
    Terminate,
    Tune,
    check,
)
from overwatch_rl.orchestrator.states import (
    FINAL,
    RESUMABLE,
    WATCHED,
    IllegalMoveError,
    Pace,
    Pulses,
    State,
    route,
)
from overwatch_rl.orchestrator.store import Run, Store, Unit
from overwatch_rl.orchestrator.telemetry import Telemetry
from overwatch_rl.orchestrator.wire import CommandRecord, TransitionRecord
from overwatch_rl.web.faults import RefusedError

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
LONGEST_WAIT_S: Final = 60.0
"""Most that a request waits for a command."""
MOST_RUNS: Final = 1000
"""Of one list."""
MOST_WAITING: Final = 64
"""Commands of a run that are not acknowledged."""
_WAITING: Final = ("queued", "delivered")
_LAST: Final[dict[str, State]] = {"errored": "failed", "completed": "completed", "terminated": "terminated"}
"""Where the last words of a learner lead."""


class UnknownError(RefusedError):
    """There is no such run or command; the message names it."""

    status = 404


class StoreError(RefusedError):
    """The store cannot be used now."""


class ConflictError(RefusedError):
    """What was asked is against what is known; the message names both, `path` the field."""

    status = 409

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message, path or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What time it is."""

    monotonic: Callable[[], float] = time.monotonic
    """For intervals: it never goes back."""
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    """For records alone."""


CLOCKS: Final = Clocks()


@dataclass(slots=True)
class _Change:
    """A transaction over one run, and what is to be reported once it has ended."""

    unit: Unit
    run_id: str
    at: datetime
    role: str
    moves: list[tuple[TransitionRecord, CommandRecord | None]] = field(default_factory=list)
    commands: list[CommandRecord] = field(default_factory=list)

    def run(self) -> Run:
        """What is known of it; raise `UnknownError`."""
        return _known(self.unit, self.run_id)

    def move(self, before: Run, after: Run, cause: CommandRecord | None = None) -> None:
        """Store a run, and how it got from one state to another: by a heartbeat, or because of a command."""
        self.unit.change_run(self.run_id, after)
        state = before.state
        words = "heartbeat" if cause is None else f"command {cause.id}"
        for following in route(state, after.state, is_new_life=before.lineage != after.lineage):
            row = TransitionRecord(
                before=state, after=following, cause=words, lineage=after.lineage, at=self.at
            )
            self.unit.put(self.run_id, row)
            self.moves.append((row, cause))
            state = following

    def put(self, command: CommandRecord) -> None:
        """Store what became of a command."""
        self.unit.put(self.run_id, command, command.id)
        self.commands.append(command)

    def audit(self, action: str, **details: Any) -> None:
        """Store who asked what."""
        plain = {name: msgspec.to_builtins(value) for name, value in details.items()}
        self.unit.put(
            self.run_id, wire.AuditRecord(id=0, at=self.at, role=self.role, action=action, details=plain)
        )


class Orchestrator:
    """All runs of one store."""

    def __init__(
        self,
        store: Store,
        telemetry: Telemetry,
        clocks: Clocks = CLOCKS,
        pace: Pace = Pace(),  # noqa: B008 frozen
    ) -> None:
        self._store = store
        self.telemetry = telemetry
        self._clocks = clocks
        self._pulses = Pulses(pace, clocks.monotonic())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="orchestrator-store")
        self._turn = asyncio.Lock()
        self._issued = asyncio.Condition()
        """Notified when a command may have come into force."""
        self._is_ending = False

    async def end(self) -> None:
        """Nobody waits for a command any longer: the server ends."""
        self._is_ending = True
        await self._wake()

    def close(self) -> None:
        """Wait for what is being stored."""
        self._thread.shutdown()

    async def create(self, request: wire.RunRequest, role: str) -> tuple[wire.RunRecord, bool]:
        """A run that is pending, and whether it is new: the same request again is the same run."""
        run_id = request.run_id or uuid.uuid4().hex

        def work(change: _Change) -> tuple[wire.RunRecord, bool]:
            known = change.unit.run(run_id)
            if known is not None and known.request != request:
                raise ConflictError("run_id", f"{run_id} is a run already, made otherwise; choose another id")
            run = known or Run(
                request=request, created_at=change.at, weights_public_key=request.weights_public_key
            )
            if known is None:
                change.unit.add_run(run_id, run)
                change.audit("create", experiment=request.experiment)
            return self._record(run_id, run), known is None

        return await self._change(run_id, role, work)

    async def runs(self, state: State | None, limit: int) -> list[wire.RunRecord]:
        """The newest, of all or of one state."""
        found = await self._read(lambda unit: unit.runs(state, limit))
        return [self._record(run_id, run) for run_id, run in found.items()]

    async def run(self, run_id: str) -> wire.RunRecord:
        """All that is known of one."""
        return self._record(run_id, await self._read(lambda unit: _known(unit, run_id)))

    async def beat(self, run_id: str, heartbeat: wire.Heartbeat, role: str) -> wire.Beaten:
        """A heartbeat; the last words of a life and the first of another need not wait for their time."""
        now, least_s = self._clocks.monotonic(), self._pulses.pace.least_s

        def work(change: _Change) -> wire.Beaten:
            before = change.run()
            after = replace(beaten(before, heartbeat), heartbeat=heartbeat, heartbeat_at=change.at)
            early_s = self._pulses.early_s(run_id, now)
            if early_s > 0 and after.state not in FINAL and before.lineage == after.lineage:
                message = (
                    f"heartbeats of a run are {least_s:g} s apart or more; send this one in {early_s:.1f} s"
                )
                raise RefusedError(message, status=429, retry_s=early_s)
            change.move(before, after)
            return wire.Beaten(state=after.state, commands_waiting=after.commands_waiting, interval_s=least_s)

        answer = await self._change(run_id, role, work)
        if event := self._pulses.beat(run_id, now):
            self.telemetry.health(run_id, event)
        if answer.state in FINAL:
            self._pulses.forget(run_id)
        return answer

    async def command(
        self, run_id: str, command: Command, command_id: str | None, role: str
    ) -> tuple[CommandRecord, bool]:
        """A command, and whether it is new: the same id again is the same command."""
        named = command_id or uuid.uuid4().hex
        kind = cast("Kind", type(command).__name__.lower())

        def work(change: _Change) -> tuple[CommandRecord, bool]:
            before = change.run()
            check(command)
            known = change.unit.rows(run_id, CommandRecord)
            for row in known:
                if row.id == named:
                    if row.command != command:
                        message = f"{named} is a command already, another one; send a new id"
                        raise ConflictError("id", message)
                    return row, False
            record = CommandRecord(
                id=named,
                kind=kind,
                command=command,
                status="queued",
                issued_by=role,
                issued_at=change.at,
            )
            after, record, superseded = commanded(before, known, record)
            for row in (*superseded, record):
                change.put(row)
            ids = [row.id for row in superseded]
            change.audit(kind, id=named, command=command, superseded=ids)
            change.move(before, after, record)
            return record, True

        try:
            answer = await self._change(run_id, role, work)
        except (UnknownError, StoreError):
            raise
        except RefusedError as error:
            why = str(error)
            refusal: dict[str, Any] = {"id": named, "command": command, "error": why}
            await self._change(run_id, role, lambda change: change.audit(f"{kind} refused", **refusal))
            raise
        await self._wake()
        return answer

    async def next_command(self, run_id: str, lineage: int | None, wait_s: float, role: str) -> Issued | None:
        """The command in force; where there is none, the next one that comes into force in `wait_s`."""
        until = self._clocks.monotonic() + wait_s

        def work(change: _Change) -> Issued | None:
            run = change.run()
            if lineage is not None:
                check_lineage(run, lineage)
            waiting = [row for row in change.unit.rows(run_id, CommandRecord) if row.status in _WAITING]
            if run.state in FINAL or not waiting:
                return None
            row = waiting[0]
            sent = replace(row, status="delivered", deliveries=row.deliveries + 1, delivered_at=change.at)
            if row.deliveries:
                change.unit.put(run_id, sent, row.id)
            else:
                change.put(sent)
            return Issued(id=row.id, command=row.command, redelivered=row.deliveries > 0)

        while True:
            async with self._issued:
                found = await self._change(run_id, role, work)
                left_s = until - self._clocks.monotonic()
                if found is not None or left_s <= 0 or self._is_ending:
                    return found
                try:
                    async with asyncio.timeout(left_s):
                        await self._issued.wait()
                except TimeoutError:
                    return None

    async def acknowledge(self, run_id: str, command_id: str, done: Done, role: str) -> CommandRecord:
        """What a learner has done; the first acknowledgement counts."""

        def work(change: _Change) -> CommandRecord:
            before = change.run()
            rows = {row.id: row for row in change.unit.rows(run_id, CommandRecord)}
            if (record := rows.get(command_id)) is None:
                raise UnknownError(f"the run has no command {command_id[:128]!r}")
            if record.done is not None:
                return record
            if record.status != "delivered":
                message = f"command {record.id} is {record.status}; acknowledge what was delivered"
                raise ConflictError("", message)
            record = replace(record, status=done.outcome, done=done, acknowledged_at=change.at)
            change.put(record)
            change.audit("acknowledge", id=command_id, done=done)
            after = obeyed(before, record.command, done)
            change.move(before, replace(after, commands_waiting=before.commands_waiting - 1), record)
            return record

        record = await self._change(run_id, role, work)
        await self._wake()
        return record

    async def publish_key(self, run_id: str, key: str, role: str) -> wire.RunRecord:
        """The public key of a run's weights, once."""

        def work(change: _Change) -> wire.RunRecord:
            run = change.run()
            if run.weights_public_key not in (None, key):
                message = (
                    f"the run's is {run.weights_public_key}; sign with the key in the folder of the run, or "
                    "make another run"
                )
                raise ConflictError("weights_public_key", message)
            if run.weights_public_key is None:
                run = replace(run, weights_public_key=key)
                change.unit.change_run(run_id, run)
                change.audit("publish key", weights_public_key=key)
            return self._record(run_id, run)

        return await self._change(run_id, role, work)

    async def register(
        self, run_id: str, request: wire.ArtifactRequest, role: str
    ) -> tuple[wire.ArtifactRecord, bool]:
        """An artifact, and whether it is new: one of a kind and version."""

        def work(change: _Change) -> tuple[wire.ArtifactRecord, bool]:
            change.run()
            made = wire.ArtifactRecord(**asdict(request), registered_at=change.at)
            for known in change.unit.rows(run_id, wire.ArtifactRecord):
                if (known.kind, known.version) == (made.kind, made.version):
                    if replace(made, registered_at=known.registered_at) != known:
                        message = (
                            f"{known.kind} {known.version} is at {known.uri} already, or with other details"
                        )
                        raise ConflictError("version", message)
                    return known, False
            change.unit.put(run_id, made, f"{made.kind} {made.version}")
            change.audit("register", kind=made.kind, version=made.version)
            return made, True

        return await self._change(run_id, role, work)

    async def evaluated(
        self, run_id: str, request: wire.EvaluationRequest, role: str
    ) -> wire.EvaluationRecord:
        """An evaluation of a version."""

        def work(change: _Change) -> wire.EvaluationRecord:
            change.run()
            change.unit.put(run_id, wire.EvaluationRecord(id=0, **asdict(request), posted_at=change.at))
            found = change.unit.rows(run_id, wire.EvaluationRecord)[-1]
            change.audit("evaluate", id=found.id, version=found.version)
            return found

        return await self._change(run_id, role, work)

    async def rows(self, run_id: str, kind: type[R]) -> list[R]:
        """Rows about a run, the oldest first."""

        def work(unit: Unit) -> list[R]:
            _known(unit, run_id)
            return unit.rows(run_id, kind)

        return await self._read(work)

    async def health(self, run_id: str) -> wire.RunHealth:
        """How it is with a run."""
        record, pace = await self.run(run_id), self._pulses.pace
        return wire.RunHealth(
            state=record.state,
            health=record.health,
            silence_s=record.silence_s,
            stale_after_s=pace.stale_s,
            unresponsive_after_s=pace.unresponsive_s,
        )

    async def problem(self) -> str | None:
        """Why the store cannot be used; `None` where it can."""
        try:
            await self._read(Unit.open_runs)
        except StoreError as error:
            return str(error)
        return None

    async def sweep(self) -> None:
        """Report learners that have become silent."""
        now = self._clocks.monotonic()
        for run_id, state in (await self._read(Unit.open_runs)).items():
            silence_s = self._pulses.silence_s(run_id, now)
            if silence_s is not None and state in WATCHED:
                self.telemetry.silent(run_id, silence_s)
            if event := self._pulses.noticed(run_id, state, now):
                self.telemetry.health(run_id, event)

    async def _wake(self) -> None:
        async with self._issued:
            self._issued.notify_all()

    async def _change(self, run_id: str, role: str, work: Callable[[_Change], T]) -> T:
        def transaction() -> tuple[T, _Change]:
            with self._store.changing() as unit:
                change = _Change(unit, run_id, self._clocks.wall(), role)
                return work(change), change

        async with self._turn:
            answer, change = await self._in_thread(transaction)
            for command in change.commands:
                self.telemetry.commanded(run_id, command)
            for move, cause in change.moves:
                self.telemetry.moved(run_id, move, cause)
        return answer

    async def _read(self, work: Callable[[Unit], T]) -> T:
        def transaction() -> T:
            with self._store.reading() as unit:
                return work(unit)

        return await self._in_thread(transaction)

    async def _in_thread(self, transaction: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
        except SQLAlchemyError as error:
            message = f"the store cannot be used: {error!r}"[:500]
            raise StoreError(message, status=503, retry_s=5) from error

    def _record(self, run_id: str, run: Run) -> wire.RunRecord:
        now, values = self._clocks.monotonic(), asdict(run)
        request, _ = values.pop("request"), values.pop("is_doomed")
        return wire.RunRecord(
            run_id=run_id,
            experiment=request.experiment,
            config=request.config,
            seed_base=request.seed_base,
            health=self._pulses.health(run_id, run.state, now),
            silence_s=self._pulses.silence_s(run_id, now),
            **values,
        )


def _known(unit: Unit, run_id: str) -> Run:
    run = unit.run(run_id)
    if run is None:
        raise UnknownError(f"there is no run {run_id[:128]!r}; GET /api/v1/runs lists them")
    return run


def beaten(run: Run, heartbeat: wire.Heartbeat) -> Run:
    """Return the run after a heartbeat; raise `ConflictError`."""
    check_lineage(run, heartbeat.lineage)
    is_new = run.lineage is None or heartbeat.lineage > run.lineage
    if not is_new:
        pairs: tuple[tuple[str, Any, Any, bool], ...] = (
            ("step", heartbeat.step, run.step, heartbeat.step < (run.step or 0)),
            (
                "checkpoint_version",
                heartbeat.checkpoint_version,
                run.checkpoint_version,
                _is_before(heartbeat.checkpoint_version, run.checkpoint_version),
            ),
        )
        for name, value, last, is_back in pairs:
            if is_back:
                message = (
                    f"{value} is before {last}, which this life has reported; a learner that went back "
                    "begins the next lineage"
                )
                raise ConflictError(name, message)
    return replace(
        run,
        state=_reported(run, heartbeat, is_new=is_new),
        lineage=heartbeat.lineage,
        step=heartbeat.step,
        checkpoint_version=heartbeat.checkpoint_version or run.checkpoint_version,
    )


def check_lineage(run: Run, lineage: int) -> None:
    """Raise where a life is over: a later one has begun."""
    if run.lineage is not None and lineage < run.lineage:
        raise ConflictError(
            "lineage",
            f"{lineage} is over: the learner of lineage {run.lineage} has begun; end this process unsaved",
        )


def _reported(run: Run, heartbeat: wire.Heartbeat, *, is_new: bool) -> State:
    """Where what a learner reports leads; a run that is terminating waits for its last words alone."""
    state, status = run.state, heartbeat.status
    is_ending = state == "terminating" or (run.is_doomed and is_new and state in RESUMABLE)
    after: State
    if status in _LAST:
        after = _LAST[status]
    elif is_ending:
        after = "terminating"
    elif status == "terminating":
        after = "running" if state == "pending" or is_new else state
    else:
        after = "running" if status == "running" else "paused"
    try:
        route(state, after, is_new_life=is_new)
    except IllegalMoveError as error:
        raise ConflictError("status", str(error)) from error
    return after


def commanded(
    run: Run, known: Sequence[CommandRecord], record: CommandRecord
) -> tuple[Run, CommandRecord, list[CommandRecord]]:
    """Return the run, a new command and those that it supersedes; raise `ConflictError`."""
    if run.state in FINAL or run.state == "terminating":
        message = f"the run is {run.state}; {record.kind} is for one that is pending, running or paused"
        raise ConflictError("", message)
    waiting = run.commands_waiting
    if record.kind != "terminate":
        if waiting >= MOST_WAITING:
            raise ConflictError("", f"{waiting} commands wait; send more once the learner has obeyed")
        return replace(run, commands_waiting=waiting + 1), record, []
    superseded = [replace(row, status="superseded") for row in known if row.status == "queued"]
    waiting -= len(superseded)
    if run.state == "pending":
        done = Done(outcome="done", detail="no learner had begun")
        ended = replace(run, state="terminated", is_doomed=True, commands_waiting=waiting)
        return ended, replace(record, status="done", done=done, acknowledged_at=record.issued_at), superseded
    ending = replace(run, state="terminating", is_doomed=True, commands_waiting=waiting + 1)
    return ending, record, superseded


def obeyed(run: Run, command: Command, done: Done) -> Run:
    """Return the run after the learner's answer to a command."""
    if run.state in FINAL:
        return run
    is_done = done.outcome == "done"
    match command:
        case Terminate():
            return replace(run, state="terminated" if is_done else "failed")
        case Tune() if is_done:
            after = {name: change.after for name, change in done.changes.items()}
            return replace(run, tuned={**run.tuned, **after})
        case Pause() if is_done and run.state != "terminating":
            return replace(run, state="paused")
        case Resume() if is_done and run.state != "terminating":
            return replace(run, state="running")
        case Tune() | Pause() | Resume():
            return run
        case _:
            assert_never(command)


def _is_before(version: str | None, other: str | None) -> bool:
    """Whether one version is older than another; what is not reported is not older."""
    if version is None or other is None:
        return False
    first, second = ([int(part) for part in each.split("-")] for each in (version, other))
    return first < second
