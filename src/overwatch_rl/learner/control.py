"""How a learner obeys: a mailbox between the I/O thread and the training thread, and both its ends.

The training thread owns a `Control` and calls `between(progress)` between two updates: it obeys what came,
waits inside while the run is paused, and returns whether to go on. The I/O thread runs `attend`: heartbeats
go out at their interval whatever the training thread does, commands come in, acknowledgements go back.

Rules: nothing is changed but between updates; a command is acknowledged after it was done, and done once
however often it is delivered; the end of the I/O thread wakes the training thread with its reason. An
orchestrator that is away stops nothing. Must not know torch, nor how an algorithm is tuned.
"""

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, Protocol, TypeAlias, assert_never

from overwatch_rl.orchestrator import commands, wire
from overwatch_rl.orchestrator.client import OrchestratorClient, OrchestratorError
from overwatch_rl.orchestrator.commands import (
    Change,
    Done,
    Issued,
    Pause,
    Resume,
    Terminate,
    Tune,
)

Outcome: TypeAlias = Literal["completed", "failed", "terminated", "interrupted"]
"""How training ended; one that was interrupted will be gone on with by a new life."""
_LAST: Final[Mapping[Outcome, wire.Status]] = {
    "completed": "completed", "failed": "errored", "terminated": "terminated",
}  # fmt: skip
"""The last words of a life; one that was interrupted sends none, and the run stays as it is."""
_POLL_INTERVAL_S: Final = 0.2
"""Between two looks at a signal while the run is paused."""
_OVER: Final = "the-run-is-over"
"""Id of the command that nobody sent: the orchestrator answers that the run is over."""
_SOON_S: Final = 1.0
"""After a reply without a command that came at once, or an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where training is; the newest one is what a heartbeat carries."""

    lineage: int
    step: int
    """Env steps trained on, as checkpoints count them; within a lineage it never goes back."""
    samples_per_sec: float | None = None
    loss: float | None = None
    checkpoint_version: str | None = None
    """`str(Version)` of the newest checkpoint that is written."""
    notes: str | None = None
    """What a person should know, e.g. `degraded: replay is away`, `checkpoint_stalled`."""


