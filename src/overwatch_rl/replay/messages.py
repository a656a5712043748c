"""Between messages of `replay.v1` and what the tables take and give.

Rules: what a message lacks or has wrongly is a `ValueError` that begins with its path in the request; nothing
is filled in. Columns of chunks never go through protobuf, whose copies cost more than the network; their
bytes are not read here: the encoding of a table checks them. Must not know calls, nor gRPC.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError, Message

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.base import ItemId, LeasedChunk, LeaseOf, Resumed, Sampled, TableStats, Which
from overwatch_rl.replay.chunk import Bytes, Chunk, Column, Encoding, End
from overwatch_rl.replay.framing import cut, framed
from overwatch_rl.replay.packing import Transition

Ints = npt.NDArray[np.int64]

_ENDS: Final[Mapping[int, End]] = MappingProxyType(
    {pb.END_TERMINATED: "terminated", pb.END_TRUNCATED: "truncated", pb.END_CUT: "cut"}
)
_NUMBERS: Final[Mapping[End, Any]] = MappingProxyType({end: number for number, end in _ENDS.items()})
"""Enumerations are plain numbers at run time."""
_FACTS: Final = ("reward", "observation", "action", "next_observation", "terminated")
"""Columns of a sample that a transition has fields for."""
_MOST: Final = (1 << 63) - 1

_APPEND_CHUNKS: Final = pb.AppendRequest.CHUNKS_FIELD_NUMBER
_CHUNK_COLUMNS: Final = pb.Chunk.COLUMNS_FIELD_NUMBER
_LEASED_CHUNK: Final = pb.Leased.CHUNK_FIELD_NUMBER
_LEASE_ITEMS: Final = pb.LeaseOf.ITEMS_FIELD_NUMBER
_RESPONSE_LEASE: Final = pb.LeaseResponse.LEASE_FIELD_NUMBER
_STREAMED_LEASE: Final = pb.SampleStreamResponse.LEASE_FIELD_NUMBER

M = TypeVar("M", bound=Message)


class Append(NamedTuple):
    """A request to append, its chunks not read yet."""

    head: pb.AppendRequest
    chunks: list[memoryview]


def parsed(kind: type[M], body: Bytes) -> M:
    """A message; `ValueError` where the bytes are none."""
    try:
        return kind.FromString(bytes(body))
    except DecodeError as error:
        raise ValueError(f"this is no {kind.DESCRIPTOR.full_name}: {error}") from error


@contextmanager
def at(path: str) -> Iterator[None]:
    """A `ValueError` within begins with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def encoding_of(message: pb.Encoding) -> Encoding:
    """As declared."""
    columns = []
    for place, column in enumerate(message.columns):
        with at(f"encoding.columns[{place}]"):
            columns.append(
                Column(
                    name=column.name,
                    dtype=column.dtype,
                    shape=tuple(column.shape),
                    per_step=not column.per_chunk,
                )
            )
    with at("encoding.columns"):
        return Encoding(columns=tuple(columns))


def encoding_message(encoding: Encoding) -> pb.Encoding:
    """To declare."""
    return pb.Encoding(
        columns=[
            pb.Column(name=column.name, dtype=column.dtype, shape=column.shape, per_chunk=not column.per_step)
            for column in encoding.columns
        ]
    )


def append_of(body: Bytes) -> Append:
    """An append as it came; its columns stay where they lie in the body."""
    with at(f"this is no {pb.AppendRequest.DESCRIPTOR.full_name}"):
        rest, chunks = cut(body, _APPEND_CHUNKS)
    return Append(parsed(pb.AppendRequest, rest), chunks)


def append_body(head: pb.AppendRequest, chunks: Iterable[Chunk], encoding: Encoding) -> bytes:
    """An append of chunks of this encoding; columns are copied once."""
    parts = [part for chunk in chunks for part in framed(_APPEND_CHUNKS, chunk_parts(chunk, encoding))]
    return b"".join([head.SerializeToString(), *parts])


