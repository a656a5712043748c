"""`overwatch stack`: Prometheus, Alertmanager and Grafana beside a collector, on this machine alone."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from overwatch import discovery
from overwatch.cli.stack.parts import ALERTMANAGER, GRAFANA, PARTS, PROMETHEUS, WINDOWS

if TYPE_CHECKING:
    from overwatch.cli.stack.work import Stack
    from overwatch.cli.stack.writing import Wanted

DEFAULT_RUNS = "http://127.0.0.1:8889"
DEFAULT_COLLECTOR = "http://127.0.0.1:8888"


def stack_folder() -> Path:
    """Where the stack's configuration, data, secrets and logs lie."""
    from overwatch import config

    return config.load(None, ()).data_folder / "stack"


@click.group()
def stack() -> None:
    """Prometheus, Alertmanager and Grafana with the shipped rules and dashboards, on this machine alone.

    What is installed is used; nothing is downloaded and nothing is told to the outside.
    """


_PORT = click.IntRange(1, 65535)


_OPTIONS = (
    click.option("--prometheus-port", type=_PORT, default=PROMETHEUS.port, show_default=True),
    click.option("--alertmanager-port", type=_PORT, default=ALERTMANAGER.port, show_default=True),
    click.option("--grafana-port", type=_PORT, default=GRAFANA.port, show_default=True),
    click.option("--runs", metavar="URL", help="The collector's page of runs; found by itself without."),
    click.option(
        "--collector", metavar="URL", help="The collector's page of itself; found by itself without."
    ),
    click.option(
        "--run-length", type=click.Choice(WINDOWS), default="24h", show_default=True,
        help="How long runs usually last; burn rates are taken over windows to match.",
    ),
    click.option("--webhook", metavar="URL", help="Where alerts are sent; they are only shown without."),
)  # fmt: skip
"""What both ways to have the stack ask for."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with these options, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@stack.command()
@_options
def up(**given: str | int | None) -> None:
    """Start what does not run yet; what runs goes on with fresh configuration."""
    wanted = _wanted(given)
    with _stack() as here:
        here.up(wanted)


@stack.command()
@_options
def compose(**given: str | int | None) -> None:
    """Write the stack as a compose file, for Docker or Podman on Linux; nothing is started.

    The containers share this machine's network and listen on loopback alone.
    """
    from overwatch.cli.stack.compose import write_compose
    from overwatch.cli.stack.writing import StackError

    try:
        file = write_compose(stack_folder(), _wanted(given))
    except StackError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"wrote {file}")
    click.echo(f"docker compose -f {file} up -d")


def _wanted(given: Mapping[str, str | int | None]) -> "Wanted":
    """What a command line asks of the stack; an address or a port that cannot be is bad usage."""
    from overwatch.cli.stack.writing import Wanted

    found = discovery.read()
    runs, collector, webhook = (given[name] for name in ("runs", "collector", "webhook"))
    named = {part.name: int(str(given[f"{part.name}_port"])) for part in PARTS}
    if len(set(named.values())) != len(named):
        raise click.UsageError(f"each server needs a port of its own; given are {sorted(named.values())}")
    return Wanted(
        ports=named,
        runs=_url("--runs", runs or (found.metrics if found else None) or DEFAULT_RUNS),
        collector=_url("--collector", collector or (found.telemetry if found else None) or DEFAULT_COLLECTOR),
        token=found.tokens.read if found else None,
        windows=str(given["run_length"]),
        webhook=None if webhook is None else _url("--webhook", webhook),
    )


@stack.command()
def down() -> None:
    """End what `up` started, and nothing else; data stays."""
    with _stack() as here:
        here.down()


@stack.command()
def status() -> None:
    """Say how each server is; the exit code is 0 when all that was started is ready."""
    with _stack() as here:
        fine = here.status()
    sys.exit(0 if fine else 1)


@contextmanager
def _stack() -> Iterator["Stack"]:
    """The stack of this user; what it cannot do is said without a traceback."""
    from overwatch.cli.stack.work import Stack
    from overwatch.cli.stack.writing import StackError

    try:
        yield Stack(folder=stack_folder(), say=click.echo)
    except StackError as error:
        raise click.ClickException(str(error)) from error


def _url(option: str, given: str | int) -> str:
    text = str(given)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise click.UsageError(f"{option} {text!r} is not a URL; write e.g. http://127.0.0.1:8889")
    return text
