"""The `overwatch` command and its sub-commands' arguments; what they do lives beside it."""

import sys
from pathlib import Path

import click

from overwatch import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="overwatch")
def main() -> None:
    """Air-traffic control for reinforcement-learning training."""


@main.command()
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="YAML file; defaults without."
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override one key, e.g. a.b.c=1.")
def collect(config: Path | None, sets: tuple[str, ...]) -> None:
    """Receive OTLP, diagnose, expose: run a collector until it is told to stop."""
    from overwatch import config as configuration
    from overwatch.collector import run

    try:
        settings = configuration.load(config, sets)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(run(settings))


@main.command()
@click.option(
    "--connect", metavar="ws://HOST:PORT", help="The collector's view API; found by itself without."
)
@click.option("--run", "run_id", metavar="ID", help="Which run; the newest without.")
@click.option("--once", is_flag=True, help="Print one snapshot and end.")
@click.option(
    "--format", "fmt", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True
)
def tui(connect: str | None, run_id: str | None, fmt: str, *, once: bool) -> None:
    """Watch a run in the terminal."""
    from overwatch.cli import watch

    sys.exit(watch.print_once(connect, run_id, fmt) if once else watch.watch(connect, run_id))


@main.command()
@click.option("--headless", is_flag=True, help="No screen: a status line every few seconds.")
@click.option("--seconds", type=click.FloatRange(min=1), help="End after this long; 60 when headless.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for all that it writes."
)
@click.option("--envs", type=click.IntRange(1, 4096), default=32, show_default=True)
@click.option("--slots", type=click.IntRange(1, 64), default=3, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def demo(
    *, headless: bool, seconds: float | None, out: Path | None, envs: int, slots: int, seed: int
) -> None:
    """Train a real policy on this machine and watch it."""
    from overwatch.cli.demo import DemoError, DemoOptions, run_demo

    options = DemoOptions(headless=headless, seconds=seconds, out=out, envs=envs, slots=slots, seed=seed)
    try:
        sys.exit(run_demo(options))
    except DemoError as error:
        raise click.ClickException(str(error)) from error
