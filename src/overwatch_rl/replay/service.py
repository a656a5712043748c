"""The replay server without a wire: tables, their encodings and limiters behind one facade.

Owns what a request means. Rules: one thread uses it, that of the server's event loop; nothing here waits but
`safe`. An answer `Wait` means: ask again after `changed` was called. A request that changed a table is to be
answered once `safe` returns. Must not know gRPC.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.deflate import fast_zlib
from overwatch_rl.clock import elapsing
from overwatch_rl.oplog import StoreClosedError
from overwatch_rl.replay.base import (
    Durability,
    LeaseOf,
    Refused,
    Resumed,
    Sampled,
    SequenceTable,
    StepTable,
    Table,
    TableConfig,
    TableStats,
    Taken,
    Wait,
    Which,
    Writer,
)
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.kinds import KINDS
from overwatch_rl.replay.limiter import Limiter
from overwatch_rl.replay.packing import Transition, pack
from overwatch_rl.replay.sequences import Sequences
from overwatch_rl.replay.steps import Steps

MOST_WRITERS: Final = 4_096
"""Most writers whose last request is compared with one of the same number."""
PATIENCE_S: Final = 30.0
"""So long an answer waits for the disk."""


class UnknownTableError(LookupError):
    """No table has this name, or it has no encoding yet."""


class KindError(ValueError):
    """A table of this kind does not offer what was asked: sequences are leased, steps are sampled."""


class UnsafeError(Exception):
    """What was done could not be made safe in time; whether it stands is seen once it is."""


@dataclass(slots=True)
class Held:
    """A table with its limiter, once its encoding is declared."""

    config: TableConfig
    limiter: Limiter
    encoding: Encoding | None = None
    table: Table | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """Requests by reason."""
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By writer, the number and the checksum of the last request that this process received."""


