"""Commands on whole recordings: report, export, query, audit, compare; and how they read what was given.

Rules: what cannot be used of what was given is one line and status 2. Nothing heavy is imported before a
command runs.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from overwatch.cli.streams import format_option, until_unread, warn

if TYPE_CHECKING:
    from overwatch.analyse.curves import Axis
    from overwatch.analyse.run_history import RunHistory
    from overwatch.feeds.inputs import Input


class Recorded(click.Path):
    """A recording's path; a URL is refused with what to do."""

    def __init__(self, *, exists: bool = False, allow_dash: bool = True) -> None:
        super().__init__(path_type=Path, exists=exists, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Fails for a URL, and as a path that is not there does."""
        if "://" in str(value):
            place = str(value).partition("?")[0]
            self.fail(f"{place} is a URL; copy it here with the bucket's tool first", param, ctx)
        return super().convert(value, param, ctx)


PATH: Final = click.Path(path_type=Path)
RECORDED: Final = Recorded()
run_option: Final = click.option("--run", "run_id", metavar="ID", help="Which run; the newest without.")


class BadInputError(click.ClickException):
    """What was given cannot be used; status 2, as for bad usage."""

    exit_code = 2


@contextmanager
def bad_input() -> Iterator[None]:
    """What is wrong with what was given ends the command with one line."""
    from overwatch.analyse.run_history import AnalyseError
    from overwatch.feeds.recording import RecordingError
    from overwatch.projection.filtering import FilterError

    try:
        yield
    except FilterError as error:
        raise BadInputError(f"{error.term}: {error}") from error
    except (AnalyseError, RecordingError, OSError) as error:
        raise BadInputError(str(error)) from error


_ONE: Final = click.argument("path", type=RECORDED, required=False)
"""A recording, or the id of a run in that of this machine, which it is without."""


def located(path: Path | None, run_id: str | None) -> tuple[Path, str | None]:
    """Which recording is meant, and which run of it. Raises `BadInputError` where there is none."""
    if path is not None and (str(path) == "-" or path.exists() or path.parent != Path()):
        return path, run_id
    from overwatch.cli.configuration import of_this_machine
    from overwatch.collector.exporters.otlp_file import OtlpFileConfig

    recording = of_this_machine()[0].one(OtlpFileConfig).path
    if path is None and recording.exists():
        return recording, run_id
    if path is not None and run_id is None and recording.exists():
        return recording, str(path)
    named = "no PATH is given" if path is None else f"{path} is not there"
    raise BadInputError(f"{named}, and no collector has recorded into {recording}; name a recording")


def read_histories(
    path: Path,
    run_id: str | None,
    *,
    every: bool = False,
    facts: bool = True,
    recorded: "Input | None" = None,
) -> "list[RunHistory]":
    """The run that is meant, or with `every` all where none is named; warns of what could not be read.

    Of what was opened already where it is given, which standard input can be but once.
    """
    from overwatch.analyse.run_history import histories, one_of, open_recorded

    recorded = recorded or open_recorded(path)
    with patience(path, recorded):
        found = histories(path, recorded, run_id, facts=facts)
    for line in recorded.remarks():
        warn(line)
    if every and run_id is None and found:
        return list(found.values())
    return [one_of(path, recorded, found.values(), run_id)]


@contextmanager
def patience(path: Path, recorded: "Input") -> Iterator[None]:
    """Show what is read and how much of it is done, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from overwatch.serve.metrics_text import visible

    shown = f"reading {visible(str(path))} "

    def advanced(part: float) -> None:
        sys.stderr.write(f"\r{shown}{part:4.0%}")
        sys.stderr.flush()

    advanced(0.0)
    recorded.advanced = advanced
    try:
        yield
    finally:
        recorded.advanced = lambda _: None
        sys.stderr.write("\r" + " " * (len(shown) + 4) + "\r")
        sys.stderr.flush()


def write(text: str, out: Path | None) -> None:
    """Print, or write a file."""
    if out is None or str(out) == "-":
        with until_unread():
            click.echo(text)
        return
    from overwatch.output import write_output

    with bad_input():
        write_output(out, (text + "\n").encode())


@click.command(short_help="Write a recording as one HTML page.")
@_ONE
@click.option("-o", "--out", type=PATH, help="The file; `RUN.html` here without.", metavar="FILE")
@run_option
def report(path: Path | None, out: Path | None, run_id: str | None) -> None:
    """Write one self-contained page: what went wrong, when, why, and what to do.

    It needs no network and no other file: findings with their next steps, policy curves with their limits,
    what held each GPU back, the worst envs, seed lifecycles, configuration; and behind it the page of the
    run as a collector serves it, with some moments of it. `-o -` prints it. Without PATH it is of the newest
    run that was recorded on this machine; PATH may be the id of one.

    \b
      overwatch report
      overwatch report ppo-ant-3
      overwatch report runs/42 -o run.html
      overwatch report runs/42 --run ppo-ant-3 -o -

    Exit codes: 0 written, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.kept import kept
    from overwatch.analyse.report import report as written
    from overwatch.analyse.run_history import open_recorded

    path, run_id = located(path, run_id)
    with bad_input():
        recorded = open_recorded(path)
        (run_history,) = read_histories(path, run_id, recorded=recorded)
        with patience(path, recorded):
            text = written(run_history, kept(recorded, run_history))
        where = out or Path(_file_name(run_history.run.run_id))
        write(text, where)
    if str(where) != "-":
        click.echo(f"{where}: {len(text) // 1024:,} KiB")


def _file_name(run_id: str) -> str:
    """A file name of a run's id, which may hold anything."""
    kept = "".join(one if one.isalnum() or one in "-_." else "_" for one in run_id).lstrip(".")
    return f"{kept[:100] or 'run'}.html"


@click.command(short_help="Write a recording for other programs.")
@_ONE
@click.option("--to", "fmt", required=True, help="The format.",
              type=click.Choice(["csv", "parquet", "openmetrics", "tensorboard", "wandb"]))  # fmt: skip
@click.option("-o", "--out", type=PATH, required=True, metavar="OUT",
              help="A file, a folder for tensorboard and wandb; - prints csv and openmetrics.")  # fmt: skip
@click.option("--table", type=click.Choice(["metrics", "findings", "events", "envs"]), default="metrics",
              show_default=True, help="What csv and parquet hold.")  # fmt: skip
@run_option
def export(path: Path | None, fmt: str, out: Path, table: str, run_id: str | None) -> None:
    """Write every number of a run, or its findings, events and envs, for other programs.

    Of updates that were folded into others, faster than 100 a second or in a recording that was thinned, a
    warning has the count.

    \b
      overwatch export runs/42 --to csv -o run.csv
      overwatch export runs/42 --to parquet --table findings -o findings.parquet
      overwatch export runs/42 --to openmetrics -o run.om
      promtool tsdb create-blocks-from openmetrics run.om data/
      overwatch export runs/42 --to tensorboard -o logs/run-42 && tensorboard --logdir logs
      overwatch export runs/42 --to wandb -o logs && wandb sync logs/wandb/offline-run-*

    Exit codes: 0 written, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.export import export as written
    from overwatch.analyse.export import left_out
    from overwatch.analyse.export_wandb import wandb_run

    path, run_id = located(path, run_id)
    with bad_input():
        (run_history,) = read_histories(path, run_id, facts=table == "events")
        if fmt == "wandb":
            count = wandb_run(run_history, out, table)
        else:
            count = written(run_history, fmt, out, table)
    if str(out) != "-":
        click.echo(f"{out}: {count:,} {'values' if table == 'metrics' else table}")
    if table == "metrics" and (folded := left_out(run_history)) is not None:
        warn(folded)


@click.command(short_help="Search a recording's findings, events and envs.")
@_ONE
@click.argument("filter_text", metavar="[FILTER]", default="")
@format_option("text", "json", "csv")
@click.option("--sql", "statement", metavar="STATEMENT",
              help="Ask with SQL, over all runs; needs the extra sql.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), help="Print so many rows at most, the first.")
@click.option("-o", "--out", type=PATH, help="Write a file instead.")
@run_option
def query(
    path: Path | None, filter_text: str, fmt: str, *, statement: str | None, out: Path | None,
    **which: Any,
) -> None:  # fmt: skip
    """Search what happened: findings, events and statuses of envs, in order of time.

    FILTER is a filter as on the board: terms side by side must all hold, a comma means "or", ! turns a term
    around, a word without a key is searched for. Keys: what (finding, event, env), severity, kind, status,
    env, gpu, slot, seed; at, lasted (seconds), update and score are compared with > >= < <=. PATH may be left
    out, or be the id of a run that was recorded on this machine.

    \b
      overwatch query storm 'env=3 severity>=warning'
      overwatch query storm 'what=event kind=gate "gradient ratio" at>30 at<60'
      overwatch query storm 'what=env status=crashed,degraded gpu=1' --format csv
      overwatch query storm 'severity=critical !kind=crash' --format json
      overwatch query runs --sql 'select run, kind, count(*) from findings group by all order by all'

    With --sql the tables are those of `overwatch export`: metrics, findings, events, envs; their column
    `run` names the run of a row, and --run keeps one run. `at` is a word of SQL, so write "at". It needs
    DuckDB: pip install "esper-overwatch[sql]".

    Exit codes: 0 something was found, 1 nothing, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.rows import FORMATS, matching, rows

    if path is not None and not filter_text and not path.exists() and re.search("[=<>!]", str(path)):
        path, filter_text = None, str(path)
    limit, (path, run_id) = which["limit"], located(path, which["run_id"])
    if statement is not None:
        if filter_text:
            raise click.UsageError("FILTER and --sql exclude one another; put the filter into the statement")
        _query(path, statement, fmt, limit=limit, out=out, run_id=run_id)
        return
    with bad_input():
        matching((), filter_text)
        (run_history,) = read_histories(path, run_id)
        found = list(matching(rows(run_history), filter_text))
    text = "\n".join(FORMATS[fmt](found[:limit]))
    _write_rows(
        text, out, len(found), limit, f"nothing in run {run_history.run.run_id} meets {filter_text!r}"
    )


def _query(
    path: Path, statement: str, fmt: str, *, limit: int | None, out: Path | None, run_id: str | None
) -> None:
    """Print the rows of an SQL statement; status 1 where it has none."""
    from overwatch.analyse.sql import FORMATS, answer, needs_facts

    with bad_input():
        histories = read_histories(path, run_id, every=True, facts=needs_facts(statement))
        names, rows = answer(histories, statement)
    text = "\n".join(FORMATS[fmt](names, rows[:limit])) if rows else ""
    _write_rows(text, out, len(rows), limit, "the statement has no rows")


def _write_rows(text: str, out: Path | None, count: int, limit: int | None, nothing: str) -> None:
    """Write what was found; status 1 where that is nothing."""
    if text:
        write(text, out)
    if limit is not None and count > limit:
        click.echo(f"{count - limit:,} more rows were left out by --limit {limit}", err=True)
    if not count:
        click.echo(nothing, err=True)
        raise SystemExit(1)


@click.command(short_help="Fail where a recording has findings; for CI.")
@_ONE
@click.option("--fail-on", type=click.Choice(["warning", "critical"]), default="critical", show_default=True,
              help="Findings that are at least so bad count.")  # fmt: skip
@click.option("--max", "most", type=click.IntRange(min=0), default=0, show_default=True,
              help="So many of them are allowed.")  # fmt: skip
@click.option(
    "--ignore", "ignored", multiple=True, metavar="CODE", help="A kind of finding that never counts."
)
@format_option("text", "json", "junit")
@click.option("-o", "--out", type=PATH, help="Write a file instead.")
@click.option("--run", "run_id", metavar="ID", help="Which run; all without.")
def audit(path: Path | None, fmt: str, *, out: Path | None, run_id: str | None, **limits: Any) -> None:
    """Decide whether runs went well enough for a script to go on.

    A finding counts at the worst that it was, whether or not it cleared. Without PATH all runs that were
    recorded on this machine are audited; PATH may be the id of one.

    \b
      overwatch audit runs/42 --fail-on warning
      overwatch audit runs/42 --ignore sync-bound --max 2
      overwatch audit runs/42 --format junit -o audit.xml

    Exit codes: 0 no more findings than are allowed, 1 more of them, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.audit import FORMATS, AuditConfig
    from overwatch.analyse.audit import audit as audited

    path, run_id = located(path, run_id)
    with bad_input():
        config = AuditConfig(**limits)
        for code in config.ignored:
            _check_code(code)
        found = audited(read_histories(path, run_id, every=True, facts=False), config)
    write(FORMATS[fmt](found), out)
    raise SystemExit(0 if found.ok else 1)


def _check_code(code: str) -> None:
    """Raise for a code that no finding has, with the nearest that there is."""
    import difflib

    from overwatch.analyse.audit import END_UNKNOWN
    from overwatch.catalog.runbooks import RUNBOOKS, has_runbook

    if code != END_UNKNOWN and not has_runbook(code):
        near = difflib.get_close_matches(code, RUNBOOKS, 1)
        hint = f"did you mean {near[0]}?" if near else "docs/runbooks.md lists all"
        raise BadInputError(f"--ignore {code} is no kind of finding; {hint}")


@click.command(short_help="Put runs beside one another: settings, divergence, verdicts.")
@click.argument("paths", nargs=-1, type=RECORDED, metavar="A B [...]")
@click.option("--align", type=click.Choice(["update", "time", "steps"]), default="update", show_default=True,
              help="What stands beside what.")  # fmt: skip
@click.option("--last", default=0.25, show_default=True, metavar="SHARE",
              help="Verdicts are over this share of what both have, at its end.")  # fmt: skip
@format_option("text", "json", "html")
@click.option("-o", "--out", type=PATH, help="Write a file instead.")
@click.option("--run", "run_ids", multiple=True, metavar="ID",
              help="Which run of each recording, in their order; the newest without.")  # fmt: skip
def compare(
    paths: tuple[Path, ...], align: str, last: float, fmt: str, *, out: Path | None, run_ids: tuple[str, ...]
) -> None:
    """Compare runs with the first one.

    What was set differently; where each number leaves the noise of both runs; and over the last part of what
    they have in common, whether it is better or worse, by Cliff's delta with a 99 % interval.

    A and B are recordings, or ids of runs that were recorded on this machine. To compare runs inside one
    recording, name it once and repeat --run.

    \b
      overwatch compare ppo-ant-3 ppo-ant-4
      overwatch compare runs/42 --run ppo-ant-3 --run ppo-ant-4
      overwatch compare runs/41 runs/42
      overwatch compare runs/41 runs/42 runs/43 --align steps --last 0.1
      overwatch compare runs/41 runs/42 --format html -o compare.html

    Exit codes: 0 compared, 2 bad input.
    """  # noqa: D301
    import msgspec

    from overwatch.analyse.compare import CompareConfig
    from overwatch.analyse.compare import compare as compared
    from overwatch.analyse.compare_page import compare_page, compare_text

    with bad_input():
        config = CompareConfig(align=cast("Axis", align), last=last)
        histories = _read_each(paths, run_ids)
        comparison = compared(histories, config)
        if fmt == "html":
            text = compare_page(histories, comparison)
        elif fmt == "json":
            text = msgspec.json.encode(comparison).decode()
        else:
            text = "\n".join(compare_text(comparison))
    write(text, out)


def _read_each(paths: tuple[Path, ...], run_ids: tuple[str, ...]) -> "list[RunHistory]":
    recordings: tuple[Path | None, ...] = paths or (None,)
    if len(recordings) == 1:
        recordings *= len(run_ids) or 1
    if run_ids and len(run_ids) != len(recordings):
        raise click.UsageError(
            f"{len(run_ids)} --run for {len(paths)} recordings; give one for each, or none"
        )
    pairs = zip(recordings, run_ids or (None,) * len(recordings), strict=True)
    return [read_histories(*located(path, run_id))[0] for path, run_id in pairs]
