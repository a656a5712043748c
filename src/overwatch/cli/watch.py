"""`overwatch tui`: the live screen, or one snapshot printed."""

import importlib.util
from typing import Final

import click

from overwatch import codec
from overwatch.cli.viewclient import fetch_snapshot, view_url

NO_RUN_YET: Final = 3
"""Exit code of `--once` while the collector has no run."""


def watch(connect: str | None, run_id: str | None) -> int:
    """Show the live screen until the user quits."""
    need_textual()
    from overwatch.tui import run_tui

    return run_tui(_address(connect), run_id)


def print_once(connect: str | None, run_id: str | None, fmt: str) -> int:
    """Print the latest snapshot as text, JSON or SVG."""
    try:
        snapshot = fetch_snapshot(_address(connect), run_id)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if snapshot is None:
        click.echo("no run yet: the collector is up and has heard of no run", err=True)
        return NO_RUN_YET
    if fmt == "json":
        click.echo(codec.encode(snapshot))
        return 0
    need_textual()
    from overwatch.tui import once

    click.echo(once(snapshot, "svg" if fmt == "svg" else "text"))
    return 0


def need_textual() -> None:
    """Say how to get the terminal's extra when it is not there."""
    if importlib.util.find_spec("textual") is None:
        raise click.ClickException('the terminal screen needs Textual: pip install "esper-overwatch[tui]"')


def _address(connect: str | None) -> str:
    try:
        return view_url(connect)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
