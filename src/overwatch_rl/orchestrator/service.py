"""Decisions about runs, one at a time: read, decide and write in one transaction, then report, and wake.

Rules: what is answered is stored; a refused request changes nothing but the audit trail. The store is used by
one thread. Must not know HTTP or tokens; roles are words.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace
from sqlalchemy import Table
from sqlalchemy.exc import SQLAlchemyError

from overwatch_rl.orchestrator import commands, runs, tables, wire
from overwatch_rl.orchestrator.commands import BoundsError, Command, Done, Issued, Tune
from overwatch_rl.orchestrator.pulses import Pace, Pulses
from overwatch_rl.orchestrator.runs import ConflictError, Run
from overwatch_rl.orchestrator.states import FINAL, WATCHED, State, route
from overwatch_rl.orchestrator.store import Store, Unit
from overwatch_rl.orchestrator.telemetry import Commanded, Moved, Telemetry

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
LONGEST_WAIT_S: Final = 60.0
"""Most that a request waits for a command."""
MOST_RUNS: Final = 1000
"""Of one list."""


class UnknownError(Exception):
    """There is no such run or command; the message names it."""


class TooSoonError(Exception):
    """A heartbeat before its time."""

    def __init__(self, least_s: float, retry_s: float) -> None:
        super().__init__(
            f"heartbeats of a run are {least_s:g} s apart or more; send this one in {retry_s:.1f} s"
        )
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What time it is."""

    monotonic: Callable[[], float]
    """For intervals: it never goes back."""
    wall: Callable[[], datetime]
    """For records alone."""


@dataclass(slots=True)
class _News:
    """What a transaction has changed, to be reported once it has ended."""

    moves: list[Moved] = field(default_factory=list)
    commands: list[Commanded] = field(default_factory=list)


