"""The `overwatch` command and its sub-commands' arguments; what large ones do lives beside it."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import get_completion_class

from overwatch import __version__, discovery
from overwatch.cli.attend import watch as attend
from overwatch.cli.catalog import catalog
from overwatch.cli.configuration import (
    config,
    data_option,
    file_option,
    of_this_machine,
    placed,
    port_base_option,
    sets_option,
)
from overwatch.cli.fleet import fleet
from overwatch.cli.follow import follow, import_
from overwatch.cli.interrupts import STATUS
from overwatch.cli.recordings import Recorded, audit, compare, export, query, report
from overwatch.cli.rules import rules
from overwatch.cli.streams import (
    Commands,
    Seconds,
    format_option,
    log_to_stdout_without_stderr,
    until_unread,
    warn,
)
from overwatch.cli.watch import need_textual
from overwatch.cli.web import web
from overwatch.os_signals import received

if TYPE_CHECKING:
    from overwatch.sdk.exporter.orphan_recovery import Delivered

_CLOSE_S: Final = 10.0
_AREAS: Final = (
    "config", "ports", "disk", "limits", "pod", "names", "gpu", "clock", "versions", "terminal", "collector",
)  # fmt: skip
"""What `overwatch doctor` looks at."""
_baseline: Final = click.option(
    "--baseline", type=Recorded(exists=True, allow_dash=False), metavar="RECORDING",
    help="A recording, or its snapshots.jsonl: runs that get less done than it did get a finding.",
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
    """Receive OTLP, diagnose, expose: run a collector until it is stopped."""
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
@click.argument("path", type=Recorded(exists=True), required=False)
@click.option(
    "--connect", metavar="ws://HOST:PORT", multiple=True,
    help="A collector's view API, more than once for several; found by itself without.",
)  # fmt: skip
@click.option("--run", "run_id", metavar="ID", help="Which run; the newest without.")
@click.option(
    "--replay",
    type=Recorded(exists=True),
    help="The same as PATH.",
)
@click.option("--compare", nargs=2, metavar="A B", type=Recorded(exists=True, allow_dash=False),
              help="Two recordings beside one another; the replay of A moves both.")  # fmt: skip
@click.option("--at", "at_s", type=Seconds(0), help="Second of the recording to begin at.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file; `overwatch locate config` without.",
)
@_baseline
@click.option("--once", is_flag=True, help="Print one frame, or its snapshot as JSON, and end.")
@format_option("text", "json", "svg")
@click.option("--size", default="120x40", show_default=True, metavar="COLUMNSxROWS", help="Of that frame.")
@click.option("--press", "keys", default="", metavar="KEYS", help="Keys pressed before, e.g. 'j enter'.")
@click.option("--exit-code", is_flag=True, help="End with 10 for a warning, 20 for a critical verdict.")
@click.option(
    "--seen", type=click.IntRange(0, 3600), default=0, metavar="SECONDS",
    help="Fill the charts with this many seconds before --at.",
)  # fmt: skip
def tui(**options: Any) -> None:
    """Watch a run in the terminal, live or from a recording.

    Without PATH it is live, from a collector. PATH is a recording instead, and needs no collector: a folder
    or a file that otlp_file wrote, OTLP files of any exporter, a journal, a trainer's spool, a
    snapshots.jsonl, or - for standard input.
    """
    from overwatch.cli import watch

    chosen = watch.Options(**options)
    sys.exit(watch.print_once(chosen) if chosen.once else watch.watch(chosen))


@main.command()
@click.option("--headless", is_flag=True, help="No screen: a status line every few seconds.")
@click.option("--seconds", type=Seconds(1), help="End after this long; 60 when headless.")
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
    from overwatch.cli.demo import DemoOptions, run_demo

    sys.exit(run_demo(DemoOptions(**options)))


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
    *, faults: tuple[str, ...], run_id: str | None, endpoint: str | None, out: Path | None, **size: Any
) -> None:
    """Send a scripted run, with faults, to a collector or into a recording.

    Without --endpoint and --out it goes to the collector of this machine. Repeat --fault for several faults;
    an unknown name prints all names.
    """
    from overwatch.cli import simulate as simulation

    if endpoint is not None and out is not None:
        raise click.UsageError("--endpoint and --out exclude one another; give one of them")
    settings = simulation.settings_of(size, faults, run_id, live=out is None)
    sys.exit(simulation.send(settings, endpoint) if out is None else simulation.record(settings, out))


@main.command()
@click.argument("path", type=Recorded(exists=True))
@click.option("--format", "_fmt", type=click.Choice(["json"]), default="json", show_default=True)
@click.option("--every", "every_s", type=Seconds(0.1), help="One snapshot each so many seconds.")
@click.option("--at", "at_s", type=Seconds(0), help="The one snapshot at this second.")
@click.option("--update", type=click.IntRange(min=0), metavar="N",
              help="The first snapshot at this update of the policy or after it.")  # fmt: skip
@click.option("--run", "run_id", metavar="ID",
              help="Which run; with --every, --at and --update the newest without.")  # fmt: skip
@click.option("--digest", is_flag=True, help="Print the SHA-256 of all recorded lines instead.")
@click.option("--summary", is_flag=True, help="Print each run in a few lines instead.")
@_baseline
def replay(path: Path, _fmt: str, **options: Any) -> None:
    """Print a recording's snapshots as JSON lines: those that were recorded live, or as asked for.

    PATH is what otlp_file recorded, OTLP files of any exporter, a journal, a snapshots.jsonl, or a folder
    with any of these; - reads standard input.
    """
    from overwatch.cli.replay import ReplayOptions
    from overwatch.cli.replay import replay as run_replay

    sys.exit(run_replay(path, ReplayOptions(**options)))


@main.command()
@click.argument("spool", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; where the trainer wanted it without.")
@click.option("--timeout", "timeout_s", type=Seconds(1), default=60, show_default=True,
              help="Seconds in all.")  # fmt: skip
def sync(spool: Path | None, endpoint: str | None, timeout_s: float) -> None:
    """Deliver what killed trainers left on this machine.

    SPOOL is a folder of spools, or one spool; this user's own without.
    """
    import logging

    from overwatch.sdk.exporter.orphan_recovery import deliver_all

    logging.basicConfig(format="overwatch: %(message)s", stream=sys.stderr, level=logging.WARNING)
    found = []
    for delivered in deliver_all(spool, endpoint, timeout_s):
        print(_delivered(delivered), flush=True)
        found.append(delivered)
    if not found:
        print("nothing to deliver")
    sys.exit(0 if all(delivered.is_done for delivered in found) else 1)


def _delivered(delivered: "Delivered") -> str:
    parts = [f"{delivered.run_id}: {delivered.records} records delivered"]
    if not delivered.is_done:
        parts.append(f"{delivered.kept} kept for the next time")
    parts += [f"{count} lost ({reason})" for reason, count in sorted(delivered.dropped.items())]
    return ", ".join(parts)


@main.command()
@click.option("--run", "run_id", required=True, metavar="ID", help="The run that the numbers belong to.")
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; as for trainers without.")
def agent(run_id: str, endpoint: str | None) -> None:
    """Send readings of this machine's GPUs and host to a run, for trainers that do not themselves."""
    import overwatch.sdk
    from overwatch.sdk.arguments import is_url

    if endpoint is not None and not is_url(endpoint):
        raise click.ClickException(f"endpoint {endpoint!r} is no URL; write e.g. http://127.0.0.1:4318")
    over: SimpleQueue[int] = SimpleQueue()
    with received((signal.SIGTERM, signal.SIGINT), over.put):
        host = os.environ.get("K8S_NODE_NAME") or socket.gethostname()
        # One process a machine: it sends what the sampler of a trainer would.
        run = overwatch.sdk.start(run_id=run_id, role=f"agent-{host}"[:64], rank=0, endpoint=endpoint)
        warn(f"sending numbers of {host} to run {run_id}; stop with SIGTERM or ctrl-c")
        number = over.get()
        ended = run.close(_CLOSE_S)
    if not ended.delivered:
        click.echo("not everything was delivered; `overwatch sync` does that later", err=True)
    sys.exit(STATUS if number == signal.SIGINT else 0 if ended.delivered else 1)


