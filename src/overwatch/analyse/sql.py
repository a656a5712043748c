"""SQL over the tables of an export: metrics, findings, events and envs of all runs of a path.

Owns nothing of what the tables hold: they are those that `export` writes, by way of its CSV. Only tables that
the statement names are made, all where it names none. DuckDB is an extra.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from overwatch.analyse.export import TABLES, columns, write_csv
from overwatch.analyse.rows import csv_line
from overwatch.analyse.run_history import AnalyseError, RunHistory
from overwatch.extras import SQL

Rows: TypeAlias = Sequence[tuple[Any, ...]]

_KINDS: Final[dict[type, str]] = {str: "VARCHAR", float: "DOUBLE", int: "BIGINT"}


def needs_facts(statement: str) -> bool:
    """Whether the tables of a statement are made of what producers sent, not of snapshots alone."""
    return "events" in _named(statement)


def answer(histories: Sequence[RunHistory], statement: str) -> tuple[tuple[str, ...], Rows]:
    """Columns and rows of a statement; raises `AnalyseError` with DuckDB's message, or where it lacks."""
    try:
        import duckdb
    except ImportError as error:
        raise AnalyseError(SQL.need) from error
    with tempfile.TemporaryDirectory(prefix="overwatch-sql-") as scratch, duckdb.connect() as base:
        # What is not installed is not fetched: a query never waits for a network.
        base.execute("SET autoinstall_known_extensions = false")
        for table in _named(statement):
            file = Path(scratch) / f"{table}.csv"
            with file.open("w", encoding="utf-8", newline="") as out:
                write_csv(out, histories, table, is_guarded=False)
            kinds = {name: _KINDS[kind] for name, kind in columns(table).items()}
            how = f"header = true, columns = {kinds}, delim = ',', quote = '\"', escape = '\"'"
            made = f"CREATE TABLE {table} AS SELECT * FROM read_csv(?, {how})"  # noqa: S608 names of ours
            base.execute(made, [str(file)])
        try:
            done = base.execute(statement)
            names = tuple(one[0] for one in done.description or ())
            return names, done.fetchall() if names else []
        except duckdb.Error as error:
            raise AnalyseError(f"--sql: {error}") from error


def _named(statement: str) -> tuple[str, ...]:
    found = tuple(table for table in TABLES if re.search(rf"\b{table}\b", statement, re.IGNORECASE))
    return found or TABLES


def as_text(names: Sequence[str], rows: Rows) -> Iterator[str]:
    """The rows as text in columns, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    right = [
        all(value is None or isinstance(value, int | float) for value in column)
        for column in zip(*rows, strict=True)
    ] or [False] * len(names)
    for row in (list(names), *cells):
        shown = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, right, strict=True)
        )
        yield "  ".join(shown).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "".join(one if one.isprintable() else " " for one in text)


def as_csv(names: Sequence[str], rows: Rows) -> Iterator[str]:
    """A header, then a line each."""
    yield csv_line(names)
    yield from (csv_line(map(_plain, row)) for row in rows)


def as_json(names: Sequence[str], rows: Rows) -> Iterator[str]:
    """An object a line."""
    for row in rows:
        yield msgspec.json.encode(dict(zip(names, map(_plain, row), strict=True))).decode()


def _plain(value: object) -> str | int | float | None:
    """A value as JSON and CSV have it; a date, a list and the like as text."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


FORMATS: Final = {"text": as_text, "json": as_json, "csv": as_csv}
"""How an answer is written."""
