"""The state of the queue.

Owns what the queue knows. Rules: `apply` of `fold` is the only code that changes a state; every other
module reads it. Must not know time, files, threads or payloads.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.operations import Account, Env, Item, Lease, Ticket, Trainer, Version, Waiting

Lane: TypeAlias = tuple[int, int, Version]
"""Groups that are alike to assembly: environment, sequences of a group, version."""


@dataclass(slots=True)
class State:
    """Everything the queue knows; begins empty."""

    limits: Limits = field(default_factory=Limits)
    trainer: Trainer | None = None
    is_started: bool = False
    version: Version = field(default_factory=Version)
    is_version_stated: bool = False
    """Whether the trainer said it; else it is the count of acknowledged batches."""
    base: int = 0
    """Number of the version at which counting for admission began."""
    counted: int = 0
    """Sequences accepted and not expired since then, and those that were outstanding then."""
    resumed_from: int | None = None
    batches: int = 0
    """Batches that were acknowledged in the trainer's run."""
    virtual: float = 0.0
    """Sequences served by weight, of the environment that was served last."""
    next_id: int = 1
    """Of environments, tickets, groups and leases alike; never used twice."""
    envs: dict[int, Env] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    """How often a name was wished for."""
    items: dict[int, Item] = field(default_factory=dict)
    lanes: dict[Lane, deque[int]] = field(default_factory=dict)
    """Queued groups, oldest first; no lane is empty."""
    tickets: dict[int, Ticket] = field(default_factory=dict)
    late: dict[int, Ticket] = field(default_factory=dict)
    """Expired tickets whose group may still come: it tells how long that environment needs."""
    running: int = 0
    """Sequences of the tickets that are neither used nor expired."""
    waiting: dict[int, Waiting] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    """How the last leases ended, so that a repeated call gets the same answer."""
    account: Account = field(default_factory=Account)
