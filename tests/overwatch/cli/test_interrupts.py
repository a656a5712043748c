"""Ctrl-C at any moment, and an output that is no longer read, end a command without a word."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner

from overwatch import sdk
from overwatch.cli import main
from overwatch.collector import process
from overwatch.sdk import Report
from tests.overwatch.simulate.runs import overwatch, record

HOOK = """
import os, signal, sys
sys.argv[0] = "overwatch"
def press(): os.kill(os.getpid(), signal.SIGINT)
class Press:
    def find_spec(self, name, *_):
        if name == {moment!r}: press()
class Dropped:
    def __del__(self): press()
    def find_spec(self, name, *_):
        if name == "overwatch.feeds.inputs": sys.meta_path.remove(self)
"""
RUN = "\nfrom overwatch.cli import main; main()"
MOMENTS = {
    "the first import": "sys.meta_path.insert(0, Press())",
    "an import of the command's": "sys.meta_path.insert(0, Press())",
    "a finalizer": "sys.meta_path.insert(0, Dropped())",
    "the exit": "import atexit; atexit.register(press)",
}
MODULES = {"the first import": "overwatch.cli.streams", "an import of the command's": "overwatch.codec"}


def _commands(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield from _commands(command, *names, name) if isinstance(command, click.Group) else [(*names, name)]


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with critical findings."""
    flags = ("--gpus", "1", "--envs", "4", "--slots", "1", "--seconds", "20", "--fault", "crash-storm@5")
    return record(tmp_path_factory.mktemp("interrupts") / "storm", *flags)


@pytest.mark.parametrize("words", list(_commands(main)), ids=" ".join)
def test_ctrl_c_in_any_command_is_its_status_alone(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever command it is, the status is 130 and nothing is printed."""

    def pressed() -> None:
        raise KeyboardInterrupt

    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    monkeypatch.setattr(command, "params", [])
    monkeypatch.setattr(command, "callback", pressed)
    result = CliRunner().invoke(main, words)

    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment_of_the_process(moment: str, storm: Path) -> None:
    """While it imports, where an exception would be dropped, while it exits: no traceback, status 130."""
    code = HOOK.format(moment=MODULES.get(moment)) + MOMENTS[moment] + RUN
    command = [sys.executable, "-c", code, "replay", str(storm), "--at", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (130, "")


def test_a_process_that_ignores_ctrl_c_goes_on(storm: Path) -> None:
    """As a job in the background of a script, which is started with the signal ignored."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + HOOK.format(
        moment="overwatch.codec"
    )
    code += MOMENTS["an import of the command's"] + RUN
    command = [sys.executable, "-c", code, "replay", str(storm), "--at", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("replay", "{storm}"), 0),
        (("export", "{storm}", "--to", "csv", "-o", "-"), 0),
        (("audit", "{storm}"), 1),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else None,
)
def test_an_output_that_is_no_longer_read_is_no_error(
    words: tuple[str, ...], status: int, storm: Path
) -> None:
    """As in `| head`: nothing on the error stream, and a command that judges keeps its status."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "overwatch.cli", *(word.format(storm=storm) for word in words)]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120)
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize(("number", "samples"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_command_that_waits_for_a_signal_has_its_status(
    number: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is no failure of what had nothing to do yet; SIGTERM leaves the status to what was done."""

    @contextmanager
    def received(_: tuple[int, ...], report: Callable[[int], None]) -> Iterator[None]:
        report(number)
        yield

    run = Mock(**{"close.return_value": Report(delivered=False, accepted=1, dropped={"unconfirmed": 1})})
    monkeypatch.setattr(sys.modules["overwatch.cli.main"], "received", received)
    monkeypatch.setattr(sdk, "start", Mock(return_value=run))

    assert overwatch("agent", "--run", "r").exit_code == samples


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_collector_that_stops_cleanly_has_the_status_of_ctrl_c(number: int, status: int) -> None:
    """A terminal sees that it was interrupted; whatever ended it as planned sees no failure."""
    requested: SimpleQueue[int] = SimpleQueue()
    requested.put(number)

    assert process._wait(Mock(), requested) == status
