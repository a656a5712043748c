"""The replay server without a wire: tables, their encodings and limiters behind one facade.

Owns what a request means. Rules: one thread uses it, that of the server's event loop; nothing here waits. An
answer `Wait` means: ask again after `changed` was called. Must not know gRPC.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from overwatch_rl.clock import elapsing
from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest, Transition
from overwatch_rl.replay.base import (
    LeaseOf,
    Refusal,
    Refused,
    Resumed,
    Sampled,
    TableConfig,
    TableStats,
    Taken,
    Wait,
    Writer,
)
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.limiter import Limiter
from overwatch_rl.replay.packing import pack, priorities_of
from overwatch_rl.replay.sequences import Sequences
from overwatch_rl.replay.steps import Steps

KINDS: Final[dict[str, type[Sequences] | type[Steps]]] = {"sequences": Sequences, "steps": Steps}
"""Kinds of storage by name."""
MOST_WRITERS: Final = 4_096
"""Most writers of a table whose last request is remembered; the one that was silent longest goes first."""
_HOW: Final = (
    "bytes have no dtype of their own, so call Declare with the table's columns first, such as observation "
    "(float32, shape [4]), action (int64), reward (float32) and final_observation (as observation, "
    "per_chunk); then send this again"
)

Answer: TypeAlias = Taken | Wait | Refused


class UnknownTableError(LookupError):
    """No table has this name."""


class UndeclaredError(LookupError):
    """The table has no encoding yet."""


class OtherEncodingError(ValueError):
    """The table has another encoding."""


class KindError(ValueError):
    """A table of this kind does not offer what was asked: sequences are leased, steps are sampled."""


@dataclass(slots=True)
class Held:
    """A table with its limiter, once its encoding is declared."""

    config: TableConfig
    limiter: Limiter
    encoding: Encoding | None = None
    table: Sequences | Steps | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """Requests by reason."""
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By writer, the number and the checksum of its last request."""


