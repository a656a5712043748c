"""Batches of the rollouts server, for the trainer: leased, then acknowledged when they were learned from.

Must not know what is in a group or how it is learned from.
"""

import time
from collections.abc import Callable
from typing import Final

from overwatch_rl.grpo.connection import Connection
from overwatch_rl.grpo.trainer import Taken
from overwatch_rl.grpo.weights import Version
from overwatch_rl.rollouts import wire

_MOST_WAIT_S: Final = 0.05
"""Between two requests where there was no batch; the server's own `retry_s` is for many trainers."""


def registration(
    *, batch_size: int, longest: int, updates: int, done: int, max_staleness: int, run: str
) -> wire.Registration:
    """What a trainer tells the server of itself; `done` are updates of an earlier life of the run."""
    return wire.Registration(
        wandb_group=run,
        wandb_project="grpo",
        batch_size=batch_size,
        max_token_len=longest,
        checkpoint_dir="",
        save_checkpoint_interval=0,
        starting_step=done,
        num_steps=updates,
        max_staleness=max_staleness,
    )


class RolloutsSource:
    """A trainer's side of the server."""

    def __init__(
        self, connection: Connection, about: wire.Registration, *, resumed_from: int | None = None
    ) -> None:
        self._connection = connection
        self._resumed_from = resumed_from
        connection.post("/register", about, wire.Registered)

    def take(self, stop: Callable[[], str | None]) -> Taken | None:
        """The next batch; `None` when asked to stop, or when the server says that training has all it needs."""
        while stop() is None:
            found = self._connection.get("/batch", wire.Batch, **{"Overwatch-Lease": "1"})
            if found.batch is not None and found.lease is not None:
                numbers = [
                    one.version.number if one.version_source == "stated" else None for one in found.items
                ]
                return Taken(
                    lease=found.lease.id, groups=[bytes(one) for one in found.batch], numbers=numbers
                )
            if found.lack == "done":
                return None
            time.sleep(min(found.retry_s or _MOST_WAIT_S, _MOST_WAIT_S))
        return None

    def acknowledge(self, lease: int) -> None:
        """The batch was learned from."""
        self._connection.post(f"/lease/{lease}/ack", None, wire.Lease)

    def moved(self, version: Version) -> None:
        """The policy has this version from now on."""
        move = wire.VersionMove(
            lineage=version.lineage, number=version.number, resumed_from=self._resumed_from
        )
        self._connection.post("/version", move, wire.Moved)
        self._resumed_from = None
