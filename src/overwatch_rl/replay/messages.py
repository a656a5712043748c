"""Between messages of `replay.v1` and what the tables take and give.

Rules: what a message lacks or has wrongly is a `ValueError` that begins with its path in the request; nothing
is filled in. The bytes of columns are not read here: the encoding of a table checks them. Must not know
calls, nor gRPC.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError, Message

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.base import ItemId, LeasedChunk, LeaseOf, Sampled, TableStats
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, End

Ints = npt.NDArray[np.int64]

_ENDS: Final[Mapping[int, End]] = MappingProxyType(
    {pb.END_TERMINATED: "terminated", pb.END_TRUNCATED: "truncated", pb.END_CUT: "cut"}
)
_NUMBERS: Final[Mapping[End, Any]] = MappingProxyType({end: number for number, end in _ENDS.items()})
"""Enumerations are plain numbers at run time."""
_PLACE: Final = ("run", "env", "episode", "first_step", "steps", "lineage", "version")
"""Fields of a chunk that are as in its message."""
_FACTS: Final = ("reward", "observation", "action", "next_observation", "terminated")
"""Columns of a sample that a transition has fields for."""
_MOST: Final = (1 << 63) - 1

M = TypeVar("M", bound=Message)


def parsed(kind: type[M], body: bytes) -> M:
    """A message; `ValueError` where the bytes are none."""
    try:
        return kind.FromString(body)
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


def chunk_of(message: pb.Chunk, encoding: Encoding, path: str) -> Chunk:
    """A chunk whose columns have names, and nothing else checked."""
    end = _ENDS.get(message.end)
    if end is None:
        raise ValueError(f"{path}.end is {message.end}; it is 1 (terminated), 2 (truncated) or 3 (cut)")
    names = [column.name for column in encoding.columns_of(end)]
    if len(message.columns) != len(names):
        raise ValueError(
            f"{path}.columns are {len(message.columns)}; {end} chunks have {len(names)}: {', '.join(names)}"
        )
    place = {name: getattr(message, name) for name in _PLACE}
    return Chunk(**place, end=end, columns=dict(zip(names, message.columns, strict=True)))


def chunk_message(chunk: Chunk, encoding: Encoding) -> pb.Chunk:
    """Of a chunk of this encoding."""
    return pb.Chunk(
        **{name: getattr(chunk, name) for name in _PLACE},
        end=_NUMBERS[chunk.end],
        columns=[bytes(chunk.columns[column.name]) for column in encoding.columns_of(chunk.end)],
    )


def lease_message(lease: LeaseOf, encoding: Encoding) -> pb.LeaseOf:
    """Of a lease of a table with this encoding."""
    items = [
        pb.Leased(
            slot=item.id.slot,
            generation=item.id.generation,
            is_redelivered=item.is_redelivered,
            timestamp=item.at,
            chunk=chunk_message(item.chunk, encoding),
        )
        for item in lease.items
    ]
    return pb.LeaseOf(number=lease.number, deadline=lease.deadline, encoding_hash=encoding.hash, items=items)


def lease_of(message: pb.LeaseOf, learner: str, encoding: Encoding) -> LeaseOf:
    """As it came; its chunks are checked, so that they can be decoded."""
    items = []
    for place, item in enumerate(message.items):
        path = f"lease.items[{place}].chunk"
        chunk = chunk_of(item.chunk, encoding, path)
        with at(path):
            encoding.check(chunk)
        items.append(
            LeasedChunk(
                id=ItemId(item.slot, item.generation),
                chunk=chunk,
                is_redelivered=item.is_redelivered,
                at=item.timestamp,
            )
        )
    return LeaseOf(learner=learner, number=message.number, items=tuple(items), deadline=message.deadline)


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
_OPTIONAL: Final = ("queued", "leased", "acknowledged", "leases", "most_items", "most_bytes")


def _table_message(table: TableStats) -> pb.TableStats:
    fields = {name: getattr(table, name) for name in ("name", "kind", *_PLAIN, *_OPTIONAL)}
    return pb.TableStats(removed=dict(table.removed), late=dict(table.late), **fields)


def table_of(message: pb.TableStats) -> TableStats:
    """As answered; envs and times are of all tables together, and left out."""
    fields: dict[str, Any] = {name: getattr(message, name) for name in ("name", "kind", *_PLAIN)}
    fields |= {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    return TableStats(**fields, removed=dict(message.removed), late=dict(message.late))