class Replay:
    """All tables of a server. One thread uses it, that of the event loop."""

    def __init__(self, configs: Sequence[TableConfig], clock: Callable[[], int] | None = None) -> None:
        """Raises `ValueError`. `clock` gives Unix nanoseconds that never go back."""
        self.changed: Callable[[], None] = lambda: None
        """Called after anything that may let a waiting request go on; set it."""
        self.now = clock or elapsing(time.time_ns())
        self._tables: dict[str, Held] = {}
        for config in configs:
            if config.kind not in KINDS:
                raise ValueError(f"table {config.name!r}: kind {config.kind!r} is none of {', '.join(KINDS)}")
            if config.name in self._tables:
                raise ValueError(f"two tables are named {config.name!r}")
            KINDS[config.kind].check(config)
            self._tables[config.name] = Held(config, Limiter(config.rate))

    @property
    def tables(self) -> Mapping[str, Held]:
        """By name."""
        return self._tables

    def declare(self, table: str, encoding: Encoding) -> str:
        """Fix what the bytes of a table mean; its hash. Raises `OtherEncodingError`."""
        held = self.held(table)
        if held.encoding is None:
            held.table, held.encoding = KINDS[held.config.kind](held.config, encoding), encoding
        elif held.encoding.hash != encoding.hash:
            raise OtherEncodingError(
                f"table {table!r} has another encoding: {_difference(held.encoding, encoding)}"
            )
        return encoding.hash

    def encoding(self, table: str) -> Encoding:
        """That of a table. Raises `UndeclaredError`."""
        return self._declared(table)[1]

    def append(
        self, table: str, encoding_hash: str, chunks: Sequence[Chunk], writer: Writer | None = None
    ) -> Answer:
        """Take all chunks of a request, or none."""
        held, encoding, known = self._declared(table)
        if encoding_hash != encoding.hash:
            why = f"table {table!r} has the encoding {encoding.hash}, not {encoding_hash}: declare it again"
            return _refused(held, "encoding", why)
        try:
            _check(encoding, chunks)
        except ValueError as error:
            return _refused(held, "invalid", str(error))
        if writer is None:
            return self._taken(held, known, lambda: known.append(chunks, self.now()))
        request = writer.number, _checksum(chunks)
        number, checksum = held.requests.get(writer.id, (-1, 0))
        if number == writer.number and checksum != request[1]:
            why = (
                f"writer {writer.id[:60]!r} sent request {number} before with other chunks; "
                "give each request a number of its own"
            )
            return _refused(held, "invalid", why)
        if writer.number <= number:
            return Taken(items=0, steps=0, is_repeat=True)
        answer = self._taken(held, known, lambda: known.append(chunks, self.now()))
        if isinstance(answer, Taken):
            held.requests.pop(writer.id, None)
            held.requests[writer.id] = request
            if len(held.requests) > MOST_WRITERS:
                del held.requests[next(iter(held.requests))]
        return answer

    def store(self, table: str, transitions: Sequence[Transition]) -> Answer:
        """Take the origin's transitions, packed into chunks."""
        held, encoding, known = self._declared(table)
        try:
            priorities = priorities_of(transitions, are_used=held.config.selector == "prioritised")
            chunks = pack(transitions, encoding)
            _check(encoding, chunks)
        except ValueError as error:
            return _refused(held, "invalid", str(error))
        if isinstance(known, Steps):
            return self._taken(held, known, lambda: known.append(chunks, self.now(), priorities))
        return self._taken(held, known, lambda: known.append(chunks, self.now()))

    def lease(self, table: str, learner: str, steps: int, after: int) -> LeaseOf | None:
        """See `Sequences.lease`."""
        return self._sequences(table).lease(learner, steps, after, self.now())

    def extend(self, table: str, learner: str) -> int:
        """See `Sequences.extend`."""
        return self._sequences(table).extend(learner, self.now())

    def acknowledge(self, table: str, learner: str, upto: int) -> int:
        """See `Sequences.acknowledge`."""
        return self._moved(self._sequences(table).acknowledge(learner, upto))

    def resume(self, table: str, learner: str, cursor: int) -> Resumed:
        """See `Sequences.resume`."""
        answer = self._sequences(table).resume(learner, cursor)
        self.changed()
        return answer

    def sample(self, table: str, count: int, exponent: float | None = None) -> Sampled | None:
        """See `Steps.sample`; `None` also while the limiter holds samples back."""
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
        """See `Steps.update_priorities`."""
        held, steps = self._steps(table)
        if held.config.selector != "prioritised":
            raise KindError(f"table {table!r} is {held.config.selector}: its steps have no priorities")
        return steps.update_priorities(slots, generations, priorities)

    def clear(self, table: str, which: ClearRequest) -> int:
        """Remove what all conditions of a request hold of; how many items. What is leased stays."""
        held, _, known = self._declared(table)
        removed = known.remove(which)
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

    def held(self, table: str) -> Held:
        """A table by its name, which may be empty where there is one. Raises `UnknownTableError`."""
        if not table and len(self._tables) == 1:
            return next(iter(self._tables.values()))
        names = ", ".join(self._tables)
        if not table:
            raise ValueError(f"table is empty; this server has {names}")
        if table not in self._tables:
            raise UnknownTableError(f"table {table[:60]!r} is none of {names}")
        return self._tables[table]

    def _declared(self, table: str) -> tuple[Held, Encoding, Sequences | Steps]:
        held = self.held(table)
        if held.table is None or held.encoding is None:
            raise UndeclaredError(f"table {held.config.name!r} has no encoding yet: {_HOW}")
        return held, held.encoding, held.table

    def _sequences(self, table: str) -> Sequences:
        held, _, known = self._declared(table)
        if not isinstance(known, Sequences):
            raise KindError(f"table {table!r} holds {held.config.kind}, which are sampled, not leased")
        return known

    def _steps(self, table: str) -> tuple[Held, Steps]:
        held, _, known = self._declared(table)
        if not isinstance(known, Steps):
            raise KindError(f"table {table!r} holds {held.config.kind}, which are leased, not sampled")
        return held, known

    def _taken(self, held: Held, table: Sequences | Steps, append: Callable[[], Answer]) -> Answer:
        """What an append gives, once the limiter lets it go on."""
        if not held.limiter.may_insert(table.steps):
            return Wait(reason="limiter")
        answer = append()
        if isinstance(answer, Taken):
            held.limiter.insert(answer.steps)
            self.changed()
        return _refused(held, answer.reason, answer.message) if isinstance(answer, Refused) else answer

    def _moved(self, count: int) -> int:
        if count:
            self.changed()
        return count


def _refused(held: Held, reason: Refusal, message: str) -> Refused:
    held.refused[reason] = held.refused.get(reason, 0) + 1
    return Refused(reason=reason, message=message)


def _check(encoding: Encoding, chunks: Sequence[Chunk]) -> None:
    for place, chunk in enumerate(chunks):
        try:
            encoding.check(chunk)
        except ValueError as error:
            raise ValueError(f"chunks[{place}]: {error}") from None


def _checksum(chunks: Sequence[Chunk]) -> int:
    """Of all that a request appends."""
    found = xxhash.xxh3_64()
    for chunk in chunks:
        place = (chunk.run, chunk.env, chunk.episode, chunk.first_step, chunk.steps, chunk.lineage)
        found.update(repr((place, chunk.version, chunk.end)).encode())
        for column in chunk.columns.values():
            found.update(column)
    return found.intdigest()


def _difference(known: Encoding, other: Encoding) -> str:
    """The first column in which two encodings differ."""
    for column, wanted in zip(known.columns, other.columns, strict=False):
        if column != wanted:
            return f"it has {column}, not {wanted}"
    return f"it has {len(known.columns)} columns, not {len(other.columns)}"
