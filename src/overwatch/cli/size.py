"""`overwatch size`: what a fleet needs on paper, from units that were measured of real runs."""

import re
from typing import Final

import click
import msgspec

from overwatch.cli.streams import format_option, warn
from overwatch.sizing import Load, units
from overwatch.sizing.plan import plan
from overwatch.sizing.text import text

_DAYS: Final = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def _days(_: click.Context, __: click.Parameter, duration: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", duration)
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{duration!r} is no duration; write e.g. 12h, 30d or 4w")
    return float(found[1]) * _DAYS[found[2]]


@click.command()
@click.option("--runs", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Live at once.")
@click.option(
    "--ranks", "--gpus", "ranks", type=click.IntRange(1, 100_000), default=1, show_default=True,
    help="Trainer processes of a run, a GPU each.",
)  # fmt: skip
@click.option("--envs", type=click.IntRange(1, 131_072), default=64, show_default=True, help="Of each rank.")
@click.option("--hz", type=click.FloatRange(0.001, 1000), default=10.0, show_default=True,
              help="Updates, and steps of all envs, in a second.")  # fmt: skip
@click.option("--retention", "days", metavar="DURATION", callback=_days, default="30d", show_default=True,
              help="How long recordings and Prometheus keep.")  # fmt: skip
@format_option("text", "json")
def size(*, runs: int, ranks: int, envs: int, hz: float, days: float, fmt: str) -> None:
    """Compute what a fleet needs: CPU, memory, disk, network, series, collectors.

    Each line names the assumption that it comes from. Units were measured of real runs; README and
    docs/sizing.md have the table.
    """
    found = plan(Load(runs=runs, ranks=ranks, envs=envs, hz=hz), days, units())
    for line in found.warnings:
        warn(line)
    click.echo(msgspec.json.encode(found).decode() if fmt == "json" else text(found))
