"""Where the subjects of a record are in the tables, remembered: most records are about the same subjects.

Rules: what is remembered is derived, so it is no part of a checkpoint, and is forgotten when rows move. Rows
one after another are a slice, and a whole block of slots is a rectangle, which fold several times faster.
Must not know what is folded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from overwatch.events import Column
from overwatch.state.arrays import Derived, Floats, Ints

Rows: TypeAlias = slice | Ints
"""Rows of a table: each once, or, as an array, in any order."""
Mask: TypeAlias = npt.NDArray[np.bool_]

Codes: TypeAlias = tuple[int, ...]
"""The run's own number of each label of a column."""

Found = TypeVar("Found", "At", "Cells")

MOST: Final = 128
"""Sets of subjects remembered."""
TIMES: Final = 32
"""Subjects of them all together, for each env that is there: what is remembered grows with the run alone."""
_WHOLE: Final = 2.0**53
"""Size up to which a double keeps whole numbers apart."""


@dataclass(frozen=True, slots=True)
class At:
    """The envs of one record."""

    rows: Ints
    """Row of each, shape (k,)."""
    span: Rows
    """The same, as a slice where they follow one another."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The slots of one record, as cells of the grid (env × slot)."""

    rows: Ints
    slots: Ints
    span: Rows
    """Rows, each once where `width` is not 0."""
    width: int = 0
    """First slots of each row, where the record names just these, env by env; else 0."""

    def of(self, grid: np.ndarray) -> np.ndarray:
        """The values of these cells, shape (k,)."""
        return grid[self.span, : self.width].reshape(-1) if self.width else grid[self.rows, self.slots]

    def put(self, grid: np.ndarray, values: np.ndarray) -> None:
        """Set these cells, to values of shape (k,)."""
        if self.width:
            grid[self.span, : self.width] = values.reshape(-1, self.width)
        else:
            grid[self.rows, self.slots] = values

    def clear(self, grid: Floats, where: Mask) -> None:
        """Set those of these cells to NaN where the mask of shape (k,) is true."""
        if self.width:
            grid[self.span, : self.width][where.reshape(-1, self.width)] = np.nan
        else:
            grid[self.rows[where], self.slots[where]] = np.nan


class Places(Derived):
    """The newest sets of subjects, by the columns that name them, and the rows of each lane."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[tuple[object, ...], At | Cells]] = {}
        self._subjects = 0
        self._by_lane: dict[int, Rows] = {}

    def forget(self) -> None:
        """Rows have moved, or there are more of them."""
        self._known, self._subjects, self._by_lane = {}, 0, {}

    def lanes_changed(self) -> None:
        """Some env is on another lane than before."""
        self._by_lane = {}

    def envs(self, column: Column, find: Callable[[], Ints], there: int) -> At:
        """The envs of a column of ids; `find` gives the row of each, `there` are in all."""
        key, told = _key(column), (column.dtype, column.data)
        known = self._known.get(key)
        if known is not None and known[0] == told and isinstance(known[1], At):
            return known[1]
        rows = find()
        return self._keep(key, told, At(rows, span_of(rows)), there)

    def holds(self, column: Column) -> bool:
        """Whether the envs of this column of ids are remembered."""
        known = self._known.get(_key(column))
        return known is not None and known[0] == (column.dtype, column.data)

    def slots(
        self, column: Column, slots: Column, codes: Codes, find: Callable[[], Ints], there: int
    ) -> Cells:
        """The cells of a column of ids and one of slots, whose words have these codes."""
        key = (*_key(column), *_key(slots))
        told = (column.dtype, column.data, slots.dtype, slots.data, codes)
        known = self._known.get(key)
        if known is not None and known[0] == told and isinstance(known[1], Cells):
            return known[1]
        return self._keep(key, told, _cells(find(), looked_up(slots, codes)), there)

    def lanes(self, lane: Ints) -> dict[int, Rows]:
        """Rows of each lane, where `lane` is the one of each row."""
        if not self._by_lane:
            codes = np.unique(lane).tolist()
            self._by_lane = {code: span_of(np.flatnonzero(lane == code)) for code in codes}
        return self._by_lane

    def _keep(self, key: tuple[object, ...], told: tuple[object, ...], found: Found, there: int) -> Found:
        if len(self._known) >= MOST or self._subjects + found.rows.size > TIMES * there:
            self.forget()
        self._known[key] = told, found
        self._subjects += found.rows.size
        return found


def ids_in(column: Column) -> Ints:
    """The ids in a column, shape (k,); raises `ValueError` where one is not a whole number of 64 bits."""
    told = column.array()
    if told.dtype.kind != "f":
        return told.astype(np.int64)
    if not ((np.abs(told) < _WHOLE) & (told == np.floor(told))).all():
        raise ValueError("an env id is not a whole number")
    return told.astype(np.int64)


def looked_up(column: Column, codes: Codes) -> Ints:
    """The run's own number of each word of a column, shape (k,); -1 where absent."""
    table = np.array([*codes, -1], dtype=np.int64)
    found: Ints = table.take(column.array(), mode="wrap")
    return found


def num_of(rows: Rows) -> int:
    """How many rows these are."""
    return rows.stop - rows.start if isinstance(rows, slice) else int(rows.size)


def span_of(rows: Ints) -> Rows:
    """A slice of these rows where they follow one another."""
    if not rows.size or int(rows[-1]) - int(rows[0]) != rows.size - 1 or (np.diff(rows) != 1).any():
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def first_seen(lanes: Ints) -> list[int]:
    """Each lane once, in the order in which they come first."""
    if not lanes.size:
        return []
    order = np.full(int(lanes.max()) + 2, lanes.size)
    # Of equal places the last write stays, so the last to be written has to come first.
    order[lanes[::-1] + 1] = np.arange(lanes.size - 1, -1, -1)
    seen = np.flatnonzero(order < lanes.size)
    found: list[int] = (seen[np.argsort(order[seen], kind="stable")] - 1).tolist()
    return found


def _cells(rows: Ints, slots: Ints) -> Cells:
    width = int(slots.max(initial=-1)) + 1
    if width < 1 or rows.size % width:
        return Cells(rows, slots, rows)
    by_env = rows.reshape(-1, width)
    whole = (slots.reshape(-1, width) == np.arange(width)).all() and (by_env == by_env[:, :1]).all()
    span = span_of(by_env[:, 0].copy())
    if not whole or not isinstance(span, slice):
        return Cells(rows, slots, rows)
    return Cells(rows, slots, span, width)


def _key(column: Column) -> tuple[object, ...]:
    """A short name of a column; two columns may have the same."""
    data = column.data
    return len(data), data[:16], data[-16:]
