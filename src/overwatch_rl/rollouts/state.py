"""The state of the queue.

Owns what the queue knows. Rules: `apply` of `fold` is the only code that changes a state; every other
module reads it. Must not know time, files, threads or payloads.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.operations import (
    Account,
    Env,
    Item,
    Lease,
    Ticket,
    Trainer,
    Version,
    VersionSource,
    Waiting,
)


class Lane(NamedTuple):
    """What groups have in common that are alike to assembly."""

    env_id: int
    sequences: int
    """Of one group."""
    version: Version
    source: VersionSource


def lane_of(item: Item) -> Lane:
    """The lane that a group waits in."""
    return Lane(item.env_id, item.sequences, item.version, item.version_source)


@dataclass(slots=True)
class State:
    """Everything the queue knows; begins empty."""

    limits: Limits = field(default_factory=Limits)
    trainer: Trainer | None = None
    is_started: bool = False
    version: Version = field(default_factory=Version)
    is_version_stated: bool = False
    """Whether the trainer stated it; else it is the count of acknowledged batches."""
    behind: int = 0
    """Batches acknowledged less versions stated: 1 where a batch was used and its version is not out yet."""
    resumed_from: int | None = None
    batches: int = 0
    """Batches that were acknowledged in the trainer's run."""
    virtual: float = 0.0
    """The least of the environments that had groups, when a batch was last assembled."""
    next_id: int = 1
    """Of tickets, groups and leases alike; never used twice."""
    next_env: int = 0
    """Never used twice either, not even after a reset."""
    envs: dict[int, Env] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    """How often a name was wished for."""
    items: dict[int, Item] = field(default_factory=dict)
    lanes: dict[Lane, deque[int]] = field(default_factory=dict)
    """Queued groups, oldest first; no lane is empty."""
    tickets: dict[int, Ticket] = field(default_factory=dict)
    late: dict[int, Ticket] = field(default_factory=dict)
    """Expired tickets whose group may still come: it shows how long that environment needs."""
    running: int = 0
    """Sequences of the tickets that are neither used nor expired."""
    waiting: dict[int, Waiting] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    """How the last leases ended, so that a repeated call gets the same answer."""
    account: Account = field(default_factory=Account)

    @property
    def batch_size(self) -> int:
        """Sequences of a batch; 0 without a trainer."""
        return self.trainer.batch_size if self.trainer else 0

    @property
    def max_staleness(self) -> int:
        """Most versions that a group may be old when it is served."""
        stated = self.trainer.max_staleness if self.trainer else None
        return self.limits.max_staleness if stated is None else stated

    @property
    def held(self) -> int:
        """Sequences that are queued, or leased and not acknowledged."""
        return self.account.queued.sequences + self.account.leased.sequences

    @property
    def step(self) -> int:
        """Batches served, from the trainer's first step on; one that comes back is not served."""
        return (self.trainer.starting_step if self.trainer else 0) + self.batches + len(self.leases)

    def age(self, version: Version) -> int:
        """Versions between one and the trainer's."""
        return max(0, self.version.number - version.number)

    def is_abandoned(self, version: Version) -> bool:
        """Whether the trainer's line does not descend from a version."""
        other = version.lineage < self.version.lineage
        return other and self.resumed_from is not None and version.number > self.resumed_from
