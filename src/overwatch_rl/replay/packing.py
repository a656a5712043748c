"""The origin's transitions, packed into chunks at the door.

Owns how single transitions become chunks. Rules: consecutive steps of one environment, episode and version
become one chunk; a step whose observation is not the last one's next observation begins a new one. What a
transition lacks, or has for nothing, is refused by its path, never filled in. Must not know tables.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from overwatch_rl.protos.replay.v1.replay_pb2 import Transition
from overwatch_rl.replay.chunk import FINAL_OBSERVATION, Bytes, Chunk, Column, Encoding, End
from overwatch_rl.replay.selectors import checked

_VERSION = ("run", "lineage", "version")


def pack(transitions: Sequence[Transition], encoding: Encoding) -> list[Chunk]:
    """Chunks of the transitions, in order. Raises `ValueError` naming the path of what is wrong."""
    return [_chunk(transitions, start, end, encoding) for start, end in _runs(transitions)]


def priorities_of(transitions: Sequence[Transition], *, are_used: bool) -> dict[int, float]:
    """Those that transitions have, by place. Raises `ValueError` where one is none, or has no use."""
    found = {place: step.priority for place, step in enumerate(transitions) if step.HasField("priority")}
    for place, priority in found.items():
        path = f"transitions[{place}].priority"
        if not are_used:
            raise ValueError(f"{path} is set; the table's selector has no priorities, so leave it out")
        try:
            checked(np.array([priority]))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return found


def _runs(transitions: Sequence[Transition]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(transitions) + 1):
        if index == len(transitions) or not _goes_on(transitions[index - 1], transitions[index]):
            yield start, index
            start = index


def _goes_on(last: Transition, step: Transition) -> bool:
    return (
        not last.done
        and last.metadata.get("truncated") != "true"
        and (last.env_id, last.episode_id, last.step_number + 1)
        == (step.env_id, step.episode_id, step.step_number)
        and all(last.metadata.get(name) == step.metadata.get(name) for name in _VERSION)
        and last.next_observation == step.observation
    )


def _chunk(transitions: Sequence[Transition], start: int, end: int, encoding: Encoding) -> Chunk:
    steps = {f"transitions[{place}]": transitions[place] for place in range(start, end)}
    for path, step in steps.items():
        for name in ("state", "next_state"):
            if getattr(step, name):
                raise ValueError(f"{path}.{name} is set; tables keep observations, so leave it empty")
    first, last, path = transitions[start], transitions[end - 1], f"transitions[{start}]"
    why = _end(last, f"transitions[{end - 1}]")
    columns: dict[str, Bytes] = {}
    for column in encoding.columns_of(why):
        if column.name == FINAL_OBSERVATION:
            columns[column.name] = _bytes(last, "next_observation", column, f"transitions[{end - 1}]")
        elif column.per_step:
            columns[column.name] = b"".join(_value(step, column, path) for path, step in steps.items())
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
    if column.name not in ("observation", "action"):
        return _number(step, column, path)
    return _bytes(step, column.name, column, path)


def _bytes(step: Transition, name: str, column: Column, path: str) -> bytes:
    data: bytes = getattr(step, name)
    if len(data) != column.row_bytes:
        expected = f"{column.dtype} {column.shape} has {column.row_bytes}"
        raise ValueError(f"{path}.{name} has {len(data)} bytes; {expected}")
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