def chunk_of(body: Bytes, encoding: Encoding, path: str) -> Chunk:
    """A chunk whose columns have names and are views of the body, and nothing else checked."""
    with at(path):
        rest, columns = cut(body, _CHUNK_COLUMNS)
        head = parsed(pb.Chunk, rest)
    end = _ENDS.get(head.end)
    if end is None:
        raise ValueError(f"{path}.end is {head.end}; it is 1 (terminated), 2 (truncated) or 3 (cut)")
    names = [column.name for column in encoding.columns_of(end)]
    if len(columns) != len(names):
        raise ValueError(
            f"{path}.columns are {len(columns)}; {end} chunks have {len(names)}: {', '.join(names)}"
        )
    return Chunk(
        run=head.run,
        env=head.env,
        episode=head.episode,
        first_step=head.first_step,
        steps=head.steps,
        lineage=head.lineage,
        version=head.version,
        end=end,
        columns=dict(zip(names, columns, strict=True)),
    )


def steps_of(body: Bytes) -> int:
    """Of a chunk."""
    return parsed(pb.Chunk, cut(body, _CHUNK_COLUMNS)[0]).steps


def chunk_parts(chunk: Chunk, encoding: Encoding) -> list[Bytes]:
    """The body of a chunk of this encoding, in parts."""
    head = pb.Chunk(
        run=chunk.run,
        env=chunk.env,
        episode=chunk.episode,
        first_step=chunk.first_step,
        steps=chunk.steps,
        lineage=chunk.lineage,
        version=chunk.version,
        end=_NUMBERS[chunk.end],
    )
    parts: list[Bytes] = [head.SerializeToString()]
    for column in encoding.columns_of(chunk.end):
        parts += framed(_CHUNK_COLUMNS, [chunk.columns[column.name]])
    return parts


def lease_parts(lease: LeaseOf, encoding: Encoding) -> list[Bytes]:
    """The body of a lease of a table with this encoding, in parts."""
    head = pb.LeaseOf(number=lease.number, deadline=lease.deadline, encoding_hash=encoding.hash)
    parts: list[Bytes] = [head.SerializeToString()]
    for item in lease.items:
        own = pb.Leased(
            slot=item.id.slot,
            generation=item.id.generation,
            is_redelivered=item.is_redelivered,
            timestamp=item.at,
        ).SerializeToString()
        chunk = framed(_LEASED_CHUNK, chunk_parts(item.chunk, encoding))
        parts += framed(_LEASE_ITEMS, [own, *chunk])
    return parts


def lease_body(lease: LeaseOf, encoding: Encoding) -> bytes:
    """The answer to a lease."""
    return b"".join(framed(_RESPONSE_LEASE, lease_parts(lease, encoding)))


def streamed_lease_body(lease: LeaseOf, encoding: Encoding) -> bytes:
    """An answer of a stream."""
    return b"".join(framed(_STREAMED_LEASE, lease_parts(lease, encoding)))


class Arrived(NamedTuple):
    """A lease whose items are not read yet: that needs the encoding of its hash."""

    head: pb.LeaseOf
    items: list[memoryview]


def arrived_of(body: Bytes) -> Arrived:
    """The lease of an answer of a stream."""
    _, leases = cut(body, _STREAMED_LEASE)
    if len(leases) != 1:
        raise ValueError(f"an answer with {len(leases)} leases")
    rest, items = cut(leases[0], _LEASE_ITEMS)
    return Arrived(parsed(pb.LeaseOf, rest), items)


def lease_of(arrived: Arrived, learner: str, encoding: Encoding) -> LeaseOf:
    """As it came; its chunks are checked, so that they can be decoded."""
    items = []
    for place, body in enumerate(arrived.items):
        path = f"lease.items[{place}].chunk"
        rest, chunks = cut(body, _LEASED_CHUNK)
        if len(chunks) != 1:
            raise ValueError(f"{path} is there {len(chunks)} times")
        chunk, own = chunk_of(chunks[0], encoding, path), parsed(pb.Leased, rest)
        with at(path):
            encoding.check(chunk)
        items.append(
            LeasedChunk(
                id=ItemId(own.slot, own.generation),
                chunk=chunk,
                is_redelivered=own.is_redelivered,
                at=own.timestamp,
            )
        )
    head = arrived.head
    return LeaseOf(learner=learner, number=head.number, items=tuple(items), deadline=head.deadline)


def resumed_of(message: pb.ResumeResponse) -> Resumed:
    """As answered."""
    return Resumed(
        next_number=message.next_number,
        redelivered=message.redelivered,
        acknowledged=message.acknowledged,
        gap=message.gap,
        is_unknown=message.is_unknown,
    )