class Replay:
    """All tables of a server. One thread uses it, that of the event loop; `close` it."""

    def __init__(self, configs: Sequence[TableConfig], clock: Callable[[], int] | None = None) -> None:
        """A durable table is read back here. Raises `FolderBusyError`, `OSError`, `ValueError`.

        `clock` gives Unix nanoseconds that never go back.
        """
        self.changed: Callable[[], None] = lambda: None
        """Called after anything that may let a waiting request go on; set it."""
        self.now = clock or elapsing(time.time_ns())
        self._tables: dict[str, Held] = {}
        try:
            for config in configs:
                self._add(config)
        except BaseException:
            self.close()
            raise

    @property
    def tables(self) -> Mapping[str, Held]:
        """By name."""
        return self._tables

    def declare(self, table: str, encoding: Encoding) -> str:
        """Fix what the bytes of a table mean; its hash. A table that has another one raises `ValueError`."""
        held = self._held(table)
        if held.encoding is None:
            made = KINDS[held.config.kind](held.config, encoding)
            least = held.config.rate.min_steps
            if isinstance(made, Steps) and 2 * least > made.ring.rows:
                raise ValueError(f"table {table!r} has {made.ring.rows} rows, too few for min_steps {least}")
            held.table, held.encoding = made, encoding
        elif held.encoding.hash != encoding.hash:
            raise ValueError(f"table {table!r} has another encoding: {_difference(held.encoding, encoding)}")
        return encoding.hash

    def encoding(self, table: str) -> Encoding:
        """Raises `UnknownTableError` where none is declared."""
        encoding = self._held(table).encoding
        if encoding is None:
            raise UnknownTableError(f"table {table!r} has no encoding yet: declare it first")
        return encoding

    def append(
        self, table: str, encoding_hash: str, chunks: Sequence[Chunk], writer: Writer | None = None
    ) -> Taken | Wait | Refused:
        """Take all chunks of a request, or none."""
        encoding, (held, known) = self.encoding(table), self._declared(table)
        if encoding_hash != encoding.hash:
            why = f"table {table!r} has the encoding {encoding.hash}, not {encoding_hash}: declare it again"
            return self._answered(held, Refused(reason="encoding", message=why))
        try:
            for index, chunk in enumerate(chunks):
                _named(index, encoding, chunk)
        except ValueError as error:
            return self._answered(held, Refused(reason="invalid", message=str(error)))
        if writer is None:
            return self._append(held, known, chunks, None)
        request = writer.number, _checksum(chunks)
        number, checksum = held.requests.get(writer.id, request)
        if number == writer.number and checksum != request[1]:
            message = (
                f"writer {writer.id[:60]!r} sent request {number} before with other chunks; "
                "give each request a number of its own"
            )
            return self._answered(held, Refused(reason="invalid", message=message))
        answer = self._append(held, known, chunks, writer)
        if isinstance(answer, Taken):
            held.requests.pop(writer.id, None)
            held.requests[writer.id] = request
            if len(held.requests) > MOST_WRITERS:
                del held.requests[next(iter(held.requests))]
        return answer

    def store(self, table: str, transitions: Sequence[Transition]) -> Taken | Wait | Refused:
        """Take the origin's transitions, packed into chunks."""
        encoding, (held, known) = self.encoding(table), self._declared(table)
        try:
            chunks = pack(transitions, encoding)
            for index, chunk in enumerate(chunks):
                _named(index, encoding, chunk)
        except ValueError as error:
            return self._answered(held, Refused(reason="invalid", message=str(error)))
        return self._append(held, known, chunks, None)

    def lease(self, table: str, learner: str, steps: int, after: int) -> LeaseOf | None:
        """See `SequenceTable.lease`."""
        return self._sequences(table).lease(learner, steps, after, self.now())

    def extend(self, table: str, learner: str) -> int:
        """See `SequenceTable.extend`."""
        return self._sequences(table).extend(learner, self.now())

    def acknowledge(self, table: str, learner: str, upto: int) -> int:
        """See `SequenceTable.acknowledge`."""
        return self._moved(self._sequences(table).acknowledge(learner, upto, self.now()))

    def resume(self, table: str, learner: str, cursor: int) -> Resumed:
        """See `SequenceTable.resume`."""
        answer = self._sequences(table).resume(learner, cursor, self.now())
        self.changed()
        return answer

    def sample(self, table: str, count: int, exponent: float | None = None) -> Sampled | None:
        """See `StepTable.sample`; `None` also while the limiter holds samples back."""
        held, steps = self._steps(table)
        if not held.limiter.may_sample(steps.steps):
            return None
        found = steps.sample(count, exponent)
        if found is not None:
            held.limiter.sample(count)
            self.changed()
        return found

    def update_priorities(
        self,
        table: str,
        slots: npt.NDArray[np.int64],
        generations: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
    ) -> int:
        """See `StepTable.update_priorities`."""
        return self._steps(table)[1].update_priorities(slots, generations, priorities)

    def clear(self, table: str, which: Which) -> int:
        """See `Table.remove`."""
        held, known = self._declared(table)
        removed = known.remove(which, self.now())
        if not known.steps:
            held.limiter.clear()
        return self._moved(removed)

    def stats(self) -> list[TableStats]:
        """Of every table whose encoding is declared."""
        return [held.table.stats() for held in self._tables.values() if held.table is not None]

    def expire(self) -> int:
        """End leases whose deadline has passed; call it every second."""
        now = self.now()
        tables = [held.table for held in self._tables.values() if isinstance(held.table, Sequences)]
        return self._moved(sum(table.expire(now) for table in tables))

    async def safe(self, table: str) -> None:
        """Wait until all that a table got is as durable as its level requires. Raises `UnsafeError`."""
        _, known = self._declared(table)
        last: Future[None] | None = getattr(known, "last", None)
        if last is None or last.done():
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(asyncio.wrap_future(last))
        except TimeoutError:
            why = known.stats().problem or "the disk is slow"
            raise UnsafeError(f"table {table!r} was not written within {PATIENCE_S:g} s: {why}") from None
        except StoreClosedError as error:
            raise UnsafeError(str(error)) from error

    def close(self) -> None:
        """Write what waits. A second call does nothing."""
        for held in self._tables.values():
            if held.table is not None:
                held.table.close()

    def _add(self, config: TableConfig) -> None:
        if config.kind not in KINDS:
            raise ValueError(f"table {config.name!r}: kind {config.kind!r} is none of {', '.join(KINDS)}")
        if config.name in self._tables:
            raise ValueError(f"two tables are named {config.name!r}")
        held = self._tables[config.name] = Held(config, Limiter(config.rate))
        if config.durability is not Durability.MEMORY:
            known = Sequences(config)
            if known.state.encoding is None:
                # Nothing is lost: a folder without an encoding has no chunks.
                known.close()
            else:
                held.table, held.encoding = known, known.encoding
                # Deadlines on disk are of the clock of another life, in which nobody can extend any more.
                for learner in known.state.learners:
                    known.extend(learner, self.now())

    def _held(self, table: str) -> Held:
        if table not in self._tables:
            raise UnknownTableError(f"there is no table {table!r}; there are {', '.join(self._tables)}")
        return self._tables[table]

    def _declared(self, table: str) -> tuple[Held, Table]:
        held = self._held(table)
        if held.table is None:
            raise UnknownTableError(f"table {table!r} has no encoding yet: declare it first")
        return held, held.table

    def _sequences(self, table: str) -> SequenceTable:
        held, known = self._declared(table)
        if not isinstance(known, Sequences):
            raise KindError(f"table {table!r} holds {held.config.kind}, which are sampled, not leased")
        return known

    def _steps(self, table: str) -> tuple[Held, StepTable]:
        held, known = self._declared(table)
        if not isinstance(known, Steps):
            raise KindError(f"table {table!r} holds {held.config.kind}, which are leased, not sampled")
        return held, known

    def _append(
        self, held: Held, table: Table, chunks: Sequence[Chunk], writer: Writer | None
    ) -> Taken | Wait | Refused:
        if not held.limiter.may_insert(table.steps):
            return Wait(reason="limiter")
        answer = table.append(chunks, writer, self.now())
        if isinstance(answer, Taken) and not answer.is_repeat:
            held.limiter.insert(answer.steps)
            self.changed()
        return self._answered(held, answer)

    def _answered(self, held: Held, answer: Taken | Wait | Refused) -> Taken | Wait | Refused:
        if isinstance(answer, Refused):
            held.refused[answer.reason] = held.refused.get(answer.reason, 0) + 1
        return answer

    def _moved(self, count: int) -> int:
        if count:
            self.changed()
        return count


def _named(index: int, encoding: Encoding, chunk: Chunk) -> None:
    try:
        encoding.check(chunk)
    except ValueError as error:
        raise ValueError(f"chunks[{index}]: {error}") from None


def _checksum(chunks: Sequence[Chunk]) -> int:
    """Of all that a request appends."""
    found = 0
    for chunk in chunks:
        place = (chunk.run, chunk.env, chunk.episode, chunk.first_step, chunk.steps, chunk.lineage)
        found = fast_zlib.crc32(repr((place, chunk.version, chunk.end)).encode(), found)
        for column in chunk.columns.values():
            found = fast_zlib.crc32(column, found)
    return found


def _difference(known: Encoding, other: Encoding) -> str:
    """The first column in which two encodings differ."""
    for column, wanted in zip(known.columns, other.columns, strict=False):
        if column != wanted:
            return f"it has {column}, not {wanted}"
    return f"it has {len(known.columns)} columns, not {len(other.columns)}"