class Service:
    """All runs of one store."""

    def __init__(self, store: Store, telemetry: Telemetry, clocks: Clocks, pace: Pace = Pace()) -> None:  # noqa: B008 frozen
        self._store = store
        self._telemetry = telemetry
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
        async with self._issued:
            self._issued.notify_all()

    def close(self) -> None:
        """Wait for what is being stored."""
        self._thread.shutdown()

    async def create(self, request: wire.RunRequest, role: str) -> tuple[wire.RunRecord, bool]:
        """A run that is pending, and whether it is new: the same request again is the same run."""
        run_id = request.run_id or uuid.uuid4().hex

        def work(unit: Unit, at: datetime, _: _News) -> tuple[wire.RunRecord, bool]:
            known = unit.request(run_id)
            if known is not None and known != request:
                raise ConflictError("run_id", f"{run_id} is a run already, made otherwise; choose another id")
            if known is None:
                unit.add_run(run_id, request, at)
                _audit(unit, run_id, at, role, "create", experiment=request.experiment)
            return self._recorded(unit, run_id), known is None

        return await self._change(work)

    async def runs(self, state: State | None, limit: int) -> list[wire.RunRecord]:
        """The newest, of all or of one state."""
        found = await self._read(lambda unit: unit.records(state, min(limit, MOST_RUNS)))
        return [self._with_health(record) for record in found]

    async def run(self, run_id: str) -> wire.RunRecord:
        """All that is known of one."""
        return await self._read(lambda unit: self._recorded(unit, run_id))

    async def beat(self, run_id: str, heartbeat: wire.Heartbeat) -> wire.Beaten:
        """A heartbeat; the last words of a life and the first of another need not wait for their time."""
        now = self._clocks.monotonic()

        def work(unit: Unit, at: datetime, news: _News) -> wire.Beaten:
            before = _found(unit, run_id)
            after = runs.beaten(before, heartbeat)
            early_s = self._pulses.early_s(run_id, now)
            is_free = after.state in FINAL or runs.is_new_life(before, heartbeat)
            if early_s > 0 and not is_free:
                raise TooSoonError(self._pulses.pace.least_s, early_s)
            news.moves += _moved(unit, run_id, at, before, after)
            unit.change_run(run_id, after, heartbeat=heartbeat, heartbeat_at=at)
            waiting = self._recorded(unit, run_id).commands_waiting
            return wire.Beaten(
                state=after.state, commands_waiting=waiting, interval_s=self._pulses.pace.least_s
            )

        answer = await self._change(work)
        event = self._pulses.beat(run_id, now)
        if event is not None:
            self._telemetry.health(run_id, event)
        if answer.state in FINAL:
            self._pulses.forget(run_id)
        return answer

    async def command(
        self, run_id: str, command: Command, command_id: str | None, role: str
    ) -> tuple[wire.CommandRecord, bool]:
        """A command, and whether it is new: the same id again is the same command."""
        named = command_id or uuid.uuid4().hex
        kind = type(command).__name__.lower()

        def work(unit: Unit, at: datetime, news: _News) -> tuple[wire.CommandRecord, bool]:
            before = _found(unit, run_id)
            commands.check(command)
            known = unit.commands(run_id)
            made = runs.commanded(before, [_held(one) for one in known], named, command)
            if made.is_repeated:
                return _named(known, named), False
            unit.supersede(run_id, made.superseded)
            unit.add_command(run_id, made.held, role, at)
            unit.change_run(run_id, made.run)
            _audit(unit, run_id, at, role, kind, id=named, command=command, superseded=made.superseded)
            changed = {*made.superseded, named}
            found = unit.commands(run_id)
            news.commands += [_commanded(run_id, one) for one in found if one.id in changed]
            news.moves += _moved(unit, run_id, at, before, made.run, of=_named(found, named))
            return _named(found, named), True

        try:
            record, is_new = await self._change(work)
        except (ConflictError, BoundsError) as error:
            await self._refused(run_id, role, kind, id=named, command=command, error=str(error))
            raise
        async with self._issued:
            self._issued.notify_all()
        return record, is_new

    async def next_command(self, run_id: str, lineage: int | None, wait_s: float) -> Issued | None:
        """The command in force; where there is none, the next one that comes into force in `wait_s`."""
        until = self._clocks.monotonic() + min(wait_s, LONGEST_WAIT_S)
        while True:
            async with self._issued:
                found = await self._deliver(run_id, lineage)
                left_s = until - self._clocks.monotonic()
                if found is not None or left_s <= 0 or self._is_ending:
                    return found
                try:
                    async with asyncio.timeout(left_s):
                        await self._issued.wait()
                except TimeoutError:
                    return None

    async def acknowledge(self, run_id: str, command_id: str, done: Done, role: str) -> wire.CommandRecord:
        """What a learner has done; the first acknowledgement counts."""

        def work(unit: Unit, at: datetime, news: _News) -> wire.CommandRecord:
            before = _found(unit, run_id)
            record = _named(unit.commands(run_id), command_id)
            if record.done is not None:
                return record
            after, held = runs.acknowledged(before, _held(record), done)
            unit.change_command(run_id, held, acknowledged_at=at)
            unit.change_run(run_id, after)
            _audit(unit, run_id, at, role, "acknowledge", id=command_id, done=done)
            answered = _named(unit.commands(run_id), command_id)
            news.commands.append(_commanded(run_id, answered))
            news.moves += _moved(unit, run_id, at, before, after, of=answered)
            return answered

        record = await self._change(work)
        async with self._issued:
            self._issued.notify_all()
        return record

    async def commands(self, run_id: str) -> list[wire.CommandRecord]:
        """All commands of a run, the oldest first."""

        def work(unit: Unit) -> list[wire.CommandRecord]:
            _found(unit, run_id)
            return unit.commands(run_id)

        return await self._read(work)

    async def publish_key(self, run_id: str, key: str, role: str) -> wire.RunRecord:
        """The public key of a run's weights, once."""

        def work(unit: Unit, at: datetime, _: _News) -> wire.RunRecord:
            known = self._recorded(unit, run_id).weights_public_key
            if known is not None and known != key:
                raise ConflictError(
                    "weights_public_key",
                    f"the run's is {known}; sign with the key in the folder of the run, or make another run",
                )
            if known is None:
                unit.change_run(run_id, weights_public_key=key)
                _audit(unit, run_id, at, role, "publish key", weights_public_key=key)
            return self._recorded(unit, run_id)

        return await self._change(work)

    async def register(
        self, run_id: str, request: wire.ArtifactRequest, role: str
    ) -> tuple[wire.ArtifactRecord, bool]:
        """An artifact, and whether it is new: one of a kind and version."""

        def work(unit: Unit, at: datetime, _: _News) -> tuple[wire.ArtifactRecord, bool]:
            _found(unit, run_id)
            known = unit.all(tables.ARTIFACTS, run_id, wire.ArtifactRecord)
            for one in known:
                if (one.kind, one.version) == (request.kind, request.version):
                    known_as = (one.uri, one.sha256, one.details)
                    if known_as != (request.uri, request.sha256, request.details):
                        message = f"{one.kind} {one.version} is at {one.uri} already, or with other details"
                        raise ConflictError("version", message)
                    return one, False
            made = wire.ArtifactRecord(**msgspec.structs.asdict(request), registered_at=at)
            unit.add(tables.ARTIFACTS, run_id, made)
            _audit(unit, run_id, at, role, "register", kind=made.kind, version=made.version)
            return made, True

        return await self._change(work)

    async def evaluated(
        self, run_id: str, request: wire.EvaluationRequest, role: str
    ) -> wire.EvaluationRecord:
        """An evaluation of a version."""

        def work(unit: Unit, at: datetime, _: _News) -> wire.EvaluationRecord:
            _found(unit, run_id)
            made = wire.EvaluationRecord(id=0, **msgspec.structs.asdict(request), posted_at=at)
            unit.add(tables.EVALUATIONS, run_id, made)
            found = unit.all(tables.EVALUATIONS, run_id, wire.EvaluationRecord)[-1]
            _audit(unit, run_id, at, role, "evaluate", id=found.id, version=made.version)
            return found

        return await self._change(work)

    async def rows(self, table: Table, run_id: str, kind: type[R]) -> list[R]:
        """Rows about a run, the oldest first."""

        def work(unit: Unit) -> list[R]:
            _found(unit, run_id)
            return unit.all(table, run_id, kind)

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
        except SQLAlchemyError as error:
            return repr(error)[:500]
        return None

    async def sweep(self) -> None:
        """Report learners that have become silent."""
        now = self._clocks.monotonic()
        for run_id, state in (await self._read(Unit.open_runs)).items():
            silence_s = self._pulses.silence_s(run_id, now)
            if silence_s is not None and state in WATCHED:
                self._telemetry.silent(run_id, silence_s)
            event = self._pulses.noticed(run_id, state, now)
            if event is not None:
                self._telemetry.health(run_id, event)

    async def _deliver(self, run_id: str, lineage: int | None) -> Issued | None:
        def work(unit: Unit, at: datetime, news: _News) -> Issued | None:
            run = _found(unit, run_id)
            if lineage is not None:
                runs.check_lineage(run, lineage)
            known = unit.commands(run_id)
            held = runs.in_force(run, [_held(one) for one in known])
            if held is None:
                return None
            unit.change_command(run_id, runs.delivered(held), delivered_at=at)
            if not held.deliveries:
                news.commands.append(_commanded(run_id, _named(unit.commands(run_id), held.id)))
            return Issued(id=held.id, command=held.command, redelivered=held.deliveries > 0)

        return await self._change(work)

    async def _refused(self, run_id: str, role: str, action: str, **details: object) -> None:
        def work(unit: Unit, at: datetime, _: _News) -> None:
            _audit(unit, run_id, at, role, f"{action} refused", **details)

        await self._change(work)

    async def _change(self, work: Callable[[Unit, datetime, _News], T]) -> T:
        news = _News()

        def transaction() -> T:
            with self._store.changing() as unit:
                return work(unit, self._clocks.wall(), news)

        async with self._turn:
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
            for command in news.commands:
                self._telemetry.commanded(command)
            for move in news.moves:
                self._telemetry.moved(move)
        return answer

    async def _read(self, work: Callable[[Unit], T]) -> T:
        def transaction() -> T:
            with self._store.reading() as unit:
                return work(unit)

        return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)

    def _recorded(self, unit: Unit, run_id: str) -> wire.RunRecord:
        record = unit.record(run_id)
        if record is None:
            raise UnknownError(_no_run(run_id))
        return self._with_health(record)

    def _with_health(self, record: wire.RunRecord) -> wire.RunRecord:
        now = self._clocks.monotonic()
        return replace(
            record,
            health=self._pulses.health(record.run_id, record.state, now),
            silence_s=self._pulses.silence_s(record.run_id, now),
        )


