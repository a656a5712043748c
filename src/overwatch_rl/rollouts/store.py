"""The rollouts queue as a book of the operation log: what lives, and what damage means.

Rules: what later operations name of groups, tickets and leases that were lost is left out of them, and an
environment whose registration was lost gets a new name. Must not know how the log is written.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec

from overwatch.journal import Files
from overwatch_rl import oplog
from overwatch_rl.oplog import Level, Recovery, StoreClosedError, StoreLimits
from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.operations import (
    Accepted,
    Acknowledged,
    Delivered,
    EnvRegistered,
    Expired,
    Extended,
    Item,
    Leased,
    Operation,
    Released,
    Snapshot,
    TicketsExpired,
    is_logged,
)
from overwatch_rl.rollouts.state import State

__all__ = ["Level", "QueueBook", "Recovery", "Store", "StoreClosedError", "StoreLimits"]


@dataclass(frozen=True, slots=True)
class QueueBook:
    """The queue, as the log sees it."""

    state: State

    @property
    def items(self) -> Mapping[int, Item]:
        """Groups that are queued or leased."""
        return self.state.items

    def apply(self, operation: Operation) -> None:
        """Change the state."""
        queue.apply(self.state, operation)

    def snapshot(self, at: int) -> Snapshot:
        """The whole state."""
        return queue.snapshot(self.state, at)

    def lost(self, items: tuple[int, ...], at: int) -> list[Operation]:
        """What takes groups out of the queue whose payloads are gone."""
        leases = [lease.id for lease in self.state.leases.values() if not set(items).isdisjoint(lease.items)]
        found: list[Operation] = [Released(at=at, lease=lease, reason="broken") for lease in leases]
        return [*found, Expired(at=at, items=items, reason="lost")]

    def mended(self, operation: Operation) -> Operation | None:
        """What an operation means where others are lost; `None` for nothing."""
        state = self.state
        env_id = getattr(operation, "env_id", None)
        if env_id is not None and env_id not in state.envs and not isinstance(operation, EnvRegistered):
            size = getattr(operation, "sequences", 1)
            name = f"recovered_{env_id}"
            queue.apply(
                state,
                EnvRegistered(
                    at=operation.at, env_id=env_id, name=name, desired_name="recovered", group_size=size
                ),
            )
        match operation:
            case Leased(items=items):
                queued = {item for lane in state.lanes.values() for item in lane}
                left = tuple(item for item in items if item in queued)
                return msgspec.structs.replace(operation, items=left) if left else None
            case Expired(items=items):
                return msgspec.structs.replace(operation, items=tuple(i for i in items if i in state.items))
            case TicketsExpired(tickets=tickets):
                return msgspec.structs.replace(
                    operation, tickets=tuple(t for t in tickets if t in state.tickets)
                )
            case (
                Acknowledged(lease=lease)
                | Released(lease=lease)
                | Delivered(lease=lease)
                | Extended(lease=lease)
            ):
                return operation if lease in state.leases else None
            case _:
                return operation


class Store(oplog.Store[Operation]):
    """The queue's operations in a folder, the bytes of accepted groups beside them."""

    def __init__(
        self,
        path: Path | None,
        state: State,
        limits: StoreLimits | None = None,
        files: Callable[[int], Files] = Files,
    ) -> None:
        """`path` is `None` for the level `memory` alone; raises as `oplog.Store` does."""
        super().__init__(QueueBook(state), Operation, (path, "rollouts"), limits or StoreLimits(), files)

    def keep(self, records: Iterable[tuple[Operation, bytes | None]]) -> "Future[None]":
        """Submit operations that were applied and, of accepted groups, their bytes; others are not logged."""
        kept = [(operation, payload) for operation, payload in records if is_logged(operation)]
        payloads = {
            operation.id: data
            for operation, data in kept
            if isinstance(operation, Accepted) and data is not None
        }
        return self.submit([operation for operation, _ in kept], payloads)
