"""`overwatch watch`: a program, a collector for it where none runs, and the terminal, in one command.

Rules: the program's status is this command's. To leave the screen ends neither the program nor the collector
that it sends to. At the program's end a card of five lines is printed, and the recording stays. Must not know
what the program sends.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from overwatch import discovery
from overwatch.cli import processes
from overwatch.cli.configuration import data_option, file_option, placed, port_base_option, sets_option
from overwatch.cli.processes import Program
from overwatch.cli.streams import has_terminal, warn
from overwatch.cli.viewclient import ViewUnreachableError, fetch_snapshot
from overwatch.discovery import Endpoints
from overwatch.endcard import card
from overwatch.extras import TUI
from overwatch.os_signals import received
from overwatch.sdk.terminal import VARIABLE as QUIET
from overwatch.sdk.terminal import best_return, look
from overwatch.snapshot import Snapshot

_STOP_S: Final = 15.0
_END_S: Final = 3.0
"""Longest wait for the end of the run to reach the collector."""
_AGAIN_S: Final = 0.1
_SLACK_S: Final = 1.0
"""Clocks of a trainer's and of this process may differ by so much."""
_TAIL: Final = 12
"""Lines of a failed program's console that are printed."""
_SENDS: Final = "OTEL_EXPORTER_OTLP_"
ATTACH: Final = """\
{program} sent nothing. To see a run, add two lines to it:
  run = overwatch.sdk.start(task="...", algo="ppo")
  run.update(update=n, return_=..., kl_divergence=..., entropy=...)   # after each update"""


@click.command(
    "watch",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a program and watch it in the terminal.",
)
@click.option("--no-screen", is_flag=True, help="No screen: the program's output as it comes.")
@file_option
@sets_option
@data_option
@port_base_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def watch(
    command: tuple[str, ...],
    path: Path | None,
    sets: tuple[str, ...],
    *,
    no_screen: bool,
    data: Path | None,
    port_base: int | None,
) -> None:
    """Run a program, with a collector where none runs, and show it in the terminal.

    \b
      overwatch watch -- python train.py --lr 3e-4

    q leaves the program running and prints how to look again; Ctrl-C goes to the program, once. When it has
    ended, the screen stays until q. The exit status is the program's, or 128 and the signal that ended it.
    --config, --set, --data and --port-base are those of the collector that it starts.
    """  # noqa: D301
    try:
        wanted = _Wanted(path, placed(path, sets, data, port_base))
        sys.exit(_attend(command, wanted, screen=not no_screen and _has_screen()))
    except ValueError as error:
        raise click.ClickException(str(error)) from error


class _Wanted(NamedTuple):
    """The configuration of a collector that is started here."""

    file: Path | None
    sets: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """Those of `overwatch collect`."""
        named = [] if self.file is None else ["--config", str(self.file)]
        return named + [word for one in self.sets for word in ("--set", one)]


def _attend(command: Sequence[str], wanted: _Wanted, *, screen: bool) -> int:
    """The program's status; raises `ValueError` where it or the collector cannot be started as wanted."""
    running = _running()
    if running is not None and wanted.arguments:
        raise ValueError(
            f"a collector runs already (pid {running.pid}), so none is started with --config, --set, --data "
            f"or --port-base; leave them out to send to it, or end it first: kill {running.pid}"
        )
    folder = _folder(wanted)
    with contextlib.ExitStack() as ending:
        endpoints, collector = (running, None) if running else _collector(wanted, folder, ending)
        began = time.time()
        program = Program(command, _environment(endpoints), folder / "console.log" if screen else None)
        if screen and endpoints.view is not None:
            _show(program, endpoints.view)
            if program.status is None:
                _leave(program, collector, _look(endpoints))
                ending.pop_all()
                return 0
        else:
            warn(f"overwatch: {program.shown} runs (pid {program.pid}); watch it: {_look(endpoints)}")
            with received((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), partial(_pass_on, program)):
                program.wait()
        warn(f"{program.ended} after {time.time() - began:,.0f} s")
        _print_end(program, _last(endpoints, began))
        return program.status or 0