def _no_run(run_id: str) -> str:
    return f"there is no run {run_id[:128]!r}; GET /api/v1/runs lists them"


def _found(unit: Unit, run_id: str) -> Run:
    run = unit.run(run_id)
    if run is None:
        raise UnknownError(_no_run(run_id))
    return run


def _held(record: wire.CommandRecord) -> runs.Held:
    return runs.Held(
        id=record.id,
        command=record.command,
        status=record.status,
        deliveries=record.deliveries,
        done=record.done,
    )


def _commanded(run_id: str, one: wire.CommandRecord) -> Commanded:
    return Commanded(
        run_id=run_id, id=one.id, kind=one.kind, status=one.status, by=one.issued_by, done=one.done
    )


def _named(known: Sequence[wire.CommandRecord], command_id: str) -> wire.CommandRecord:
    for one in known:
        if one.id == command_id:
            return one
    raise UnknownError(f"the run has no command {command_id[:128]!r}")


def _moved(
    unit: Unit, run_id: str, at: datetime, before: Run, after: Run, *, of: wire.CommandRecord | None = None
) -> list[Moved]:
    """Store how a run got from one state to another, by a heartbeat or because `of` a command."""
    moves: list[Moved] = []
    state = before.state
    cause = "heartbeat" if of is None else f"command {of.id}"
    for following in route(state, after.state, is_new_life=before.lineage != after.lineage):
        row = wire.TransitionRecord(before=state, after=following, cause=cause, lineage=after.lineage, at=at)
        unit.add(tables.TRANSITIONS, run_id, row)
        moves.append(
            Moved(
                run_id=run_id,
                before=state,
                after=following,
                command=None if of is None else of.id,
                by="learner" if of is None else of.issued_by,
                reason=None if of is None else _reason(of.command),
            )
        )
        state = following
    return moves


def _reason(command: Command) -> str | None:
    """Why it was issued, where its sender gave a reason."""
    return None if isinstance(command, Tune) else command.reason


def _audit(unit: Unit, run_id: str, at: datetime, role: str, action: str, **details: object) -> None:
    row = wire.AuditRecord(id=0, at=at, role=role, action=action, details=details)
    unit.add(tables.AUDIT, run_id, row)
