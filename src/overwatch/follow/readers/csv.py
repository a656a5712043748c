"""CSV: progress.csv of Stable-Baselines3 and RLlib, metrics.csv of Lightning, whatever has a header.

Rules: a record ends where the CSV format ends it, not at a line feed in a quoted cell. The delimiter is the
header's; an empty cell is absent. A row of other length than its header is left out and counted, since its
cells may be under other names. Without a header columns have numbers. A comment may hold the header (NumPy's
`savetxt`), or the time at which episodes begin (`monitor.csv` of Stable-Baselines3).
"""

import csv
import json
import re
from collections.abc import Iterator
from typing import Final

from overwatch.follow.base import CUT, MOST_BYTES, Known, Lines, Logged, number

_DELIMITERS: Final = ",;\t|"
_QUOTED: Final = re.compile(r'"[^"]*"')
_COMMA: Final = re.compile(r"[-+]?\d*,\d+(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
_DECIMAL: Final = "values with a decimal comma, which are no numbers: write them with a decimal point"
_EPISODE: Final = {"r": "return", "l": "episode_length", "t": "elapsed"}
"""Columns of `monitor.csv`."""
csv.field_size_limit(max(csv.field_size_limit(), MOST_BYTES))


class CsvReader:
    """One file."""

    def __init__(self) -> None:
        self.known = Known()
        self._lines = Lines(self.known)
        self._open: list[str] = []
        """Lines of a record whose quoted cell is not closed."""
        self._size = 0
        """Characters of them."""
        self._columns: list[str] = []
        self._delimiter = ","
        self._comment: list[str] = []
        """Cells of the newest comment before the header."""
        self._mixed: list[str] | None = None
        """The first record, where it has words and numbers: the second one shows what it is."""
        self._began_s: float | None = None
        """Unix seconds at which the episodes of `monitor.csv` begin."""

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row a record."""
        for line in self._lines.feed(data):
            cells = self._record(line)
            if cells is not None:
                yield from self._rows(cells)

    def restart(self) -> None:
        """A header comes first."""
        self._lines.restart()
        self._open, self._size, self._columns, self._comment, self._mixed = [], 0, [], [], None

    def end(self) -> list[Logged]:
        """The last record is a row where it has all cells; else it is left out, as it may be half written."""
        rest, rows = self._lines.end(), list[Logged]()
        cells = self._record(rest) if rest.strip() else None
        if self._open:
            problem = f"lines of a record that is cut off at the end: {self._start()}"
            self.known.problems[problem] += len(self._open)
        elif cells is not None and len(cells) >= len(self._columns or self._mixed or (*cells, "")):
            rows += self._rows(cells)
        elif cells is not None:
            self.known.problems[CUT] += 1
        self._open = []
        if self._mixed is not None:
            rows += self._begin(self._mixed, is_header=False)
        return rows

    def _start(self) -> str:
        return f"a quote of {self._open[0].strip()[:60]!r} is never closed"

    def _record(self, line: str) -> list[str] | None:
        """The cells of a record that this line ends; `None` where it ends none."""
        if not self._open and not line.strip():
            return None
        if not self._open and line.startswith("#"):
            self._note(line.lstrip("#").strip())
            return None
        if not self._columns and self._mixed is None:
            self._delimiter = _delimiter_of(line)
        self._open.append(line)
        self._size += len(line)
        if len(self._open) > 1 and '"' not in line and self._size <= MOST_BYTES:
            return None
        cells, is_whole = _parsed(self._open, self._delimiter)
        if self._size > MOST_BYTES and not is_whole:
            self.known.problems[f"records of more than {MOST_BYTES >> 20} MiB: {self._start()}"] += 1
            self._open, self._size = [], 0
        if not is_whole:
            return None
        self._open, self._size = [], 0
        return cells

    def _note(self, comment: str) -> None:
        """Read a comment: the beginning of `monitor.csv`, or what may be the header."""
        if comment.startswith("{"):
            try:
                began = json.loads(comment).get("t_start")
            except (ValueError, RecursionError):
                return
            self._began_s = float(began) if isinstance(began, int | float) else None
        elif not self._columns:
            self._comment, _ = _parsed([comment], _delimiter_of(comment))

    def _rows(self, cells: list[str]) -> Iterator[Logged]:
        if self._mixed is not None:
            first, self._mixed = self._mixed, None
            together = zip(first, cells, strict=False)
            is_header = any(_is_word(one) and isinstance(number(other), float) for one, other in together)
            yield from self._begin(first, is_header=is_header)
        elif not self._columns:
            words = sum(map(_is_word, cells))
            if 0 < words < sum(map(bool, map(str.strip, cells))):
                self._mixed = cells
                return
            yield from self._begin(cells, is_header=words > 0)
            return
        if _is_header(cells) and not {cell.strip() for cell in cells}.isdisjoint(self._columns):
            self._name(cells)
        else:
            yield from self._row(cells)

    def _begin(self, cells: list[str], *, is_header: bool) -> Iterator[Logged]:
        if is_header:
            self._name(cells)
            return
        if _is_header(self._comment) and len(self._comment) == len(cells):
            self._name(self._comment)
        else:
            self._columns = [f"column_{place}" for place in range(1, len(cells) + 1)]
            hint = "columns have numbers; write a first line with their names, or name them by --pattern"
            self.known.problems[f"files without a header: {hint}"] += 1
        yield from self._row(cells)

    def _name(self, cells: list[str]) -> None:
        names = [cell.strip() for cell in cells]
        while names and not names[-1]:
            names.pop()
        for place, name in enumerate(names):
            if name in names[:place]:
                self.known.problems[f"columns with the name of another one: {name!r}"] += 1
                names[place] = f"{name}_{names[: place + 1].count(name)}"
        is_monitor = self._began_s is not None and set(_EPISODE) <= set(names)
        self._columns = [_EPISODE.get(name, name) for name in names] if is_monitor else names

    def _row(self, cells: list[str]) -> Iterator[Logged]:
        while len(cells) > len(self._columns) and not cells[-1].strip():
            del cells[-1]
        if len(cells) != len(self._columns):
            than = "shorter" if len(cells) < len(self._columns) else "longer"
            self.known.problems[f"rows that are {than} than the header: left out"] += 1
            return
        named = zip(self._columns, map(number, cells), strict=True)
        values = {name: value for name, value in named if name and value is not None}
        if self._delimiter != ",":
            commas = sum(
                isinstance(one, str) and _COMMA.fullmatch(one) is not None for one in values.values()
            )
            self.known.problems.update({_DECIMAL: commas} if commas else {})
        since = values.get("elapsed")
        if self._began_s is not None and isinstance(since, float):
            yield Logged(values=values, at=self._began_s + since)
        elif values:
            yield Logged(values=values)


def _delimiter_of(line: str) -> str:
    return max(_DELIMITERS, key=_QUOTED.sub("", line).count)


def _parsed(lines: list[str], delimiter: str) -> tuple[list[str], bool]:
    """Cells of the record that these lines begin, and whether it ends with them."""
    is_whole = True

    def given() -> Iterator[str]:
        """Yield the lines; note when a parser asks for more than there are."""
        nonlocal is_whole
        yield from lines
        is_whole = False

    cells = next(csv.reader(given(), delimiter=delimiter, skipinitialspace=True), [])
    return cells, is_whole


def _is_word(cell: str) -> bool:
    return isinstance(number(cell), str)


def _is_header(cells: list[str]) -> bool:
    """Whether a row names columns: every cell is a word, and no two are the same."""
    return all(map(_is_word, cells)) and len(set(cells)) == len(cells) > 1


def looks_like(head: bytes) -> bool:
    """Whether a file begins with a header of two columns or more."""
    lines = re.split("[\r\n]+", head.decode("utf-8-sig", "replace"))
    line = next((line.strip() for line in lines if not line.startswith("#{")), "")
    cells = line.split(max(_DELIMITERS, key=line.count))
    return line.replace("\t", "").isprintable() and "�" not in line and _is_header(cells)
