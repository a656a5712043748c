"""`overwatch export`: one run for other programs."""

from pathlib import Path

import click

from overwatch.cli.opening import PATH, read_stories, run_option, saying

_FORMATS = ("csv", "parquet", "openmetrics", "tensorboard")


@click.command(short_help="Write a recording for other programs.")
@click.argument("path", type=PATH)
@click.option("--to", "fmt", type=click.Choice(_FORMATS), required=True, help="The format.")
@click.option("-o", "--out", type=PATH, required=True, metavar="OUT",
              help="A file, a folder for tensorboard; - prints csv and openmetrics.")  # fmt: skip
@click.option("--table", type=click.Choice(["metrics", "findings", "events", "envs"]), default="metrics",
              show_default=True, help="What csv and parquet hold.")  # fmt: skip
@run_option
def export(path: Path, fmt: str, out: Path, table: str, run_id: str | None) -> None:
    """Write every number of a run, or its findings, events and envs, for other programs.

    \b
      overwatch export runs/42 --to csv -o run.csv
      overwatch export runs/42 --to parquet --table findings -o findings.parquet
      overwatch export runs/42 --to openmetrics -o run.om
      promtool tsdb create-blocks-from openmetrics run.om data/
      overwatch export runs/42 --to tensorboard -o logs/run-42 && tensorboard --logdir logs

    Exit codes: 0 written, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.export import export as written

    with saying():
        (story,) = read_stories(path, run_id, facts=table == "events")
        count = written(story, fmt, out, table)
    if str(out) != "-":
        click.echo(f"{out}: {count:,} {'values' if table == 'metrics' else table}")
