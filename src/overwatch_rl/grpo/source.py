"""Batches of the rollouts server, for the trainer: leased, then acknowledged when they were learned from.

Must not know what is in a group or how it is learned from.
"""

from collections.abc import Callable
from typing import Final

from overwatch.sdk import Run
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.trainer import Taken
from overwatch_rl.rollouts.calls import Target
from overwatch_rl.rollouts.consumer import Consumer, LeasedBatch

PATIENCE_S: Final = 60.0
"""So long a server that is away is waited for."""


class RolloutsSource:
    """A trainer's side of the server."""

    def __init__(self, target: Target, *, resumed_from: int | None = None, run: Run | None = None) -> None:
        """`run` is given a span of each batch."""
        self._target = target
        self._consumer = Consumer(target, run)
        self._resumed_from = resumed_from
        self._out: LeasedBatch | None = None

    def register(self, **about: object) -> None:
        """Register what is taken; see `Consumer.register`."""
        self._consumer.register(**about)  # type: ignore[arg-type]  # its own names

    def take(self, stop: Callable[[], str | None]) -> Taken | None:
        """The next batch; `None` when asked to stop, or when training has all it needs."""
        while stop() is None:
            found = self._consumer.try_batch()
            if isinstance(found, LeasedBatch):
                self._out = found
                numbers = [
                    one["version"]["number"] if one["version_source"] == "stated" else None
                    for one in found.items
                ]
                return Taken(groups=found.groups, numbers=numbers)
            if found["lack"] == "done":
                return None
            self._target.stop.wait(found["retry_s"])
        return None

    def acknowledge(self) -> None:
        """The batch was learned from."""
        if self._out is not None:
            self._consumer.acknowledge(self._out)
            self._out = None

    def moved(self, version: Version) -> None:
        """The policy has this version from now on."""
        self._consumer.state_version(version.number, version.lineage, self._resumed_from)
        self._resumed_from = None

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()