def _has_screen() -> bool:
    if has_terminal() and TUI.missing:
        warn(TUI.need)
    return has_terminal() and not TUI.missing


def _folder(wanted: _Wanted) -> Path:
    """Where the console and the log of the collector go: beside what a collector writes.

    Raises `ValueError` where the configuration cannot be used.
    """
    from overwatch import config

    data = config.load_named(*wanted)[0].data_folder
    folder = data / "watched" / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be made: {error.strerror}") from error
    return folder


def _collector(wanted: _Wanted, folder: Path, ending: contextlib.ExitStack) -> tuple[Endpoints, Program]:
    """A new collector, which ends with the block; raises `ClickException` where it does not start."""
    started = processes.collector(folder, wanted.arguments)
    ending.callback(started.stop, _STOP_S)
    return processes.wait_ready(started, folder), started


def _running() -> Endpoints | None:
    """The collector that is announced on this machine, if it answers."""
    found = discovery.read()
    if found is not None and found.view is not None:
        with contextlib.suppress(ViewUnreachableError):
            fetch_snapshot(found.view, None)
            return found
    return None


def _environment(endpoints: Endpoints) -> dict[str, str]:
    """The program's: unbuffered, quiet, and sending here unless it names another place."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", QUIET: "1"}
    if endpoints.otlp_http is not None and not any(name.startswith(_SENDS) for name in environment):
        environment[f"{_SENDS}ENDPOINT"] = endpoints.otlp_http
        environment[f"{_SENDS}PROTOCOL"] = "http/protobuf"
    return environment


def _show(program: Program, view: str) -> None:
    """The screen, until the user leaves it."""
    from overwatch.tui import run_tui

    run_tui([view], None, attended=program)


def _pass_on(program: Program, number: int) -> None:
    """A signal that this process got goes to the program, Ctrl-C once."""
    if number == signal.SIGINT:
        warn(f"overwatch: {program.interrupt()}")
    else:
        program.send(signal.Signals(number))


def _last(endpoints: Endpoints, began: float) -> Snapshot | None:
    """The newest run that began after the program did, once its end has come; `None` where there is none."""
    deadline, found = time.monotonic() + _END_S, None
    while endpoints.view is not None:
        with contextlib.suppress(ViewUnreachableError):
            shown = fetch_snapshot(endpoints.view, None)
            if shown is not None and (shown.run.started or 0.0) >= began - _SLACK_S:
                found = shown
        if (found is not None and found.run.outcome is not None) or time.monotonic() >= deadline:
            break
        time.sleep(_AGAIN_S)
    return found


def _print_end(program: Program, last: Snapshot | None) -> None:
    if program.status:
        for line in program.tail(_TAIL):
            warn(f"  | {line}")
    if program.console is not None:
        warn(f"console: {program.console}")
    nothing = ATTACH.format(program=program.shown).splitlines()
    for line in nothing if last is None else _card(last):
        warn(line)


def _card(last: Snapshot) -> list[str]:
    run_id = last.run.run_id
    return card(last, look(run_id), best_return(run_id, _END_S))


def _look(endpoints: Endpoints) -> str:
    """How a person looks at the run."""
    return "overwatch tui" if endpoints.page is None else f"overwatch tui, or {endpoints.page}"


def _leave(program: Program, collector: Program | None, look_again: str) -> None:
    """What goes on, and how to look again."""
    click.echo(f"{program.shown} goes on (pid {program.pid}); watch it: {look_again}")
    click.echo(f"  console: {program.console}")
    click.echo(f"  end it:  kill -INT -{program.pid}")
    if collector is not None:
        click.echo(f"  the collector goes on too (pid {collector.pid}): kill {collector.pid} ends it")
