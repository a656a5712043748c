"""`overwatch query`: findings, events and statuses of envs that a filter means; text, JSON lines or CSV."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from overwatch.catalog.durations import duration
from overwatch.cli.opening import PATH, read_stories, run_option, saying, write

if TYPE_CHECKING:
    from overwatch.analyse.rows import Row


@click.command(short_help="Search a recording's findings, events and envs.")
@click.argument("path", type=PATH)
@click.argument("filter_text", metavar="[FILTER]", default="")
@click.option(
    "--format", "fmt", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True
)
@click.option("--sql", "statement", metavar="STATEMENT",
              help="Ask with SQL, over all runs; needs the extra sql.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), help="Print so many rows at most, the first.")
@click.option("-o", "--out", type=PATH, help="Write a file instead.")
@run_option
def query(
    path: Path, filter_text: str, fmt: str, *, statement: str | None, out: Path | None,
    **which: str | int | None,
) -> None:  # fmt: skip
    """Search what happened: findings, events and statuses of envs, in order of time.

    FILTER is a filter as on the board: terms side by side must all hold, a comma means "or", ! turns a term
    around, a word without a key is searched for. Keys: what (finding, event, env), severity, kind, status,
    env, gpu, slot, seed; at, lasted (seconds), update and score are compared with > >= < <=.

    \b
      overwatch query storm 'env=3 severity>=warning'
      overwatch query storm 'what=event kind=gate "gradient ratio" at>30 at<60'
      overwatch query storm 'what=env status=crashed,degraded gpu=1' --format csv
      overwatch query storm 'severity=critical !kind=crash' --format json
      overwatch query runs --sql 'select run, kind, count(*) from findings group by all order by all'

    With --sql the tables are those of `overwatch export`: metrics, findings, events, envs; their column
    `run` says whose a row is, and --run keeps one run. `at` is a word of SQL, so write "at". It needs
    DuckDB: pip install "esper-overwatch[sql]".

    Exit codes: 0 something was found, 1 nothing, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.query import matching
    from overwatch.analyse.rows import rows

    limit = None if which["limit"] is None else int(which["limit"])
    run_id = None if which["run_id"] is None else str(which["run_id"])
    if statement is not None:
        if filter_text:
            raise click.UsageError("FILTER and --sql exclude one another; put the filter into the statement")
        _ask(path, statement, fmt, limit=limit, out=out, run_id=run_id)
        return
    with saying():
        matching((), filter_text)
        (story,) = read_stories(path, run_id)
        found = list(matching(rows(story), filter_text))
    shown = found[:limit]
    text = "\n".join(_FORMATS[fmt](shown))
    if text:
        write(text, out)
    if limit is not None and len(found) > limit:
        click.echo(f"{len(found) - limit:,} more rows were left out by --limit {limit}", err=True)
    if not found:
        click.echo(f"nothing in run {story.run.run_id} meets {filter_text!r}", err=True)
        raise SystemExit(1)


def _ask(
    path: Path, statement: str, fmt: str, *, limit: int | None, out: Path | None, run_id: str | None
) -> None:
    """Print the rows of an SQL statement; status 1 where it has none."""
    from overwatch.analyse.separated import csv_line
    from overwatch.analyse.sql import aligned, answer, needs_facts

    with saying():
        told = read_stories(path, run_id, every=True, facts=needs_facts(statement))
        found = answer(told, statement)
    rows = found.rows[:limit]
    if fmt == "text":
        lines = list(aligned(msgspec.structs.replace(found, rows=rows)))
    elif fmt == "csv":
        lines = [csv_line(found.columns), *(csv_line(map(_plain, row)) for row in rows)]
    else:
        pairs = (dict(zip(found.columns, map(_plain, row), strict=True)) for row in rows)
        lines = [msgspec.json.encode(pair).decode() for pair in pairs]
    if rows:
        write("\n".join(lines), out)
    if len(found.rows) > len(rows):
        click.echo(f"{len(found.rows) - len(rows):,} more rows were left out by --limit {limit}", err=True)
    if not found.rows:
        click.echo("the statement has no rows", err=True)
        raise SystemExit(1)


def _plain(value: object) -> str | int | float | None:
    """A value as JSON and CSV have it; a date, a list and the like as text."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _text(found: "list[Row]") -> Iterator[str]:
    for row in found:
        said = " ".join((row.text, *(f"{name}={value}" for name, value in row.fields.items())))
        lasted = "" if row.lasted is None else f" for {duration(row.lasted)}{row.ending}"
        yield f"{row.clock:>9}  {row.severity:8}  {row.kind:20}  {row.about:18}  {said}{lasted}"


def _json(found: "list[Row]") -> Iterator[str]:
    for row in found:
        yield msgspec.json.encode(row).decode()


def _csv(found: "list[Row]") -> Iterator[str]:
    """A header, then a row each; fields as JSON."""
    from overwatch.analyse.rows import Row
    from overwatch.analyse.separated import csv_line

    names = [field.name for field in msgspec.structs.fields(Row)]
    yield csv_line(names)
    for row in found:
        cells = {**msgspec.structs.asdict(row), "fields": msgspec.json.encode(row.fields).decode()}
        yield csv_line(cells[name] for name in names)


_FORMATS = {"text": _text, "json": _json, "csv": _csv}
