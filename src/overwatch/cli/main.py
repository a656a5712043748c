"""The `overwatch` command and its sub-commands' arguments; what they do lives beside it."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from overwatch import __version__
from overwatch.cli.agent import command as agent
from overwatch.cli.attend import watch as attend
from overwatch.cli.audit import audit
from overwatch.cli.catalog import catalog
from overwatch.cli.compare import compare
from overwatch.cli.completion import completion
from overwatch.cli.configuration import config
from overwatch.cli.configured import data_option, file_option, placed, port_base_option, sets_option
from overwatch.cli.doctor import doctor
from overwatch.cli.errors import Commands
from overwatch.cli.export import export
from overwatch.cli.locate import locate
from overwatch.cli.query import query
from overwatch.cli.report import report
from overwatch.cli.rules import rules
from overwatch.cli.stack import stack
from overwatch.cli.streams import log_to_stdout_without_stderr
from overwatch.cli.watch import Option

_baseline: Final = click.option(
    "--baseline", type=click.Path(path_type=Path, exists=True), metavar="RECORDING",
    help="A recording, or its snapshots.jsonl: runs that get less done than it did are told so.",
)  # fmt: skip


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="overwatch")
def main() -> None:
    """Air-traffic control for reinforcement-learning training."""


@main.command()
@file_option
@sets_option
@data_option
@port_base_option
@_baseline
def collect(
    path: Path | None,
    sets: tuple[str, ...],
    *,
    data: Path | None,
    port_base: int | None,
    baseline: Path | None,
) -> None:
    """Receive OTLP, diagnose, expose: run a collector until it is told to stop."""
    from overwatch import config as configuration
    from overwatch.collector import run

    log_to_stdout_without_stderr()
    if baseline is not None:
        sets = (*sets, f"exporters.aggregator.baseline={json.dumps(str(baseline.absolute()))}")
    try:
        settings, fixed = configuration.load_named(path, placed(path, sets, data, port_base))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(run(settings, fixed))


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True, allow_dash=True), required=False)
@click.option(
    "--connect", metavar="ws://HOST:PORT", multiple=True,
    help="A collector's view API, more than once for several; found by itself without.",
)  # fmt: skip
@click.option("--run", "run_id", metavar="ID", help="Which run; the newest without.")
@click.option(
    "--replay",
    "recording",
    type=click.Path(path_type=Path, exists=True, allow_dash=True),
    help="The same as PATH.",
)
@click.option("--compare", nargs=2, metavar="A B", type=click.Path(exists=True),
              help="Two recordings beside one another; the replay of A moves both.")  # fmt: skip
@click.option("--at", "at_s", type=click.FloatRange(min=0), help="Second of the recording to begin at.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file; `overwatch locate config` without.",
)
@_baseline
@click.option("--once", is_flag=True, help="Print one frame, or its snapshot as JSON, and end.")
@click.option(
    "--format", "fmt", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True
)
@click.option("--size", default="120x40", show_default=True, metavar="COLUMNSxROWS", help="Of that frame.")
@click.option("--press", "keys", default="", metavar="KEYS", help="Keys pressed before, e.g. 'j enter'.")
@click.option("--exit-code", is_flag=True, help="End with 10 for a warning, 20 for a critical verdict.")
@click.option(
    "--seen", type=click.IntRange(0, 3600), default=0, metavar="SECONDS",
    help="So much of the recording was on it before, for its charts.",
)  # fmt: skip
def tui(run_id: str | None, settings: Path | None, *, once: bool, **options: Option) -> None:
    """Watch a run in the terminal, live or from a recording.

    Without PATH it is live, from a collector. PATH is a recording instead, and needs no collector: a folder
    or a file that otlp_file wrote, OTLP files of any exporter, a journal, a trainer's spool, a
    snapshots.jsonl, or - for standard input.
    """
    from overwatch.cli import watch

    chosen, shape = watch.source_of(options, run_id), watch.shape_of(options)
    if (shape.exit_code or shape.keys) and not once:
        raise click.UsageError("--exit-code and --press are for one frame; add --once")
    sys.exit(watch.print_once(chosen, shape, settings) if once else watch.watch(chosen, settings))


@main.command()
@click.option("--headless", is_flag=True, help="No screen: a status line every few seconds.")
@click.option("--seconds", type=click.FloatRange(min=1), help="End after this long; 60 when headless.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for all that it writes."
)
@click.option(
    "--world",
    type=click.Choice(("morphogenesis", "goodhart")),
    default="morphogenesis",
    show_default=True,
    help="What is trained: a policy that grows networks, or one whose reward is a proxy, and fails by it.",
)
@click.option("--envs", type=click.IntRange(1, 4096), help="32, and 64 of goodhart, without.")
@click.option("--slots", type=click.IntRange(1, 64), help="Of morphogenesis; 3 without.")
@click.option("--seed", type=int, default=0, show_default=True)
def demo(**options: Any) -> None:
    """Train a real policy on this machine and watch it."""
    from overwatch.cli.demo import DemoError, DemoOptions, run_demo

    try:
        sys.exit(run_demo(DemoOptions(**options)))
    except DemoError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--gpus", type=int, default=2, show_default=True, help="Lanes.")
@click.option("--envs", type=int, default=32, show_default=True, help="Envs on each lane.")
@click.option("--slots", type=int, default=6, show_default=True, help="Slots in each env.")
@click.option("--rate", "rate_hz", type=float, default=10.0, show_default=True, help="Env steps a second.")
@click.option("--seconds", type=int, default=60, show_default=True, help="Length of the run.")
@click.option("--fault", "faults", multiple=True, metavar="NAME@SECOND", help="What goes wrong, and when.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same run.")
@click.option("--run-id", metavar="ID", help="Made from the size and seed without.")
@click.option("--endpoint", metavar="URL", help="Play it in real time to this collector's OTLP/HTTP.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write a recording at once instead."
)
def simulate(
    *, faults: tuple[str, ...], run_id: str | None, endpoint: str | None, out: Path | None, **size: float
) -> None:
    """Tell a scripted run, with faults, to a collector or into a recording.

    Without --endpoint and --out it goes to the collector of this machine. Give --fault NAME@SECOND once
    for each fault; a name that is not known lists them all.
    """
    from overwatch.cli import simulate as simulation

    if endpoint is not None and out is not None:
        raise click.UsageError("--endpoint and --out exclude one another; give one of them")
    settings = simulation.settings_of(size, faults, run_id, live=out is None)
    sys.exit(simulation.send(settings, endpoint) if out is None else simulation.record(settings, out))


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.option("--format", "_fmt", type=click.Choice(["json"]), default="json", show_default=True)
@click.option("--every", "every_s", type=click.FloatRange(min=0.1), help="One snapshot each so many seconds.")
@click.option("--at", "at_s", type=click.FloatRange(min=0), help="The one snapshot at this second.")
@click.option("--update", type=click.IntRange(min=0), metavar="N",
              help="The first snapshot at this update of the policy or after it.")  # fmt: skip
@click.option("--run", "run_id", metavar="ID",
              help="Which run; with --every, --at and --update the newest without.")  # fmt: skip
@click.option("--digest", is_flag=True, help="Print the SHA-256 of all recorded lines instead.")
@click.option("--summary", is_flag=True, help="Print each run in a few lines instead.")
@_baseline
def replay(
    path: Path, _fmt: str, *, run_id: str | None, baseline: Path | None, update: int | None,
    **how: float | bool | None,
) -> None:  # fmt: skip
    """Print a recording's snapshots as JSON lines: those that were recorded live, or as asked for.

    PATH is what otlp_file recorded, OTLP files of any exporter, a journal, a snapshots.jsonl, or a folder
    with any of these; - reads standard input.
    """
    from overwatch.cli.replay import ReplayOptions
    from overwatch.cli.replay import replay as run_replay

    options = ReplayOptions(
        every_s=how["every_s"],
        at_s=how["at_s"],
        update=update,
        run_id=run_id,
        digest=bool(how["digest"]),
        summary=bool(how["summary"]),
        baseline=baseline,
    )
    sys.exit(run_replay(path, options))


@main.command()
@click.argument("spool", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; where the trainer wanted it without.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=60, show_default=True,
              help="Seconds in all.")  # fmt: skip
def sync(spool: Path | None, endpoint: str | None, timeout_s: float) -> None:
    """Deliver what killed trainers left on this machine.

    SPOOL is a folder of spools, or one spool; this user's own without.
    """
    from overwatch.cli.sync import sync as run_sync

    sys.exit(run_sync(spool, endpoint, timeout_s))


main.add_command(attend)
main.add_command(catalog)
main.add_command(config)
main.add_command(locate)
main.add_command(doctor)
main.add_command(agent)
main.add_command(completion)
main.add_command(stack)
main.add_command(query)
main.add_command(audit)
main.add_command(export)
main.add_command(report)
main.add_command(compare)
main.add_command(rules)
