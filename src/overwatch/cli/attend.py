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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final

import click

from overwatch import discovery
from overwatch.cli.children import Child, wait_for_file
from overwatch.cli.errors import warn
from overwatch.cli.program import Program, ProgramError
from overwatch.cli.streams import has_terminal
from overwatch.cli.viewclient import ViewUnreachableError, fetch_snapshot
from overwatch.discovery import Endpoints
from overwatch.endcard import card
from overwatch.extras import TUI
from overwatch.sdk.terminal import VARIABLE as QUIET
from overwatch.sdk.terminal import best_return, look
from overwatch.snapshot import Snapshot

_READY_S: Final = 30.0
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
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def watch(command: tuple[str, ...], *, no_screen: bool) -> None:
    """Run a program, with a collector where none runs, and show it in the terminal.

    \b
      overwatch watch -- python train.py --lr 3e-4

    q leaves the program running and prints how to look again; Ctrl-C goes to the program, once. When it has
    ended, the screen stays until q. The exit status is the program's, or 128 and the signal that ended it.
    """  # noqa: D301
    sys.exit(_attend(command, screen=not no_screen and _has_screen()))


def _attend(command: Sequence[str], *, screen: bool) -> int:
    folder = _folder()
    with _collector(folder) as (endpoints, collector):
        began = time.time()
        try:
            program = Program(command, _environment(endpoints), folder / "console.log" if screen else None)
        except ProgramError as error:
            raise click.ClickException(str(error)) from error
        if screen and endpoints.view is not None:
            _show(program, endpoints.view)
            if program.status is None:
                _leave(program, collector)
                return 0
        else:
            warn(f"overwatch: {program.shown} runs (pid {program.pid}); watch it: overwatch tui")
            with _passing_on(program):
                program.wait()
        warn(f"{program.ended} after {time.time() - began:,.0f} s")
        _print_end(program, _last(endpoints, began))
        return program.status or 0


def _has_screen() -> bool:
    if has_terminal() and TUI.missing:
        warn(TUI.need)
    return has_terminal() and not TUI.missing


def _folder() -> Path:
    """Where the console and the log of the collector go: beside what a collector writes."""
    from overwatch import config

    data = Path(config.load(None, ()).extensions.file_storage.directory)
    folder = data / "watched" / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be made: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def _collector(folder: Path) -> Iterator[tuple[Endpoints, "_Own | None"]]:
    """The collector of this machine, or a new one, which ends with the block unless it is left running.

    Raises `ClickException` where it does not start.
    """
    found = _running()
    if found is not None:
        yield found, None
        return
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "overwatch.cli", "collect"]
    own = _Own(Child("collector", command, folder, {"OVERWATCH_READY_FILE": str(ready)}))
    try:
        started = wait_for_file(ready, Endpoints, own.child, _READY_S)
        if started is None:
            raise click.ClickException(
                f"the collector did not start; its log is {own.child.log}:\n{own.child.tail()}"
            )
        yield started, own
    finally:
        if not own.is_left:
            own.child.stop(_STOP_S)


def _running() -> Endpoints | None:
    """The collector that is announced on this machine, if it answers."""
    found = discovery.read()
    if found is not None and found.view is not None:
        with contextlib.suppress(ViewUnreachableError):
            fetch_snapshot(found.view, None)
            return found
    return None


@dataclass(slots=True)
class _Own:
    """A collector that was started for the program."""

    child: Child
    is_left: bool = False
    """It goes on when this command has ended."""


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


@contextlib.contextmanager
def _passing_on(program: Program) -> Iterator[None]:
    """Signals that this process gets go to the program, Ctrl-C once."""

    def pass_on(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            warn(f"overwatch: {program.interrupt()}")
        else:
            program.send(signal.Signals(number))

    before = {one: signal.signal(one, pass_on) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


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


def _leave(program: Program, collector: _Own | None) -> None:
    """What goes on, and how to look again."""
    click.echo(f"{program.shown} goes on (pid {program.pid}); watch it: overwatch tui")
    click.echo(f"  console: {program.console}")
    click.echo(f"  end it:  kill -INT -{program.pid}")
    if collector is not None:
        collector.is_left, pid = True, collector.child.pid
        click.echo(f"  the collector goes on too (pid {pid}): kill {pid} ends it")
