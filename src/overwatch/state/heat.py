"""Envs and lanes over the whole run: how bad each was at its worst in each column of time, a byte a cell.

Owns how it stays bounded: where all columns are taken each two of them become one, so that they reach from
the first judgement to the newest at any length; a run with more envs has fewer of them. Envs that were
removed keep their row until there are more of them than of those that are there; then the ones that left
first go. Rules: time is the run's own, as of the clock of the data; where that leaps, what was true before
holds on. A cell that is better known wins over one that is not. Pure. Must not know what makes an env stand
out, or who asks.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.catalog.bounds import ROWS
from overwatch.state.arrays import Derived, Floats, Ints, decode_hook, encode_hook, grown, ints

Cells: TypeAlias = npt.NDArray[np.uint8]

COLUMNS: Final = 512
"""Most of a run of up to 16,384 envs; a power of two."""
FEWEST: Final = 64
"""Of the largest run; a power of two."""
BYTES: Final = 8 << 20
"""Most that the cells of one run's envs, or lanes, take."""
MOST_ROWS: Final = BYTES // FEWEST
SECOND_NS: Final = 1_000_000_000
LEAST_GONE: Final = 64
"""Removed envs that keep their row however few there are."""
MOST_LANES: Final = 1024

ABSENT: Final = 0
UNKNOWN: Final = 1
CALM: Final = 2
"""Of an env of which nothing is wrong; the score's whole parts come after it."""
HIGHEST: Final = 9
"""Scores above 8 are one."""
CRASHED: Final = CALM + HIGHEST + 1

VERDICTS: Final = MappingProxyType({row.state.value: len(ROWS) - place for place, row in enumerate(ROWS)})
"""Code of each verdict on a lane; those that are tried first are the highest."""
MARKS: Final = ("", "!", "!!")
BY_MARK: Final = 1 << len(ROWS).bit_length()
"""Added for each step of the mark: what is marked is worse than what is not, whatever the verdict."""


class Scored(NamedTuple):
    """The envs of a run at one judgement."""

    ids: Ints
    """Their ids, shape (n,)."""
    moved: int
    """Another number where they are others, or others' rows."""
    scores: Floats
    """Their anomaly scores, shape (n,); the same array for as long as nothing stands out."""
    crashed: Ints
    """Rows of those that crashed."""
    is_known: bool
    """Whether that is true now: not where nothing is received any more."""


def levels(scores: Floats, crashed: Ints, *, is_known: bool) -> Cells:
    """Cells of envs, shape (n,)."""
    if not is_known:
        return np.full(scores.size, UNKNOWN, dtype=np.uint8)
    cells = np.full(scores.size, CALM, dtype=np.uint8)
    hit = np.flatnonzero(scores)
    cells[hit] += np.ceil(np.fmin(scores[hit], HIGHEST)).astype(np.uint8)
    cells[crashed] = CRASHED
    return cells


