"""`overwatch stack`: Prometheus, Alertmanager, Grafana beside a collector; `overwatch rules`: alert rules."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from overwatch import discovery
from overwatch.cli.stack_files import (
    ALERTMANAGER,
    GRAFANA,
    PARTS,
    PROMETHEUS,
    WINDOWS,
    StackError,
    Wanted,
    write_compose,
)
from overwatch.collector.setting_types import seconds

DEFAULT_RUNS = "http://127.0.0.1:8889"
DEFAULT_COLLECTOR = "http://127.0.0.1:8888"


def stack_folder() -> Path:
    """Where the stack's configuration, data, secrets and logs lie."""
    from overwatch import config

    return config.load(None, ()).data_folder / "stack"


@click.group()
def stack() -> None:
    """Prometheus, Alertmanager and Grafana with the shipped rules and dashboards, on this machine alone.

    What is installed is used; nothing is downloaded and nothing is sent to the outside.
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
"""Of both ways to have the stack."""


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
    from overwatch.cli import stack_servers

    with _errors():
        stack_servers.up(stack_folder(), wanted)


@stack.command()
@_options
def compose(**given: str | int | None) -> None:
    """Write the stack as a compose file, for Docker or Podman on Linux; nothing is started.

    The containers share this machine's network and listen on loopback alone.
    """
    with _errors():
        file = write_compose(stack_folder(), _wanted(given))
    click.echo(f"wrote {file}")
    click.echo(f"docker compose -f {file} up -d")


def _wanted(given: Mapping[str, str | int | None]) -> Wanted:
    """What a command line requests of the stack; an address or a port that cannot be is bad usage."""
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
    from overwatch.cli import stack_servers

    with _errors():
        stack_servers.down(stack_folder())


@stack.command()
def status() -> None:
    """Print how each server is; the exit code is 0 when all that was started is ready."""
    from overwatch.cli import stack_servers

    with _errors():
        fine = stack_servers.status(stack_folder())
    sys.exit(0 if fine else 1)


@contextmanager
def _errors() -> Iterator[None]:
    """What the stack cannot do is reported without a traceback."""
    try:
        yield
    except StackError as error:
        raise click.ClickException(str(error)) from error


def _url(option: str, given: str | int) -> str:
    from overwatch.sdk.arguments import is_url

    if not is_url(str(given)):
        raise click.UsageError(f"{option} {given!r} is not a URL; write e.g. http://127.0.0.1:8889")
    return str(given)


@click.command()
@click.option("--run-length", default="24h", show_default=True, help="How long a run usually takes.")
@click.option("--scrape-interval", default="15s", show_default=True, help="Between two scrapes.")
@click.option("--update-interval", default="10s", show_default=True, help="Between two policy updates.")
@click.option(
    "--budget", default=0.05, show_default=True, help="Share of updates that may leave the trust region."
)
@click.option("--useful", default=0.95, show_default=True,
              help="Share of a run's time in which it should make useful updates.")  # fmt: skip
@click.option("--runs-job", default="overwatch", show_default=True, help="Scrape job of the page of runs.")
@click.option("--collector-job", default="overwatch-collector", show_default=True,
              help="Scrape job of the collector's own page.")  # fmt: skip
@click.option(
    "--runbooks", default="docs/runbooks.md", show_default=True, help="Where the runbooks can be read."
)
@click.option("--grafana", default="http://127.0.0.1:3000", show_default=True, help="Where the boards are.")
@click.option("--tests", "tested", help="Print cases for promtool instead; the rules lie at this path.")
def rules(run_length: str, scrape_interval: str, update_interval: str, *, budget: float,
          useful: float, tested: str | None, **words: str) -> None:  # fmt: skip
    """Print all alert rules for a Prometheus that scrapes the collector."""
    from overwatch.generate.rules import (
        Plan,
        case_file,
        recordings,
        rule_file,
        steady_alerts,
        windowed_alerts,
    )

    try:
        plan = Plan(
            run_length_s=_whole("--run-length", run_length),
            scrape_s=_whole("--scrape-interval", scrape_interval),
            update_s=_whole("--update-interval", update_interval),
            budget=budget,
            useful=useful,
            runs_job=words["runs_job"],
            collector_job=words["collector_job"],
            runbooks=words["runbooks"],
            grafana=words["grafana"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    alerts = (*steady_alerts(plan), *windowed_alerts(plan))
    if tested is None:
        click.echo(rule_file(alerts, plan, recorded=recordings(plan)), nl=False)
    else:
        click.echo(case_file(tested, alerts, plan), nl=False)


def _whole(option: str, text: str) -> int:
    found = seconds(option, text)
    if found < 1:
        raise ValueError(f"{option} {text!r} is less than a second; write e.g. 15s or 6h")
    return round(found)
