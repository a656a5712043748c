"""`overwatch locate`: where things lie on this machine. Must not make, read or change any of them."""

import time
from collections.abc import Callable
from pathlib import Path

import click

from overwatch import discovery
from overwatch.cli.stack import stack_folder
from overwatch.cli.watch import need_textual


def _settings() -> Path:
    need_textual()
    from overwatch.tui.settings import place

    return place()


def _data() -> Path:
    from overwatch import config

    return config.load(None, ()).data_folder


def _storage() -> str | None:
    """How much the collector has written, of what budget; `None` where nothing can be read."""
    from overwatch import config
    from overwatch.collector.budget import look, summary
    from overwatch.collector.settings import written

    files = written(config.load(None, ()))
    try:
        return summary(files, look(files), time.time())
    except OSError:
        return None


def _spool() -> Path:
    from overwatch.sdk.exporter.spools import spool_root

    return spool_root()


PLACES: dict[str, tuple[str, Callable[[], Path]]] = {
    "config": ("settings of the terminal", _settings),
    "data": ("the collector's journal and recordings, as shipped", _data),
    "stack": ("Prometheus, Alertmanager and Grafana of `overwatch stack`", stack_folder),
    "spool": ("what trainers could not deliver yet", _spool),
    "discovery": ("where the running collector is announced", discovery.path),
}


@click.command()
@click.argument("what", type=click.Choice(list(PLACES)), required=False)
def locate(what: str | None) -> None:
    """Print where something lies: the terminal's settings (config), or one of these; all without a name."""
    if what is not None:
        click.echo(PLACES[what][1]())
        return
    for name, (means, place) in PLACES.items():
        try:
            found = place()
        except click.ClickException as error:
            click.echo(f"{name:10} –\n{'':10} {error.message}")
            continue
        click.echo(f"{name:10} {found}{'' if found.exists() else '  (not there yet)'}\n{'':10} {means}")
        if name == "data" and (storage := _storage()) is not None:
            click.echo(f"{'':10} {storage}")
