"""The replay server without a wire: tables, their encodings and limiters behind one facade.

Owns what a request means. Rules: one thread uses it, that of the server's event loop; nothing here waits. An
answer `Wait` means: ask again after `changed` was called. What was taken or leased is to be answered once its
`safe` is done. Must not know gRPC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from overwatch_rl.replay.base import (
    LeaseOf,
    Refused,
    Resumed,
    Sampled,
    Table,
    TableConfig,
    TableStats,
    Taken,
    Wait,
    Which,
    Writer,
)
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.limiter import Limiter
from overwatch_rl.replay.packing import Transition


class UnknownTableError(LookupError):
    """No table has this name, or it has no encoding yet."""


class KindError(ValueError):
    """A table of this kind does not offer what was asked: sequences are leased, steps are sampled."""


@dataclass(slots=True)
class Held:
    """A table with its limiter, once its encoding is declared."""

    config: TableConfig
    limiter: Limiter
    encoding: Encoding | None = None
    table: Table | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """Requests by reason."""


class Replay:
    """All tables of a server. One thread uses it, that of the event loop; `close` it."""

    def __init__(self, configs: Sequence[TableConfig], clock: Callable[[], int] = lambda: 0) -> None:
        """A durable table is read back here. Raises `FolderBusyError`, `OSError`, `ValueError`."""
        raise NotImplementedError

    changed: Callable[[], None]
    """Called after anything that may let a waiting request go on; set it."""

    @property
    def tables(self) -> Mapping[str, Held]:
        """By name."""
        raise NotImplementedError

    def declare(self, table: str, encoding: Encoding) -> str:
        """Fix what the bytes of a table mean; its hash. A table that has another one raises `ValueError`."""
        raise NotImplementedError

    def encoding(self, table: str) -> Encoding:
        """Raises `UnknownTableError` where none is declared."""
        raise NotImplementedError

    def append(
        self, table: str, encoding_hash: str, chunks: Sequence[Chunk], writer: Writer | None = None
    ) -> Taken | Wait | Refused:
        """Take all chunks of a request, or none."""
        raise NotImplementedError

    def store(self, table: str, transitions: Sequence[Transition]) -> Taken | Wait | Refused:
        """Take the origin's transitions, packed into chunks."""
        raise NotImplementedError

    def lease(self, table: str, learner: str, steps: int, after: int) -> LeaseOf | None:
        """See `SequenceTable.lease`; `None` also while the limiter holds samples back."""
        raise NotImplementedError

    def extend(self, table: str, learner: str) -> int:
        """See `SequenceTable.extend`."""
        raise NotImplementedError

    def acknowledge(self, table: str, learner: str, upto: int) -> int:
        """See `SequenceTable.acknowledge`."""
        raise NotImplementedError

    def resume(self, table: str, learner: str, cursor: int) -> Resumed:
        """See `SequenceTable.resume`."""
        raise NotImplementedError

    def sample(self, table: str, count: int, exponent: float | None = None) -> Sampled | None:
        """See `StepTable.sample`; `None` also while the limiter holds samples back."""
        raise NotImplementedError

    def update_priorities(
        self,
        table: str,
        slots: npt.NDArray[np.int64],
        generations: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
    ) -> int:
        """See `StepTable.update_priorities`."""
        raise NotImplementedError

    def clear(self, table: str, which: Which) -> int:
        """See `Table.remove`."""
        raise NotImplementedError

    def stats(self) -> list[TableStats]:
        """Of every table whose encoding is declared."""
        raise NotImplementedError

    def expire(self) -> int:
        """End leases whose deadline has passed; call it every second."""
        raise NotImplementedError

    async def safe(self, table: str) -> None:
        """Wait until all that was done to a table is as durable as its level says. Raises `UnsafeError`."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what waits. A second call does nothing."""
        raise NotImplementedError
