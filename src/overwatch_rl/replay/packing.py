"""The origin's transitions, packed into chunks at the door.

Owns how single transitions become chunks. Rules: consecutive steps of one environment, episode and version
become one chunk; a step whose observation is not the last one's next observation begins a new one. A column
that a transition lacks is refused by its path, never filled in. Must not know the wire, nor tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import xxhash

from overwatch_rl.replay.chunk import FINAL_OBSERVATION, Bytes, Chunk, Column, Encoding, End

_BYTES: Final = ("observation", "action")
"""Columns that a transition has as bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step, as the origin's clients send it."""

    id: str = ""
    env_id: str
    episode_id: str = ""
    step_number: int = 0
    observation: bytes
    """In the dtype and shape of the encoding's `observation`."""
    action: bytes
    next_observation: bytes
    reward: float
    done: bool
    priority: float | None = None
    timestamp: int | None = None
    """Unix nanoseconds."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """`run`, `lineage`, `version`, `truncated` (true or false), and numbers of further columns by name."""


def pack(transitions: Sequence[Transition], encoding: Encoding) -> list[Chunk]:
    """Chunks of the transitions, in order. Raises `ValueError` naming the path of what is wrong."""
    return [_chunk(transitions, start, end, encoding) for start, end in _runs(transitions)]


def _runs(transitions: Sequence[Transition]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(transitions) + 1):
        if index == len(transitions) or not _goes_on(transitions[index - 1], transitions[index]):
            yield start, index
            start = index


def _goes_on(last: Transition, step: Transition) -> bool:
    named = ("run", "lineage", "version")
    return (
        not last.done
        and last.metadata.get("truncated") != "true"
        and (last.env_id, last.episode_id, last.step_number + 1)
        == (step.env_id, step.episode_id, step.step_number)
        and all(last.metadata.get(name) == step.metadata.get(name) for name in named)
        and last.next_observation == step.observation
    )


def _chunk(transitions: Sequence[Transition], start: int, end: int, encoding: Encoding) -> Chunk:
    steps, path = transitions[start:end], f"transitions[{start}]"
    first, last = steps[0], steps[-1]
    why = _end(last, f"transitions[{end - 1}]")
    columns: dict[str, Bytes] = {}
    for column in encoding.columns_of(why):
        if column.name == FINAL_OBSERVATION:
            columns[column.name] = last.next_observation
        elif column.per_step:
            columns[column.name] = b"".join(
                _value(step, column, f"transitions[{start + index}]") for index, step in enumerate(steps)
            )
        else:
            columns[column.name] = _number(first, column, path)
    return Chunk(
        run=first.metadata.get("run", "default"),
        env=first.env_id,
        episode=_episode(first.episode_id),
        first_step=first.step_number,
        steps=len(steps),
        lineage=_whole(first, "lineage", path),
        version=_whole(first, "version", path),
        end=why,
        columns=columns,
    )


def _end(step: Transition, path: str) -> End:
    truncated = step.metadata.get("truncated", "false")
    if truncated not in ("true", "false"):
        raise ValueError(f"{path}.metadata.truncated is {truncated!r}, not true or false")
    return "truncated" if truncated == "true" else "terminated" if step.done else "cut"


def _value(step: Transition, column: Column, path: str) -> bytes:
    """One row of a column."""
    if column.name == "reward":
        return np.array(step.reward, column.numpy).tobytes()
    if column.name not in _BYTES:
        return _number(step, column, path)
    data: bytes = getattr(step, column.name)
    if len(data) != column.row_bytes:
        expected = f"{column.dtype} {column.shape} has {column.row_bytes}"
        raise ValueError(f"{path}.{column.name} has {len(data)} bytes; {expected}")
    return data


def _number(step: Transition, column: Column, path: str) -> bytes:
    """A row from the metadata."""
    text = step.metadata.get(column.name)
    if text is None or column.shape:
        raise ValueError(f"{path}.metadata.{column.name} is missing: the table's encoding has this column")
    try:
        return np.array(text).astype(column.numpy).tobytes()
    except (ValueError, OverflowError):
        raise ValueError(f"{path}.metadata.{column.name} is {text!r}, no {column.dtype}") from None


def _whole(step: Transition, name: str, path: str) -> int:
    text = step.metadata.get(name, "0")
    if not text.isdecimal():
        raise ValueError(f"{path}.metadata.{name} is {text!r}, not a whole number from 0")
    return int(text)


def _episode(name: str) -> int:
    """A number is itself, any other name its hash."""
    return int(name) if name.isdecimal() and len(name) < 19 else xxhash.xxh3_64_intdigest(name.encode()) >> 1