class Grid(msgspec.Struct, kw_only=True):
    """Rows over time. The cells have room for more rows and columns than are in use."""

    since: int = 0
    """When the first column begins, Unix nanoseconds."""
    step: int = SECOND_NS
    """How long each is."""
    used: int = 0
    """Columns in use..."""
    n: int = 0
    """...and rows."""
    cells: Cells = msgspec.field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint8))
    """Column by column, shape (≥ used, ≥ n)."""
    newest: Cells = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """What each row was last, shape (n,)."""

    @property
    def shown(self) -> Cells:
        """The cells in use."""
        return self.cells[: self.used, : self.n]

    def place(self, now: int) -> int:
        """The column of a time; not before the newest one."""
        return max(self.used - 1, (now - self.since) // self.step)

    def take(self, now: int, codes: Cells) -> None:
        """What each row is at `now`, the worst of its column; the columns between hold what was before."""
        if not self.used:
            self.since = now // SECOND_NS * SECOND_NS
        most = _most(self.cells.shape[1])
        while self.place(now) >= most:
            self._halve()
        place, used = self.place(now), self.used
        if place >= self.cells.shape[0]:
            wide = min(most, max(2 * self.cells.shape[0], place + 1, 16))
            self.cells = grown(self.cells, (wide, self.cells.shape[1]), ABSENT)
        self.cells[used:place, : self.n] = self.newest
        self.used = place + 1
        column = self.cells[place, : self.n]
        np.maximum(column, codes, out=column)
        self.newest = codes

    def add(self, rows: int) -> None:
        """Rows that were not there before."""
        need = self.n + rows
        if need > self.cells.shape[1]:
            tall = max(need, min(2 * self.n, MOST_ROWS))
            most = _most(tall)
            while self.used > most:
                self._halve()
            self.cells = grown(self.cells, (min(self.cells.shape[0], most), tall), ABSENT)
        self.newest, self.n = grown(self.newest, (need,), ABSENT), need

    def keep(self, kept: Ints) -> None:
        """Let go of all other rows."""
        self.cells, self.newest, self.n = self.cells[:, kept], self.newest[kept], kept.size

    def last_there(self) -> Ints:
        """The last column of each row that holds something, shape (n,)."""
        found: Ints = self.used - 1 - np.argmax(self.shown[::-1] > ABSENT, axis=0)
        return found

    def _halve(self) -> None:
        used = self.used - self.used % 2
        half = np.maximum(self.cells[0:used:2], self.cells[1:used:2])
        self.cells[: used // 2] = half
        if used < self.used:
            self.cells[used // 2] = self.cells[used]
        self.used = (self.used + 1) // 2
        self.cells[self.used :] = ABSENT
        self.step *= 2


def _most(rows: int) -> int:
    """Columns that there may be, with room for so many rows."""
    most = COLUMNS
    while most > FEWEST and most * rows > BYTES:
        most //= 2
    return most


class _Seats(Derived):
    """Which row of the grid each env of the run's table has, and what was taken last."""

    def __init__(self) -> None:
        self.taken: Scored | None = None
        self.rows: Ints = ints(0)

    def is_same(self, scored: Scored) -> bool:
        """Whether nothing is new in it."""
        before = self.taken
        return (
            before is not None
            and before.scores is scored.scores
            and (before.moved, before.is_known) == (scored.moved, scored.is_known)
        )


class Heat(msgspec.Struct):
    """The whole of one run."""

    envs: Grid = msgspec.field(default_factory=Grid)
    ids: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Env of each row, shape (n,)."""
    let_go: int = 0
    """Rows of removed envs that went."""
    lanes: Grid = msgspec.field(default_factory=Grid)
    names: list[str] = []
    """Lane of each row."""
    second: int = -1
    """When lanes were taken last, by the clock of the data."""
    seats: _Seats = msgspec.field(default_factory=_Seats)

    @property
    def size(self) -> int:
        """What it takes in memory."""
        return self.envs.cells.nbytes + self.lanes.cells.nbytes + 16 * self.ids.size

    def take_envs(self, now: int, scored: Scored) -> None:
        """How all envs are that are there."""
        seats = self.seats
        if seats.is_same(scored) and self.envs.place(now) < self.envs.used:
            return
        if seats.taken is None or seats.taken.moved != scored.moved:
            self._seat(scored.ids)
        seats.taken = scored
        codes = np.zeros(self.envs.n, dtype=np.uint8)
        codes[seats.rows] = levels(scored.scores, scored.crashed, is_known=scored.is_known)
        self.envs.take(now, codes)

    def is_due(self, now: int) -> bool:
        """Whether lanes are to be taken: at the first judgement of each second."""
        return now // SECOND_NS != self.second

    def take_lanes(self, now: int, verdicts: Mapping[str, tuple[str, str]]) -> None:
        """What holds each lane back, and how that is marked."""
        self.second = now // SECOND_NS
        if not verdicts and not self.names:
            return
        new = [name for name in verdicts if name not in self.names][: MOST_LANES - len(self.names)]
        if new:
            self.names += new
            self.lanes.add(len(new))
        codes = [_code(*verdicts[name]) if name in verdicts else ABSENT for name in self.names]
        self.lanes.take(now, np.array(codes, dtype=np.uint8))

    def _seat(self, ids: Ints) -> None:
        """Give a row to each of these envs."""
        new = np.setdiff1d(ids, self.ids)
        if new.size:
            self._make_room(ids, new.size)
            self.ids = np.concatenate([self.ids, new])
            self.envs.add(new.size)
        order = np.argsort(self.ids, kind="stable")
        self.seats.rows = order[np.searchsorted(self.ids, ids, sorter=order)]

    def _make_room(self, ids: Ints, coming: int) -> None:
        """Let go of half of the removed envs where they are too many, those that left first."""
        gone = np.flatnonzero(~np.isin(self.ids, ids))
        most = min(max(LEAST_GONE, ids.size), MOST_ROWS - ids.size)
        if gone.size <= most and self.ids.size + coming <= MOST_ROWS:
            return
        newest_last = gone[np.argsort(self.envs.last_there()[gone], kind="stable")]
        leaving = newest_last[: gone.size - most // 2]
        kept = np.delete(np.arange(self.ids.size), leaving)
        self.let_go += leaving.size
        self.ids = self.ids[kept]
        self.envs.keep(kept)

    def dump(self) -> bytes:
        """All of it as bytes, without the room."""
        grids = (_trimmed(self.envs), _trimmed(self.lanes))
        kept = Heat(grids[0], self.ids, self.let_go, grids[1], self.names, self.second)
        return msgspec.msgpack.encode(kept, enc_hook=encode_hook)

    @classmethod
    def load(cls, data: bytes) -> "Heat":
        """That of `dump`'s bytes; an empty one of none. Raises `ValueError` on anything else."""
        return _decoder.decode(data) if data else cls()


_decoder: Final = msgspec.msgpack.Decoder(Heat, dec_hook=decode_hook)


def _code(verdict: str, mark: str) -> int:
    """The cell of a verdict; one that is not known counts as `unknown`."""
    return VERDICTS.get(verdict, 1) + (BY_MARK * MARKS.index(mark) if mark in MARKS else 0)


def _trimmed(grid: Grid) -> Grid:
    return msgspec.structs.replace(grid, cells=grid.shown)
