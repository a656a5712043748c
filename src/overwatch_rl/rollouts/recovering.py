"""A log of operations read back: the state that they fold to, and the bytes of the groups that live in it.

Rules: a damaged record costs what it held and nothing else. What later operations name of groups, tickets and
leases that were lost with it is left out of them, and an environment whose registration was lost gets a new
name. Each is counted. Must not know how the log is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch.journal import LogVersionError, Record
from overwatch_rl.rollouts import entries, queue
from overwatch_rl.rollouts.operations import (
    Acknowledged,
    Delivered,
    EnvRegistered,
    Expired,
    Extended,
    Leased,
    Operation,
    Released,
    TicketsExpired,
)
from overwatch_rl.rollouts.state import State

_SPARE: Final = 1_024
"""So many payloads more than groups that live are kept before those that are not needed are let go."""


@dataclass(slots=True)
class Recovered:
    """What a log had."""

    state: State
    payloads: dict[int, bytes] = field(default_factory=dict)
    """By group."""
    places: dict[int, int] = field(default_factory=dict)
    """Sequence of the record that has the payload of each group."""
    snapshots: list[int] = field(default_factory=list)
    """Sequences of the last two snapshots."""
    number: int = 0
    """Of the last entry."""
    at: int = 0
    """When the last operation was."""
    count: int = 0
    """Of entries."""
    damaged: int = 0
    """Entries that could not be read, or not be applied."""

    def read(self, records: Iterable[Record], where: str) -> None:
        """Fold all of them. Raises `LogVersionError` naming `where`."""
        for record in records:
            if record.kind not in (entries.OPERATIONS, entries.SNAPSHOT, entries.MOVED):
                raise LogVersionError(f"{where} was written by a newer version of Overwatch")
            try:
                head, payloads = entries.unpack(record.payload)
            except ValueError:
                self.damaged += 1
                continue
            self.count += 1
            if record.kind == entries.MOVED or self._fold(record, head):
                self.payloads |= payloads
                self.places |= dict.fromkeys(payloads, record.sequence)
            if len(self.payloads) > len(self.state.items) + _SPARE:
                self._forget()
        self._forget()

    def lost(self) -> list[Operation]:
        """What takes groups out of the queue whose payloads are gone; to be applied and logged."""
        items = self.state.items
        gone = tuple(item for item in items if item not in self.payloads)
        leases = [lease.id for lease in self.state.leases.values() if not set(gone).isdisjoint(lease.items)]
        found: list[Operation] = [Released(at=self.at, lease=lease, reason="broken") for lease in leases]
        return [*found, Expired(at=self.at, items=gone, reason="lost")] if gone else []

    def _forget(self) -> None:
        items = self.state.items
        self.payloads = {item: data for item, data in self.payloads.items() if item in items}
        self.places = {item: place for item, place in self.places.items() if item in items}

    def _fold(self, record: Record, head: entries.Head) -> bool:
        """Apply an entry; whether it was not there before."""
        is_snapshot = record.kind == entries.SNAPSHOT
        if is_snapshot:
            self.snapshots = [*self.snapshots[-1:], record.sequence]
        elif head.number <= self.number:
            # It was written again after a sync had failed.
            return False
        elif head.number > self.number + 1:
            # How much of what is missing before the first entry was needed is unknown.
            self.damaged += head.number - self.number - 1 if self.number else 1
        self.number = head.number
        for operation in head.operations:
            self._apply(operation)
        return True

    def _apply(self, operation: Operation) -> None:
        self.at = max(self.at, operation.at)
        whole = operation if not self.damaged else self._mended(operation)
        if whole is not None:
            try:
                queue.apply(self.state, whole)
            except (LookupError, ValueError):
                self.damaged += 1

    def _mended(self, operation: Operation) -> Operation | None:
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