def resumed_message(resumed: Resumed) -> pb.ResumeResponse:
    """As answered."""
    return pb.ResumeResponse(
        next_number=resumed.next_number,
        redelivered=resumed.redelivered,
        acknowledged=resumed.acknowledged,
        gap=resumed.gap,
        is_unknown=resumed.is_unknown,
    )


def transition_of(message: pb.Transition, path: str) -> Transition:
    """What an actor sends as one step."""
    for name in ("state", "next_state"):
        if getattr(message, name):
            raise ValueError(f"{path}.{name} is set; tables keep observations, so leave it empty")
    return Transition(
        env_id=message.env_id,
        episode_id=message.episode_id,
        step_number=message.step_number,
        observation=message.observation,
        action=message.action,
        next_observation=message.next_observation,
        reward=message.reward,
        done=message.done,
        priority=message.priority if message.HasField("priority") else None,
        metadata=dict(message.metadata),
    )


def transition_messages(sampled: Sampled) -> Iterable[pb.Transition]:
    """Sampled steps one by one; what has no field of its own and is one number is in the metadata."""
    columns = sampled.columns
    extras = [name for name, rows in columns.items() if name not in _FACTS and rows.ndim == 1]
    for row in range(len(sampled.slots)):
        metadata = {name: _text(columns[name][row]) for name in extras}
        metadata["lineage"], metadata["version"] = str(sampled.lineages[row]), str(sampled.versions[row])
        ended = [bool(columns[name][row]) for name in ("terminated", "truncated") if name in columns]
        message = pb.Transition(
            id=f"{sampled.slots[row]}:{sampled.generations[row]}", done=any(ended), metadata=metadata
        )
        for name in ("observation", "action", "next_observation"):
            if name in columns:
                setattr(message, name, columns[name][row].tobytes())
        if "reward" in columns:
            message.reward = float(columns["reward"][row])
        yield message


def _text(value: "np.generic") -> str:
    found = value.item()
    return str(found).lower() if isinstance(found, bool) else str(found)


def rows_message(sampled: Sampled) -> pb.Rows:
    """Sampled steps in columns."""
    return pb.Rows(
        count=len(sampled.slots),
        slots=_packed(sampled.slots, "<i8"),
        generations=_packed(sampled.generations, "<i8"),
        weights=_packed(sampled.weights, "<f4"),
        lineages=_packed(sampled.lineages, "<i8"),
        versions=_packed(sampled.versions, "<i8"),
        columns={name: rows.tobytes() for name, rows in sampled.columns.items()},
    )


def sampled_of(message: pb.SampleResponse, encoding: Encoding) -> Sampled:
    """A columnar sample, every length checked; arrays are views of the message's bytes."""
    rows = message.rows
    columns = {name: _rows(data, name, rows.count, encoding) for name, data in rows.columns.items()}
    missing = [column.name for column in encoding.columns if column.per_step and column.name not in columns]
    if missing:
        raise ValueError(f"rows.columns lack {', '.join(missing)}")
    return Sampled(
        slots=_unpacked(rows.slots, "<i8", "slots", rows.count),
        generations=_unpacked(rows.generations, "<i8", "generations", rows.count),
        weights=_unpacked(rows.weights, "<f4", "weights", rows.count),
        lineages=_unpacked(rows.lineages, "<i8", "lineages", rows.count),
        versions=_unpacked(rows.versions, "<i8", "versions", rows.count),
        columns=columns,
        available=message.total_available,
        accepted=message.accepted,
    )


def _rows(data: bytes, name: str, count: int, encoding: Encoding) -> npt.NDArray[Any]:
    if name in ("terminated", "truncated"):
        flags = _unpacked(data, "u1", f"columns.{name}", count)
        if flags.size and flags.max() > 1:
            raise ValueError(f"rows.columns.{name} has a byte that is neither 0 nor 1")
        return flags.view(np.bool_)
    column = encoding.by_name.get("observation" if name == "next_observation" else name)
    if column is None:
        raise ValueError(f"rows.columns.{name}: the encoding has none")
    if len(data) != count * column.row_bytes:
        raise ValueError(
            f"rows.columns.{name} has {len(data)} bytes; {count} rows of {column.dtype} {column.shape} have "
            f"{count * column.row_bytes}"
        )
    return np.frombuffer(data, column.numpy).reshape((count, *column.shape))