@main.command()
@file_option
@sets_option
@click.option("--endpoint", metavar="URL", help="A collector to send a real, empty OTLP request to.")
@click.option(
    "--only", "areas", multiple=True, type=click.Choice(_AREAS), help="Only this; more than once for several."
)
@format_option("text", "json")
def doctor(
    path: Path | None, sets: tuple[str, ...], endpoint: str | None, areas: tuple[str, ...], fmt: str
) -> None:
    """Check what on this machine will not work, and what to do.

    Looks at configuration, ports, disk, limits of the control group, the pod, names of hosts, GPUs, clocks,
    versions, the terminal and the collector. Status 0 where all is well, 1 with warnings, 2 with failures.
    """
    from overwatch.cli import doctor as examination

    found = examination.examined(path, sets, endpoint, areas)
    with until_unread():
        click.echo(examination.as_json(found) if fmt == "json" else "\n".join(examination.as_text(found)))
    sys.exit(examination.status(found))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for a shell, e.g. eval "$(overwatch completion bash)" in ~/.bashrc."""
    kind = get_completion_class(shell)
    root = context.find_root().command
    if kind is None:
        raise click.ClickException(f"no completion for {shell}")
    click.echo(kind(root, {}, "overwatch", "_OVERWATCH_COMPLETE").source())


def _settings_file() -> Path:
    need_textual()
    from overwatch.tui.settings import place

    return place()


def _data() -> Path:
    """The folder of the running collector, which may be another one than without it: that is reported."""
    from overwatch import config

    found, running = of_this_machine()
    usual = config.load(None, ()).data_folder
    if running is not None and found.data_folder != usual.absolute():
        warn(f"the running collector (pid {running.pid}) writes there; without it, it is {usual}")
    return found.data_folder


def _storage() -> str | None:
    """How much the collector has written, of what budget; `None` where nothing can be read."""
    from overwatch.collector.budget import look, summary
    from overwatch.collector.settings import written

    files = written(of_this_machine()[0])
    try:
        return summary(files, look(files), time.time())
    except OSError:
        return None


def _spool() -> Path:
    from overwatch.sdk.exporter.spool import spool_root

    return spool_root()


_PLACES: Final[dict[str, tuple[str, Callable[[], Path]]]] = {
    "config": ("settings of the terminal", _settings_file),
    "data": ("the collector's journal and recordings", _data),
    "spool": ("what trainers could not deliver yet", _spool),
    "discovery": ("where the running collector is announced", discovery.path),
}


@main.command()
@click.argument("what", type=click.Choice(list(_PLACES)), required=False)
def locate(what: str | None) -> None:
    """Print where something lies: the terminal's settings (config), or one of these; all without a name."""
    if what is not None:
        click.echo(_PLACES[what][1]())
        return
    for name, (means, place) in _PLACES.items():
        try:
            found = place()
        except click.ClickException as error:
            click.echo(f"{name:10} –\n{'':10} {error.message}")
            continue
        click.echo(f"{name:10} {found}{'' if found.exists() else '  (not there yet)'}\n{'':10} {means}")
        if name == "data" and (storage := _storage()) is not None:
            click.echo(f"{'':10} {storage}")


for _command in (
    attend, catalog, config, query, audit, export, report, compare, rules, fleet, follow,
    import_, web,
):  # fmt: skip
    main.add_command(_command)
