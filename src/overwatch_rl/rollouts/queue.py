"""The queue of rollouts: everything that may be asked of it, as pure functions over one `State`.

    decision = queue.accept(state, offers, now)      # changes nothing
    for operation in decision.operations:
        queue.apply(state, operation)                # the only code that changes the state
    # log those for which `is_logged`, wait until they are safe, then send decision.answer

`now` is Unix nanoseconds. Any call that names an environment renews it. `sweep` is to be called every few
seconds: it ends leases and tickets whose time is over and takes the share of silent environments.
Must not know a clock, sockets, files or payloads.
"""

from collections.abc import Sequence

from overwatch_rl.rollouts.answers import (
    Batch,
    Decision,
    EnvAnswer,
    EnvRequest,
    EnvStatus,
    Full,
    LeaseAnswer,
    NoBatch,
    Offer,
    Outcomes,
    Status,
    Tickets,
    Unknown,
    Wait,
)
from overwatch_rl.rollouts.operations import Operation, Snapshot, Trainer, Version
from overwatch_rl.rollouts.state import State


def apply(state: State, operation: Operation) -> None:
    """Change the state by one operation."""
    raise NotImplementedError


def snapshot(state: State, now: int) -> Snapshot:
    """The whole state as one operation; shares nothing with it that changes."""
    raise NotImplementedError


def register_trainer(state: State, trainer: Trainer, now: int) -> Decision[Status]:
    """A trainer registers; again after a crash: its implicit lease is released and nothing else is lost."""
    raise NotImplementedError


def register_env(state: State, request: EnvRequest, now: int) -> Decision[EnvAnswer | Wait]:
    """An environment registers, or waits until the trainer asked for its first batch."""
    raise NotImplementedError


def disconnect_env(state: State, env_id: int, now: int) -> Decision[EnvStatus | Unknown]:
    """An environment leaves: its share and tickets are free at once, its queued groups stay."""
    raise NotImplementedError


def admit(state: State, env_id: int, groups: int, now: int) -> Decision[Tickets | Unknown]:
    """Issue up to `groups` tickets."""
    raise NotImplementedError


def accept(state: State, offers: Sequence[Offer], now: int) -> Decision[Outcomes | Full | Unknown]:
    """Take the groups of one request, all of one environment; offers with a known key are answered again."""
    raise NotImplementedError


def batch(state: State, now: int, *, is_explicit: bool = False) -> Decision[Batch | NoBatch | Unknown]:
    """Lease the next batch; the first call starts the trainer, an implicit one acknowledges the last."""
    raise NotImplementedError


def delivered(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The reply with this implicit lease was written to its last byte."""
    raise NotImplementedError


def broken(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The connection broke before the last byte of a reply: its groups are queued again."""
    raise NotImplementedError


def acknowledge(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The trainer has used an explicit lease."""
    raise NotImplementedError


def extend(state: State, lease: int, seconds: float | None, now: int) -> Decision[LeaseAnswer | Unknown]:
    """Move a lease's deadline to so many seconds from now."""
    raise NotImplementedError


def release(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The trainer gives a lease back: its groups are queued again."""
    raise NotImplementedError


def move_version(
    state: State, version: Version, resumed_from: int | None, now: int
) -> Decision[Status | Unknown]:
    """The trainer says which version it has."""
    raise NotImplementedError


def status(state: State, now: int) -> Status:
    """The queue as a whole."""
    raise NotImplementedError


def status_env(state: State, env_id: int, now: int) -> Decision[EnvStatus | Unknown]:
    """The queue as one environment sees it; renews it and answers it the current version."""
    raise NotImplementedError


def sweep(state: State, now: int) -> Decision[None]:
    """End what time has ended: leases, tickets, the shares of silent environments, groups too old."""
    raise NotImplementedError


def reset(state: State, now: int) -> Decision[Status]:
    """Forget trainer, environments and groups; what was queued or leased counts as expired."""
    raise NotImplementedError
