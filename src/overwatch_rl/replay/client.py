"""A client of replay servers: for the learner's event loop, and a blocking one for actors.

Rules: what may succeed later is tried again with growing, jittered pauses until the caller's deadline; a
repeated append is stored once; `state` says `degraded` while a server does not answer. With several servers
an environment's chunks all go to one, by a hash of its name, and leases are numbered by each for itself: a
cursor is one number a server, in their order. Must not know what the bytes mean.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from overwatch.sdk import Run
from overwatch_rl.replay.base import LeaseOf, Resumed, Sampled, TableStats, Which
from overwatch_rl.replay.chunk import Chunk, Encoding

State: TypeAlias = Literal["ok", "degraded"]


class ReplayError(Exception):
    """A server refused a request, and to ask again does not help; or the deadline passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A lease as it came."""

    shard: int
    """Which server: its place in `servers`."""
    lease: LeaseOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A sample as it came."""

    shard: int
    sampled: Sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What the servers took."""

    items: int
    steps: int


class ReplayClient:
    """One loop uses it. `servers` are `host:port`, or `grpcs://host:port` with TLS."""

    state: State = "ok"

    def __init__(
        self,
        servers: Sequence[str],
        *,
        on_state: Callable[[State, str], None] | None = None,
        run: Run | None = None,
    ) -> None:
        """`on_state` is given the new state and why; access and pauses follow as keywords."""
        raise NotImplementedError

    async def declare(self, table: str, encoding: Encoding) -> None:
        """Fix what the bytes of a table mean, before the first append."""
        raise NotImplementedError

    async def encoding(self, table: str) -> Encoding:
        """That of a table; waits until one is declared."""
        raise NotImplementedError

    async def append(self, table: str, chunks: Sequence[Chunk], timeout_s: float = 60.0) -> Appended:
        """Append; waits while the limiter holds back, the table is full, or a server is away."""
        raise NotImplementedError

    def stream(
        self, table: str, learner: str, steps: int, depth: int = 4, after: Sequence[int] = ()
    ) -> AsyncIterator[Leased]:
        """Leases of at least `steps` steps; at most `depth` wait here. It survives its server.

        `after`: by server the last lease that the learner got; from `resume` where it has a checkpoint.
        """
        raise NotImplementedError

    async def acknowledge(self, table: str, learner: str, upto: Sequence[int]) -> int:
        """By server the last lease that is used; how many items are so by this."""
        raise NotImplementedError

    async def extend(self, table: str, learner: str) -> int:
        """Give all leases a new deadline; how many there are."""
        raise NotImplementedError

    async def resume(self, table: str, learner: str, cursor: Sequence[int]) -> list[Resumed]:
        """Begin a learner's life at the cursor of its checkpoint; by server."""
        raise NotImplementedError

    async def sample(self, table: str, count: int, exponent: float | None = None) -> Drawn:
        """Draw steps from one server, each in turn."""
        raise NotImplementedError

    async def update_priorities(self, table: str, drawn: Drawn, priorities: npt.NDArray[np.float64]) -> int:
        """Of the steps of a sample; how many were gone."""
        raise NotImplementedError

    async def clear(self, table: str, which: Which) -> int:
        """Remove from all servers; how many items."""
        raise NotImplementedError

    async def stats(self) -> list[list[TableStats]]:
        """By server, of each table."""
        raise NotImplementedError

    async def close(self) -> None:
        """End connections. A second call does nothing."""
        raise NotImplementedError


class BlockingReplayClient:
    """The same for a program without a loop: `append`, `declare`, `encoding`, `stats`, `close`."""
