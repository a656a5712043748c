"""`overwatch follow` and `overwatch import`: runs of programs that know nothing of Overwatch.

Owns their arguments. Nothing heavy is imported before one runs. Exit code 1 when the collector did not get
everything, 2 for bad input, or that of the signal which ended it, if one did.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from overwatch.catalog import LIBRARIES
from overwatch.catalog.presets import PRESETS
from overwatch.cli.streams import Seconds

FORMATS: Final = ("wandb", "tensorboard", "jsonl", "csv")
"""Those of `overwatch.follow.readers`, which is not loaded for the sake of `--help`."""


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """What both commands take."""
    libraries = [*(names.library.value for names in LIBRARIES), "none"]
    for option in reversed((
        click.option("--library", type=click.Choice(libraries, case_sensitive=False),
                     help="Whose names these are; found by the names without; none: the catalogue's alone."),
        click.option("--format", "fmt", type=click.Choice(FORMATS),
                     help="Read only this of a folder."),
        click.option("--pattern", metavar="REGEX", help="Read text; named groups are numbers."),
        click.option("--step", metavar="COLUMN", help="The number of the update; found without."),
        click.option("--time", "time_column", metavar="COLUMN",
                     help="Unix seconds, a date, or seconds since the start; found without."),
        click.option("--run", "run_id", metavar="ID", help="The run's id; its folder's name without."),
        click.option("--algo", help="The algorithm, e.g. grpo: it chooses the limits."),
        click.option("--task", help="What is trained on."),
        click.option("--preset", type=click.Choice(list(PRESETS)), help="Whose limits judge it."),
        click.option("--config", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A setting of the run, e.g. n_actions=2."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command(short_help="Watch what other programs write, while they write it.")
@click.argument("path", type=click.Path(path_type=Path, allow_dash=True))
@reading_options
@click.option("--endpoint", metavar="URL", help="OTLP/HTTP of a collector; that of this machine without.")
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), help="Write a recording, too.")
@click.option("--pid", type=click.IntRange(min=1), help="End when this process ends.")
@click.option("--until-idle", "idle_s", type=Seconds(0.1), metavar="SECONDS",
              help="A run ends when nothing was written for so long.")  # fmt: skip
@click.option("--from-start", is_flag=True, help="Send again what was delivered before.")
@click.option("--all", "is_all", is_flag=True, help="Of a folder also the runs that ended long ago.")
def follow(path: Path, **options: Any) -> None:
    """Watch TensorBoard files, CSV, JSON lines, W&B's offline runs or text while a program writes them.

    PATH is a file, a folder of runs, or - for standard input, which is passed on; 2>&1 adds a program's
    tracebacks. What is not there yet is waited for. Runs go to the collector, as any trainer's do, and with
    --out into a recording.

    \b
      overwatch follow runs/
      overwatch follow logs/progress.csv --until-idle 120
      python train.py 2>&1 | overwatch follow - --pattern 'step=(?P<step>\\d+) loss=(?P<loss>\\S+)'
    """  # noqa: D301
    from overwatch.cli.following import Following

    sys.exit(Following(path, options).run())


@click.command("import", short_help="Make a recording of what other programs have written.")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@reading_options
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="Folder for the recording.")  # fmt: skip
def import_(path: Path, out: Path, **options: Any) -> None:
    """Make a recording of finished files, with their own times: for tui, replay, report and compare.

    \b
      overwatch import runs/ --out recorded
      overwatch report recorded -o run.html
    """  # noqa: D301
    from overwatch.cli.importing import import_whole

    import_whole(path, out, options)
