"""What a heartbeat, a command and an acknowledgement do to a run.

Rules: a decision takes what is known and returns what is to be known, or raises `ConflictError` and nothing
has changed. Within one life of a learner steps and checkpoints never go back; a new life (a greater lineage)
goes on from where its checkpoint was; a former life is refused for good. One command is in force at a time,
the oldest; it is delivered until it is acknowledged. A terminate supersedes those that were not delivered.
Pure.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from overwatch_rl.orchestrator.commands import Command, Done, Pause, Resume, Terminate, Tune
from overwatch_rl.orchestrator.states import FINAL, RESUMABLE, IllegalMoveError, State, route
from overwatch_rl.orchestrator.wire import CommandStatus, Heartbeat

MOST_WAITING: Final = 64
"""Commands of a run that are not acknowledged."""

_LAST: Final[dict[str, State]] = {"errored": "failed", "completed": "completed", "terminated": "terminated"}
"""Where the last words of a learner lead."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What decisions depend on."""

    state: State = "pending"
    lineage: int | None = None
    step: int | None = None
    checkpoint_version: str | None = None
    tuned: dict[str, float] = {}
    is_doomed: bool = False
    """Whether an operator has terminated it: whatever ends a life, the next one only terminates."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A command and what became of it."""

    id: str
    command: Command
    status: CommandStatus = "queued"
    deliveries: int = 0
    done: Done | None = None


class Commanded(msgspec.Struct, frozen=True, kw_only=True):
    """What a command leads to at once."""

    run: Run
    held: Held
    superseded: tuple[str, ...] = ()
    """Ids of commands that will not be delivered any more."""
    is_repeated: bool = False
    """Whether it was there before."""


class ConflictError(Exception):
    """What was asked is against what is known; the message names both, `path` the field."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


def is_new_life(run: Run, heartbeat: Heartbeat) -> bool:
    """Whether a heartbeat is of a life that has not beaten before."""
    return run.lineage is None or heartbeat.lineage > run.lineage


def beaten(run: Run, heartbeat: Heartbeat) -> Run:
    """The run after a heartbeat."""
    is_new = is_new_life(run, heartbeat)
    check_lineage(run, heartbeat.lineage)
    if not is_new:
        if heartbeat.step < (run.step or 0):
            raise ConflictError(
                "step",
                f"{heartbeat.step} is before {run.step}, which this life has reported; "
                "a learner that went back begins the next lineage",
            )
        if _is_before(heartbeat.checkpoint_version, run.checkpoint_version):
            raise ConflictError(
                "checkpoint_version",
                f"{heartbeat.checkpoint_version} is before {run.checkpoint_version}, which this life has "
                "reported; a learner that went back begins the next lineage",
            )
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


def _reported(run: Run, heartbeat: Heartbeat, *, is_new: bool) -> State:
    """Where what a learner reports leads; a run that is terminating waits for its last words alone."""
    state = run.state
    is_ending = state == "terminating" or (run.is_doomed and is_new and state in RESUMABLE)
    match heartbeat.status:
        case "errored":
            after: State = "failed"
        case "completed" | "terminated":
            after = heartbeat.status
        case "running" | "paused" | "terminating" if is_ending:
            after = "terminating"
        case "terminating":
            after = "running" if state == "pending" or is_new else state
        case "running" | "paused":
            after = heartbeat.status
        case _:
            assert_never(heartbeat.status)
    try:
        route(state, after, is_new_life=is_new)
    except IllegalMoveError as error:
        raise ConflictError("status", str(error)) from error
    return after


def commanded(run: Run, known: Sequence[Held], command_id: str, command: Command) -> Commanded:
    """A command is issued; `known` are all of the run."""
    for held in known:
        if held.id == command_id:
            if held.command != command:
                raise ConflictError("id", f"{command_id} is a command already, another one; send a new id")
            return Commanded(run=run, held=held, is_repeated=True)
    if run.state in FINAL or run.state == "terminating":
        kind = type(command).__name__.lower()
        raise ConflictError(
            "", f"the run is {run.state}; {kind} is for one that is pending, running or paused"
        )
    waiting = [held for held in known if is_waiting(held)]
    if not isinstance(command, Terminate):
        if len(waiting) >= MOST_WAITING:
            raise ConflictError("", f"{len(waiting)} commands wait; send more once the learner has obeyed")
        return Commanded(run=run, held=Held(id=command_id, command=command))
    superseded = tuple(held.id for held in waiting if held.status == "queued")
    if run.state == "pending":
        done = Done(outcome="done", detail="no learner had begun")
        held = Held(id=command_id, command=command, status="done", done=done)
        ended = replace(run, state="terminated", is_doomed=True)
        return Commanded(run=ended, held=held, superseded=superseded)
    held = Held(id=command_id, command=command)
    ending = replace(run, state="terminating", is_doomed=True)
    return Commanded(run=ending, held=held, superseded=superseded)


def is_waiting(held: Held) -> bool:
    """Whether a command is still to be acknowledged."""
    return held.status in ("queued", "delivered")


def in_force(run: Run, known: Sequence[Held]) -> Held | None:
    """The command to deliver: the oldest that waits; none once the run is over."""
    if run.state in FINAL:
        return None
    return next((held for held in known if is_waiting(held)), None)


def delivered(held: Held) -> Held:
    """A command goes out, for the first time or again."""
    return replace(held, status="delivered", deliveries=held.deliveries + 1)


def acknowledged(run: Run, held: Held, done: Done) -> tuple[Run, Held]:
    """The learner has answered to a command; the first answer counts."""
    if held.done is not None:
        return run, held
    if held.status != "delivered":
        raise ConflictError("", f"command {held.id} is {held.status}; acknowledge what was delivered")
    return _obeyed(run, held.command, done), replace(held, status=done.outcome, done=done)


def _obeyed(run: Run, command: Command, done: Done) -> Run:
    if run.state in FINAL:
        return run
    match command:
        case Terminate():
            return replace(run, state="terminated" if done.outcome == "done" else "failed")
        case Tune() if done.outcome == "done":
            after = {name: change.after for name, change in done.changes.items()}
            return replace(run, tuned={**run.tuned, **after})
        case Pause() if done.outcome == "done" and run.state != "terminating":
            return replace(run, state="paused")
        case Resume() if done.outcome == "done" and run.state != "terminating":
            return replace(run, state="running")
        case Tune() | Pause() | Resume():
            return run
        case _:
            assert_never(command)


def _is_before(version: str | None, other: str | None) -> bool:
    """Whether one version is older than another; what is not reported is not older."""
    if version is None or other is None:
        return False
    first, second = ([int(part) for part in one.split("-")] for one in (version, other))
    return first < second