def _packed(array: npt.NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(array, dtype).tobytes()


def _unpacked(data: bytes, dtype: str, name: str, count: int) -> npt.NDArray[Any]:
    if len(data) != count * np.dtype(dtype).itemsize:
        raise ValueError(
            f"rows.{name} has {len(data)} bytes; {count} of {np.dtype(dtype).name} have "
            f"{count * np.dtype(dtype).itemsize}"
        )
    return np.frombuffer(data, dtype)


def ids_of(message: pb.UpdatePrioritiesRequest) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """Slots, generations and new priorities, equally many."""
    priorities = np.array(message.new_priorities, np.float64)
    count = len(priorities)
    if message.ids and (message.slots or message.generations):
        raise ValueError("ids and slots are set; use one of them")
    if message.ids:
        pairs = np.array([_id(text, place) for place, text in enumerate(message.ids)], np.int64).reshape(
            -1, 2
        )
        if len(pairs) != count:
            raise ValueError(f"new_priorities are {count}; ids are {len(pairs)}")
        return pairs[:, 0], pairs[:, 1], priorities
    for name in ("slots", "generations"):
        if len(getattr(message, name)) != 8 * count:
            raise ValueError(
                f"{name} has {len(getattr(message, name))} bytes; {count} new_priorities need {8 * count}"
            )
    return np.frombuffer(message.slots, "<i8"), np.frombuffer(message.generations, "<i8"), priorities


def _id(text: str, place: int) -> tuple[int, int]:
    slot, colon, generation = text.partition(":")
    if not (colon and slot.isascii() and slot.isdigit() and generation.isascii() and generation.isdigit()):
        raise ValueError(f"ids[{place}] is {text[:60]!r}; use the ids of sampled transitions")
    return min(int(slot[:19]), _MOST), min(int(generation[:19]), _MOST)


def which_of(message: pb.ClearRequest) -> Which:
    """What to remove."""
    return Which(
        env=message.env_id or None,
        before=message.before_timestamp if message.HasField("before_timestamp") else None,
        keep_last=message.keep_last if message.HasField("keep_last") else None,
        older_than=_version(message, "older_than"),
        beyond=_version(message, "beyond"),
    )


def _version(message: pb.ClearRequest, name: str) -> tuple[int, int] | None:
    found: pb.Version = getattr(message, name)
    return (found.lineage, found.number) if message.HasField(name) else None


def clear_message(table: str, which: Which) -> pb.ClearRequest:
    """To remove."""
    return pb.ClearRequest(
        table=table,
        env_id=which.env,
        before_timestamp=which.before,
        keep_last=which.keep_last,
        older_than=_version_message(which.older_than),
        beyond=_version_message(which.beyond),
    )


def _version_message(version: tuple[int, int] | None) -> pb.Version | None:
    return None if version is None else pb.Version(lineage=version[0], number=version[1])


def stats_message(tables: Sequence[TableStats]) -> pb.GetStatsResponse:
    """All tables, and their sum as the origin has it."""
    envs: dict[str, int] = {}
    for table in tables:
        for env, steps in table.envs.items():
            envs[env] = envs.get(env, 0) + steps
    return pb.GetStatsResponse(
        total_transitions=sum(table.steps for table in tables),
        total_episodes=sum(table.episodes or 0 for table in tables),
        transitions_by_env=envs,
        oldest_timestamp=_one(min, [table.oldest for table in tables]),
        newest_timestamp=_one(max, [table.newest for table in tables]),
        storage_bytes=sum(table.bytes for table in tables),
        tables=[_table_message(table) for table in tables],
    )


def _one(choose: Callable[[list[int]], int], values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


_PLAIN: Final = ("items", "steps", "bytes", "accepted", "sampled", "redelivered", "is_full")
_OPTIONAL: Final = (
    "queued", "leased", "acknowledged", "leases", "spilled_bytes", "problem", "most_items", "most_bytes",
)  # fmt: skip


def _table_message(table: TableStats) -> pb.TableStats:
    fields = {name: getattr(table, name) for name in ("name", "kind", *_PLAIN, *_OPTIONAL)}
    return pb.TableStats(removed=dict(table.removed), late=dict(table.late), **fields)


def table_of(message: pb.TableStats) -> TableStats:
    """As answered; envs and times are of all tables together, and left out."""
    fields: dict[str, Any] = {name: getattr(message, name) for name in ("name", "kind", *_PLAIN)}
    fields |= {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    return TableStats(**fields, removed=dict(message.removed), late=dict(message.late))
