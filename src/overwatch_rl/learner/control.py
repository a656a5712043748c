"""How a learner obeys: a mailbox between the I/O thread and the training thread, and what each does with it.

The training thread owns a `Control` and calls `between(progress)` between two updates: it obeys what has come,
waits inside while the run is paused, and answers whether to go on. The I/O thread runs `attend(...)`: heartbeats
go out at their interval whatever the training thread does, commands come in and acknowledgements go back.

Rules: nothing is changed but between updates; a command is acknowledged after it was done; the end of the I/O
thread wakes the training thread with its reason. Must not know torch, nor how an algorithm is tuned.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from overwatch_rl.orchestrator.commands import Done, Issued


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where training is; the newest one is what a heartbeat carries."""

    lineage: int
    step: int
    """Env steps trained on, as checkpoints count them."""
    samples_per_sec: float | None = None
    loss: float | None = None
    checkpoint_version: str | None = None
    """`str(Version)` of the newest checkpoint that is written."""
    notes: str | None = None
    """What a person should know, e.g. `degraded: replay is away`, `checkpoint_stalled`."""


class Obedient(Protocol):
    """What a command changes in a learner. Called by the training thread, between updates."""

    def tune(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Set hyperparameters; the values before. Raises `ValueError` where this algorithm has none of a name."""
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
    """The I/O thread has ended, or another life of this run has begun: training must end without a save."""


class Mailbox:
    """Between the two threads: commands one way, progress and acknowledgements the other. Thread-safe."""

    def fail(self, reason: str) -> None:
        """Wake the training thread with `ControlLostError(reason)`: the I/O thread cannot go on."""
        raise NotImplementedError


class Control:
    """The training thread's side."""

    def __init__(
        self,
        mailbox: Mailbox,
        learner: Obedient,
        obeyed: Callable[[Issued, Done], None] = lambda _issued, _done: None,
        *,
        is_paused: bool = False,
    ) -> None:
        """`obeyed` records what was done (log, metrics); `is_paused` begins with a pause, as the run's state was."""
        raise NotImplementedError

    def between(self, progress: Progress) -> Literal["terminated"] | None:
        """Between two updates: obey what has come, wait while paused; the outcome to end with, else `None`.

        After `"terminated"` the last checkpoint is written and acknowledged. Raises `ControlLostError`.
        """
        raise NotImplementedError

    def end(self, outcome: Literal["completed", "failed", "terminated"], progress: Progress) -> None:
        """Training is over: the last heartbeat says so, and `attend` returns once it is delivered."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AttendSettings:
    """How often the orchestrator is called."""

    heartbeat_s: float = 15.0
    """Between two heartbeats; 5 or more."""
    wait_s: float = 20.0
    """So long one request waits for a command at the server."""
    last_s: float = 10.0
    """So long the last heartbeat and acknowledgements are tried."""


# async def attend(client: OrchestratorClient, mailbox: Mailbox, settings: AttendSettings) -> None
#     runs on the I/O thread's loop until `Control.end`, or until it is cancelled.