class CommandHandler(Protocol):
    """What a command changes in a learner. Called by the training thread, between updates."""

    def tune(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Set hyperparameters, all or none; their values before. Raises `ValueError` where one cannot be."""
        ...

    def drain(self) -> None:
        """Wait for the device, and stop sampling: nothing is outstanding afterwards."""
        ...

    def refill(self) -> None:
        """Sample again after a pause."""
        ...

    def last_checkpoint(self) -> str | None:
        """Write the last checkpoint and wait until it is safe; its version, `None` where nothing is kept."""
        ...


class ControlLostError(RuntimeError):
    """The I/O thread has ended, or another life of this run has begun: end training, and save nothing."""


class Mailbox:
    """Between the two threads: commands one way, progress and acknowledgements the other. Thread-safe."""

    def __init__(self, progress: Progress) -> None:
        """`progress` is what heartbeats carry until the first update."""
        self._changed = threading.Condition()
        self._commands: deque[Issued] = deque()
        self._answers: dict[str, Done] = {}
        self._progress = progress
        self._status: wire.Status = "running"
        self._outcome: Outcome | None = None
        self._lost: str | None = None
        self._wake: Callable[[], None] = lambda: None

    def report(self, progress: Progress, status: wire.Status) -> None:
        """Training thread: where it is."""
        with self._changed:
            self._progress, self._status = progress, status

    def begin_paused(self) -> None:
        """Before the first heartbeat: it states this, or the run would count as resumed."""
        with self._changed:
            self._status = "paused"

    def take(self, timeout_s: float = 0.0) -> Issued | None:
        """Training thread: the next command, waited for; raises `ControlLostError`."""
        with self._changed:
            self._changed.wait_for(lambda: self._commands or self._lost is not None, timeout_s)
            if self._lost is not None:
                raise ControlLostError(self._lost)
            return self._commands.popleft() if self._commands else None

    def answer(self, command_id: str, done: Done) -> None:
        """Training thread: what became of a command."""
        with self._changed:
            self._answers[command_id] = done
        self._wake()

    def end(self, outcome: Outcome, progress: Progress) -> None:
        """Training thread: it is over."""
        with self._changed:
            self._outcome, self._progress = outcome, progress
        self._wake()

    def fail(self, reason: str) -> None:
        """I/O thread: it cannot go on; training ends with `ControlLostError(reason)`."""
        with self._changed:
            self._lost = self._lost or reason
            self._changed.notify_all()

    def deliver(self, issued: Issued) -> None:
        """I/O thread: a command has come."""
        with self._changed:
            self._commands.append(issued)
            self._changed.notify_all()

    def answered(self, command_id: str) -> Done | None:
        """I/O thread: what became of a command; `None` where that is not known yet."""
        with self._changed:
            return self._answers.get(command_id)

    def waking(self, wake: Callable[[], None]) -> None:
        """I/O thread: what the training thread calls with every answer, and at the end."""
        self._wake = wake

    @property
    def outcome(self) -> Outcome | None:
        """I/O thread: how training ended; `None` while it goes on."""
        with self._changed:
            return self._outcome

    @property
    def lineage(self) -> int:
        """Of this life."""
        with self._changed:
            return self._progress.lineage

    def heartbeat(self, run_id: str) -> wire.Heartbeat:
        """I/O thread: the newest progress."""
        with self._changed:
            at, status = self._progress, self._status
            status = status if self._outcome is None else _LAST.get(self._outcome, status)
            waiting = len(self._commands)
        return wire.Heartbeat(
            run_id=run_id,
            status=status,
            step=at.step,
            lineage=at.lineage,
            samples_per_sec=at.samples_per_sec,
            loss=at.loss,
            checkpoint_version=at.checkpoint_version,
            queued_commands=waiting,
            notes=at.notes,
        )


class Control:
    """The training thread's side."""

    def __init__(
        self,
        mailbox: Mailbox,
        learner: CommandHandler,
        obeyed: Callable[[Issued, Done], None] = lambda _issued, _done: None,
        stop: Callable[[], str | None] = lambda: None,
        *,
        is_paused: bool = False,
    ) -> None:
        """`obeyed` records what was done; `stop` gives an outcome to end with, looked at during a pause too.

        `is_paused` begins with a pause, where that was the state of the run.
        """
        self._mailbox = mailbox
        self._learner = learner
        self._obeyed = obeyed
        self._stop = stop
        self._is_paused = is_paused
        self._is_drained = False
        if is_paused:
            mailbox.begin_paused()

    def between(self, progress: Progress) -> str | None:
        """Between two updates: obey what has come, wait while paused; the outcome to end with, else `None`.

        After `"terminated"` the last checkpoint is written and acknowledged. Raises `ControlLostError`.
        """
        while True:
            if self._is_paused and not self._is_drained:
                self._learner.drain()
                self._is_drained = True
            self._mailbox.report(progress, "paused" if self._is_paused else "running")
            issued = self._mailbox.take(_POLL_INTERVAL_S if self._is_paused else 0.0)
            if issued is not None:
                if self._obey(issued, progress):
                    return "terminated"
            elif not self._is_paused:
                return None
            elif (outcome := self._stop()) is not None:
                return outcome

    def end(self, outcome: Outcome, progress: Progress) -> None:
        """Training is over: the last heartbeat states how, and `attend` returns once it was sent."""
        self._mailbox.end(outcome, progress)

    def _obey(self, issued: Issued, progress: Progress) -> bool:
        """Do what a command asks; whether to end."""
        command, is_over = issued.command, False
        try:
            match command:
                case Tune():
                    done = self._tune(command)
                case Pause():
                    done = self._pause()
                case Resume():
                    done = self._resume()
                case Terminate():
                    self._mailbox.report(progress, "terminating")
                    self._learner.drain()
                    version = self._learner.last_checkpoint()
                    done = Done(outcome="done", detail=f"last checkpoint {version or 'is not kept'}")
                    is_over = True
                case _:
                    assert_never(command)
        except Exception as error:
            self._answer(issued, Done(outcome="failed", detail=repr(error)[:1000]))
            raise
        self._answer(issued, done)
        return is_over

    def _answer(self, issued: Issued, done: Done) -> None:
        self._mailbox.answer(issued.id, done)
        self._obeyed(issued, done)

    def _tune(self, command: Tune) -> Done:
        try:
            commands.check(command)
            before = self._learner.tune(command.values)
        except ValueError as error:
            return Done(outcome="refused", detail=str(error)[:1000])
        changes = {name: Change(before=before[name], after=after) for name, after in command.values.items()}
        return Done(outcome="done", detail="from the next update on", changes=changes)

    def _pause(self) -> Done:
        if self._is_paused:
            return Done(outcome="done", detail="was paused already")
        self._learner.drain()
        self._is_paused = self._is_drained = True
        return Done(outcome="done", detail="drained; nothing is sampled")

    def _resume(self) -> Done:
        if not self._is_paused:
            return Done(outcome="done", detail="was running already")
        self._is_paused = self._is_drained = False
        self._learner.refill()
        return Done(outcome="done", detail="samples again")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttendSettings:
    """How often the orchestrator is called."""

    heartbeat_s: float = 15.0
    """Between two heartbeats; the orchestrator's own least interval where that is longer."""
    wait_s: float = 20.0
    """So long one request waits for a command at the server."""
    last_s: float = 7.0
    """So long the last acknowledgement and the last heartbeat are tried."""

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "last_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}; use a number above 0")


Beat: TypeAlias = Literal["ok", "late", "refused", "error"]
"""How a heartbeat ended: accepted; too soon; against what is known; not answered."""


