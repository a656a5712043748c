"""CSV: progress.csv of Stable-Baselines3 and RLlib, metrics.csv of Lightning, whatever has a header.

Rules: the delimiter is the header's; an empty cell is absent; a row of words that differ is a new header.
"""

import csv
from collections.abc import Iterator
from typing import Final

from overwatch.follow.base import Known, Lines, Logged, number

_DELIMITERS: Final = ",;\t"


class CsvReader:
    """One file."""

    def __init__(self) -> None:
        self.known = Known()
        self._lines = Lines(self.known)
        self._columns: list[str] = []
        self._delimiter = ","

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row a line."""
        for line in self._lines.feed(data):
            if not self._columns:
                self._delimiter = max(_DELIMITERS, key=line.count)
            try:
                (cells,) = csv.reader([line], delimiter=self._delimiter)
            except (csv.Error, ValueError) as error:
                self.known.problems[f"lines that are no CSV ({error})"] += 1
                continue
            if not self._columns or _is_header(cells):
                self._columns = [cell.strip() for cell in cells]
            elif len(cells) > len(self._columns):
                self.known.problems["lines with more cells than the header has columns"] += 1
            else:
                named = zip(self._columns, map(number, cells), strict=False)
                yield Logged(values={name: value for name, value in named if name and value is not None})

    def restart(self) -> None:
        """A header comes first."""
        self._lines.restart()
        self._columns = []

    def end(self) -> None:
        """Nothing follows."""
        self._lines.end()


def _is_header(cells: list[str]) -> bool:
    """Whether a row names columns: every cell is a word, and no two are the same."""
    return all(isinstance(number(cell), str) for cell in cells) and len(set(cells)) == len(cells) > 1


def looks_like(head: bytes) -> bool:
    """Whether a file begins with a header of two columns or more."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", "replace").strip()
    cells = line.split(max(_DELIMITERS, key=line.count))
    return line.replace("\t", "").isprintable() and "�" not in line and _is_header(cells)
