"""Chunks: consecutive steps of one environment and one version, one block of bytes a column.

Owns what a chunk knows of itself, the encoding that gives its bytes a meaning, and the check of both. Rules:
every length is checked before anything is read; what is missing is refused by name and never filled in;
decoding copies nothing. A chunk never crosses the end of an episode nor a change of version. Must not know
tables, nor who sent it.
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

End: TypeAlias = Literal["terminated", "truncated", "cut"]
"""Why a chunk has no further step: the episode terminated, was truncated, or goes on in the next chunk."""
Bytes: TypeAlias = bytes | bytearray | memoryview
Array: TypeAlias = npt.NDArray[Any]

ENDS: Final = get_args(End)
FINAL_OBSERVATION: Final = "final_observation"
"""The observation after the last step: one row, there unless the episode terminated."""
DTYPES: Final = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)
"""What a column's values may be; little-endian."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_COLUMNS: Final = 64
_MOST_DIMENSIONS: Final = 8
_MOST_ROW_BYTES: Final = 1 << 30
_MOST: Final = 1 << 63


class Column(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """One kind of value of a chunk."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    """Of one row."""
    per_step: bool = True
    """Whether there is one row a step; else one a chunk."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"column {self.name!r}: a name is a-z, then up to 63 of a-z, 0-9 and _")
        if self.dtype not in DTYPES:
            raise ValueError(f"column {self.name!r}: dtype {self.dtype!r} is none of {', '.join(DTYPES)}")
        if len(self.shape) > _MOST_DIMENSIONS or any(size < 1 for size in self.shape):
            raise ValueError(f"column {self.name!r}: shape {self.shape} is not up to 8 sizes of 1 or more")
        if self.row_bytes > _MOST_ROW_BYTES:
            raise ValueError(
                f"column {self.name!r}: a row of {self.row_bytes} bytes; at most {_MOST_ROW_BYTES}"
            )

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The type of one value as it lies in memory."""
        return np.dtype(self.dtype).newbyteorder("<")

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.numpy.itemsize * math.prod(self.shape)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steps of one environment that one version acted in."""

    run: str
    env: str
    episode: int
    first_step: int
    """Number of its first step in the episode, from 0."""
    steps: int
    lineage: int
    version: int
    """The number of the acting version in its lineage."""
    end: End
    columns: Mapping[str, Bytes]

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        return sum(memoryview(data).nbytes for data in self.columns.values())


class Encoding(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """What the bytes of a chunk mean: its columns in order."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not 1 <= len(names) <= _MOST_COLUMNS:
            raise ValueError(f"an encoding has 1 to {_MOST_COLUMNS} columns, not {len(names)}")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"an encoding names each column once, not {', '.join(twice)} twice")
        if not any(column.per_step for column in self.columns):
            raise ValueError("an encoding needs a column with one row a step")
        final, observation = self.by_name.get(FINAL_OBSERVATION), self.by_name.get("observation")
        if final is not None and (
            observation is None
            or final.per_step
            or (final.dtype, final.shape) != (observation.dtype, observation.shape)
        ):
            raise ValueError(f"{FINAL_OBSERVATION} is one row a chunk, of the dtype and shape of observation")

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def hash(self) -> str:
        """The same for the same columns in the same order, and for nothing else."""
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(self, order="sorted"))

    @cached_property
    def step_bytes(self) -> int:
        """Bytes of one step."""
        return sum(column.row_bytes for column in self.columns if column.per_step)

    @cached_property
    def _terminated(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name != FINAL_OBSERVATION)

    def columns_of(self, end: End) -> tuple[Column, ...]:
        """The columns of a chunk with this end."""
        return self._terminated if end == "terminated" else self.columns

    def check(self, chunk: Chunk) -> None:
        """Raise `ValueError`, naming what is wrong and what was expected, where a chunk is not of this."""
        _check_header(chunk)
        expected = self.columns_of(chunk.end)
        for column in expected:
            data = chunk.columns.get(column.name)
            if data is None:
                raise ValueError(f"column {column.name!r} of a chunk of {chunk.env!r} is missing")
            _check_length(column, data, chunk.steps)
        if len(chunk.columns) > len(expected):
            name = next(iter(chunk.columns.keys() - {column.name for column in expected}))
            why = "an episode that terminated has none" if name in self.by_name else "the encoding has none"
            raise ValueError(f"column {name!r} of a chunk of {chunk.env!r}: {why}")

    def decode(self, chunk: Chunk) -> dict[str, Array]:
        """Arrays over the chunk's own bytes. Raises `ValueError` as `check` does."""
        self.check(chunk)
        return {
            column.name: np.frombuffer(chunk.columns[column.name], column.numpy).reshape(
                (chunk.steps, *column.shape) if column.per_step else column.shape
            )
            for column in self.columns_of(chunk.end)
        }


def encode(columns: Mapping[str, Array], encoding: Encoding) -> dict[str, Bytes]:
    """The bytes of arrays, which are copied only where they are not contiguous or of another byte order.

    Raises `ValueError` where an array's type is not that of its column: nothing is converted silently.
    """
    encoded: dict[str, Bytes] = {}
    for name, array in columns.items():
        column = encoding.by_name.get(name)
        if column is None:
            raise ValueError(f"column {name!r}: the encoding has none")
        shape = array.shape[1:] if column.per_step else array.shape
        if array.dtype.newbyteorder("<") != column.numpy or shape != column.shape:
            expected = f"{column.dtype} {column.shape}"
            raise ValueError(f"column {name!r} has rows of {array.dtype} {shape}, the encoding {expected}")
        encoded[name] = np.ascontiguousarray(array, column.numpy).reshape(-1).view(np.uint8).data
    return encoded


def _check_header(chunk: Chunk) -> None:
    if not chunk.run or not chunk.env:
        raise ValueError(f"{'env' if chunk.run else 'run'} of a chunk is empty")
    if chunk.end not in ENDS:
        raise ValueError(f"end of a chunk of {chunk.env!r} is {chunk.end!r}, none of {', '.join(ENDS)}")
    numbers = (chunk.episode, chunk.first_step, chunk.steps - 1, chunk.lineage, chunk.version)
    if min(numbers) < 0 or max(numbers) >= _MOST:
        for name, least in {"episode": 0, "first_step": 0, "steps": 1, "lineage": 0, "version": 0}.items():
            value = getattr(chunk, name)
            if not least <= value < _MOST:
                raise ValueError(f"{name} of a chunk of {chunk.env!r} is {value}, not {least} to 2^63 - 1")


def _check_length(column: Column, data: Bytes, steps: int) -> None:
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError(f"column {column.name!r}: its bytes are not contiguous")
    expected = column.row_bytes * (steps if column.per_step else 1)
    if view.nbytes != expected:
        rows = f"{steps} steps of {column.dtype} {column.shape}" if column.per_step else "one row"
        raise ValueError(f"column {column.name!r} has {view.nbytes} bytes; {rows} have {expected}")
    if column.dtype == "bool" and np.frombuffer(view, np.uint8).max() > 1:
        raise ValueError(f"column {column.name!r} of bool has a byte that is neither 0 nor 1")
