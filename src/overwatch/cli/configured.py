"""The options by which commands are told a collector's configuration."""

from pathlib import Path
from typing import Final

import click


def _one(_: click.Context, __: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    """The file that was named; of two the first would be left out without a word."""
    if len(paths) > 1:
        raise click.BadParameter("there can be one file; put the keys of the others into it, or use --set")
    return paths[0] if paths else None


file_option: Final = click.option(
    "--config",
    "path",
    multiple=True,
    callback=_one,
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file; defaults without.",
)
sets_option: Final = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override one key, e.g. a.b.c=1."
)
