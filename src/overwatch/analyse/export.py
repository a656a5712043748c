"""A run in the formats of other programs: tables as CSV or Parquet, OpenMetrics, TensorBoard.

Owns which formats there are and what each is made of. A file is there whole or not at all. Must not know how
a format is written in bytes where a file beside this one does.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

import msgspec

from overwatch.analyse.openmetrics import openmetrics
from overwatch.analyse.rows import Row, rows
from overwatch.analyse.samples import samples, series
from overwatch.analyse.separated import Value, csv_line
from overwatch.analyse.source import AnalyseError
from overwatch.analyse.story import Story
from overwatch.analyse.tensorboard import write_events
from overwatch.analyse.whole import whole
from overwatch.extras import PARQUET

FORMATS: Final = ("csv", "parquet", "openmetrics", "tensorboard")
TABLES: Final = ("metrics", "findings", "events", "envs")
_METRICS: Final = MappingProxyType[str, type](
    {
        "run": str, "metric": str, "unit": str, "gpu": str, "time": float, "at": float, "update": float,
        "steps": float, "value": float,
    }
)  # fmt: skip
"""Columns of numbers."""
_ROWS: Final = MappingProxyType[str, type](
    {
        "run": str, "what": str, "at": float, "time": str, "lasted": float, "severity": str, "kind": str,
        "status": str, "env": int, "gpu": str, "slot": str, "seed": str, "update": int, "score": float,
        "text": str, "hint": str, "fields": str,
    }
)  # fmt: skip
"""Columns of findings, events and envs; fields are JSON."""


def export(story: Story, fmt: str, out: Path, table: str = "metrics") -> int:
    """Write one run; returns how many values or rows there are. Raises `AnalyseError`."""
    if fmt not in FORMATS:
        raise AnalyseError(f"{fmt!r} is no format; use one of {', '.join(FORMATS)}")
    if table not in TABLES:
        raise AnalyseError(f"{table!r} is no table; use one of {', '.join(TABLES)}")
    if table != "metrics" and fmt not in ("csv", "parquet"):
        raise AnalyseError(f"{fmt} holds metrics only; write {table} as csv or parquet")
    if fmt == "tensorboard":
        return write_events(story, out)
    if fmt == "parquet":
        return _parquet(story, out, table)
    with _text(out) as file:
        if fmt == "openmetrics":
            return _lines(file, openmetrics(story))
        return write_csv(file, [story], table)


@contextmanager
def _text(out: Path) -> Iterator[IO[str]]:
    """A text file; `-` is standard output."""
    if str(out) == "-":
        yield sys.stdout
        return
    with whole(out) as part, part.open("w", encoding="utf-8", newline="") as file:
        yield file


def _lines(file: IO[str], lines: Iterator[tuple[str, bool]]) -> int:
    values = 0
    for line, is_value in lines:
        file.write(line + "\n")
        values += is_value
    return values


def write_csv(file: IO[str], stories: Iterable[Story], table: str, *, is_guarded: bool = True) -> int:
    """A header, then a line a row; what is missing is empty. `is_guarded` is for spreadsheets."""
    file.write(csv_line(columns(table)) + "\n")
    count = 0
    for row in (row for story in stories for row in _table(story, table)):
        file.write(csv_line(row, is_guarded=is_guarded) + "\n")
        count += 1
    return count


def columns(table: str) -> Mapping[str, type]:
    """The columns of a table, by name."""
    return _METRICS if table == "metrics" else _ROWS


def _table(story: Story, table: str) -> Iterator[Sequence[Value]]:
    if table != "metrics":
        yield from (_cells(row) for row in rows(story, (table.removesuffix("s"),)))
        return
    run_id = story.run.run_id
    for one in series(story):
        gpu = one.curve.subject
        for sample in samples(story, one):
            yield (run_id, one.name, one.unit, gpu, round(sample.time, 6), round(sample.at, 6), sample.update,
                   sample.steps, sample.value)  # fmt: skip


def _cells(row: Row) -> Sequence[Value]:
    told = {**msgspec.structs.asdict(row), "fields": msgspec.json.encode(row.fields).decode()}
    return [told[name] for name in _ROWS]


def _parquet(story: Story, out: Path, table: str) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise AnalyseError(PARQUET.need) from error
    if str(out) == "-":
        raise AnalyseError(f"parquet is not written to {out}; name a file")
    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    wanted = columns(table)
    lists = list(zip(*_table(story, table), strict=True)) or [()] * len(wanted)
    arrays = [pa.array(values, kinds[kind]) for values, kind in zip(lists, wanted.values(), strict=True)]
    about = {"run": story.run.run_id, "began": datetime.fromtimestamp(story.began, UTC).isoformat()}
    told = pa.Table.from_arrays(arrays, names=list(wanted), metadata=about)
    with whole(out) as part:
        parquet.write_table(told, part)
    return int(told.num_rows)