async def attend(
    client: OrchestratorClient,
    mailbox: Mailbox,
    settings: AttendSettings = AttendSettings(),
    on_heartbeat: Callable[[Beat], None] = lambda _: None,
) -> None:
    """Beat, fetch commands and acknowledge, until training is over; the last heartbeat states how it ended.

    `on_heartbeat` is given how each heartbeat ended. Whatever ends this before, the training thread is woken.
    """
    attendant = _Attendant(client, mailbox, settings, on_heartbeat)
    try:
        await attendant.run()
    except BaseException as error:
        mailbox.fail(f"control has ended: {error!r}")
        raise


class _Attendant:
    """The I/O thread's side."""

    def __init__(
        self,
        client: OrchestratorClient,
        mailbox: Mailbox,
        settings: AttendSettings,
        on_heartbeat: Callable[[Beat], None],
    ) -> None:
        self._client = client
        self._mailbox = mailbox
        self._settings = settings
        self._on_heartbeat = on_heartbeat
        self._turn = asyncio.Lock()
        """One heartbeat or acknowledgement at a time: a later state never arrives before an earlier one."""
        self._woken = asyncio.Event()
        self._in_hand: Issued | None = None
        """The command that is not acknowledged yet."""
        self._is_ordered_to_end = False
        self._least_s = 0.0
        """The least interval that the orchestrator takes."""

    async def run(self) -> None:
        """Until training is over."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._wake)

        self._mailbox.waking(wake)
        tasks = {asyncio.ensure_future(task) for task in (self._beats(), self._commands(), self._over())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._last_words()

    async def _last_words(self) -> None:
        """The acknowledgement that is outstanding, and how training ended."""
        if self._in_hand is not None:
            done = self._mailbox.answered(self._in_hand.id)
            if done is not None:
                await self._acknowledge(self._in_hand, done, self._settings.last_s)
        if self._mailbox.outcome in _LAST:
            await self._beat(self._settings.last_s)

    def _wake(self) -> None:
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    async def _over(self) -> None:
        while True:
            woken = self._woken
            if self._mailbox.outcome is not None:
                return
            await woken.wait()

    async def _answered(self, issued: Issued) -> Done:
        while True:
            woken = self._woken
            done = self._mailbox.answered(issued.id)
            if done is not None:
                return done
            await woken.wait()

    async def _beats(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._beat(self._settings.heartbeat_s / 2)
            every_s = max(self._settings.heartbeat_s, self._least_s)
            await asyncio.sleep(max(0.0, began + every_s - loop.time()))

    async def _beat(self, deadline_s: float) -> None:
        async with self._turn:
            try:
                heartbeat = self._mailbox.heartbeat(self._client.run_id)
                answer = await self._client.heartbeat(heartbeat, deadline_s)
            except OrchestratorError as error:
                self._on_heartbeat(_how(error))
                self._refused(error)
                return
        self._on_heartbeat("ok")
        self._least_s = answer.interval_s
        if answer.state == "terminating" and not answer.commands_waiting:
            self._end("the run is terminating, and the command was acknowledged by a former life")

    def _refused(self, error: OrchestratorError) -> None:
        """The orchestrator answers that this life is over, or that the run is."""
        if error.status != HTTPStatus.CONFLICT or self._mailbox.outcome is not None:
            return
        if error.path == "lineage":
            self._mailbox.fail(str(error))
        elif error.path == "status":
            self._end(str(error))

    def _end(self, reason: str) -> None:
        """Have training end, where no command asks for it."""
        if self._mailbox.outcome is None and not self._is_ordered_to_end:
            self._is_ordered_to_end = True
            self._mailbox.deliver(Issued(id=_OVER, command=Terminate(reason=reason[:1000])))

    async def _commands(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                issued = await self._client.next_command(self._settings.wait_s, self._mailbox.lineage)
            except OrchestratorError as error:
                self._refused(error)
                issued = None
            if issued is not None:
                await self._obeyed(issued)
            elif loop.time() - began < _SOON_S:
                await asyncio.sleep(_SOON_S)

    async def _obeyed(self, issued: Issued) -> None:
        """Have a command obeyed, unless it was, and acknowledge it; one that cannot be is delivered again."""
        self._in_hand = issued
        if self._mailbox.answered(issued.id) is None:
            self._mailbox.deliver(issued)
        done = await self._answered(issued)
        if await self._acknowledge(issued, done, self._settings.heartbeat_s):
            self._in_hand = None
        else:
            await asyncio.sleep(_SOON_S)

    async def _acknowledge(self, issued: Issued, done: Done, deadline_s: float) -> bool:
        async with self._turn:
            try:
                await self._client.acknowledge(issued.id, done, deadline_s)
            except OrchestratorError:
                return False
        return True


def _how(error: OrchestratorError) -> Beat:
    match error.status:
        case None | 502 | 503 | 504:
            return "error"
        case 429:
            return "late"
        case _:
            return "refused"
