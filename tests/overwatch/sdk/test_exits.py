"""A process that ends, in every way there is: what its run reads afterwards, with `with run:` and without."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.events import LogLine, RunFinished
from tests.overwatch.sdk.sink import Sink, http_sink

HEAD = """
import atexit, os, signal, sys, threading
import overwatch.sdk
run = overwatch.sdk.start(run_id="ends", endpoint=ENDPOINT, sample=False)
run.log("working")
assert run.flush(30.0)
"""
HANDLER = """
def leave(number, frame):
    run.log("saving")
    sys.exit({code})
signal.signal(signal.{name}, leave)
os.kill(os.getpid(), signal.{name})
while True:
    pass
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def run_program(sink: Sink, body: str, folder: Path, head: str = HEAD) -> subprocess.CompletedProcess[str]:
    """Run a trainer as its own program, and wait until its exporter is gone too."""
    program = folder / "program.py"
    program.write_text(f"ENDPOINT = {sink.endpoint!r}\n{head}{textwrap.dedent(body)}")
    # Exporters share the error stream, which is read to its end: they are gone too.
    return subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=90, check=False
    )


def endings(sink: Sink) -> list[tuple[str, str | None]]:
    """Outcome and reason of each end that arrived, in order."""
    return [(event.outcome, event.reason) for event in sink.events(RunFinished)]


WAYS = {
    "": (0, "completed", None),
    "sys.exit()": (0, "completed", None),
    "sys.exit(1)": (1, "failed", "exit status 1"),
    "sys.exit('bad flag')": (1, "failed", "bad flag"),
    "raise SystemExit(3)": (3, "failed", "exit status 3"),
    "quit(4)": (4, "failed", "exit status 4"),
    "import argparse; argparse.ArgumentParser().parse_args(['--odd'])": (2, "failed", "exit status 2"),
    "import click; click.command()(lambda: 1 / 0)(['--odd'])": (2, "failed", "exit status 2"),
    "raise ValueError('bad')": (1, "failed", "ValueError: bad"),
    "raise KeyboardInterrupt": (-signal.SIGINT, "interrupted", "KeyboardInterrupt"),
    HANDLER.format(name="SIGTERM", code=0): (0, "interrupted", "SIGTERM"),
    HANDLER.format(name="SIGTERM", code=143): (143, "interrupted", "SIGTERM"),
    HANDLER.format(name="SIGUSR1", code="'preempted'"): (1, "interrupted", "SIGUSR1"),
    "t = threading.Thread(target=sys.exit, args=(1,)); t.start(); t.join()": (0, "completed", None),
    "try:\n    sys.exit(1)\nexcept SystemExit:\n    pass": (0, "completed", None),
}
"""A program's last lines: its status, and what its run reads."""


IN_BLOCK = ("", "sys.exit('bad flag')", "raise SystemExit(3)", HANDLER.format(name="SIGTERM", code=0))


@pytest.mark.parametrize(
    ("way", "is_block"), [*((way, False) for way in WAYS), *((way, True) for way in IN_BLOCK)]
)
def test_every_way_out_has_one_truth(sink: Sink, tmp_path: Path, way: str, *, is_block: bool) -> None:
    """A run that its process leaves reads the same as one that a block leaves."""
    status, outcome, reason = WAYS[way]
    body = f"with run:\n    pass\n{textwrap.indent(way, '    ')}" if is_block else way
    done = run_program(sink, body, tmp_path)
    assert (done.returncode, endings(sink)[-1]) == (status, (outcome, reason)), done.stderr


@pytest.mark.parametrize(
    ("way", "status", "ending"),
    [
        ("os._exit(0)", 0, ("completed", None)),
        ("os._exit(3)", 3, ("failed", "exit status 3")),
        ("os.abort()", -signal.SIGABRT, ("lost", "trainer killed by signal 6 (SIGABRT)")),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, ("lost", "trainer killed by signal 9 (SIGKILL)")),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, ("lost", "trainer killed by signal 15 (SIGTERM)")),
        (
            "if not (pid := os.fork()):\n    signal.pause()\nprint(pid, flush=True)\nos.kill(os.getpid(), 9)",
            -signal.SIGKILL, ("lost", "trainer killed by signal 9 (SIGKILL)"),
        ),
    ],
)  # fmt: skip
def test_a_process_that_goes_without_a_word_is_seen_by_its_exporter(
    sink: Sink, tmp_path: Path, way: str, status: int, ending: tuple[str, str | None]
) -> None:
    """One end record, from the process that outlives it: with its status or its signal."""
    program = tmp_path / "out.txt"
    with program.open("w") as out:
        (tmp_path / "program.py").write_text(f"ENDPOINT = {sink.endpoint!r}\n{HEAD}{way}")
        done = subprocess.run(
            [sys.executable, str(tmp_path / "program.py")], stdout=out, timeout=90, check=False
        )
    children = program.read_text().split()
    try:
        assert len(children) == way.count("os.fork()")
        sink.wait(lambda sink: sink.events(RunFinished))
    finally:
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
    assert (done.returncode, endings(sink)) == (status, [ending])


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("try:\n    1 / 0\nfinally:\n    run.close()", ("failed", "ZeroDivisionError: division by zero")),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError:\n    run.close()",
            ("failed", "ZeroDivisionError: division by zero"),
        ),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\nrun.close()", ("completed", None)),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError:\n    run.close(outcome='completed')",
            ("completed", None),
        ),
        (
            "try:\n    1 / 0\nexcept Exception:\n    overwatch.sdk.start(endpoint=ENDPOINT).close(5.0)",
            ("completed", None),
        ),
    ],
)
def test_a_close_on_the_way_out_knows_the_way(
    sink: Sink, tmp_path: Path, body: str, ending: tuple[str, str | None]
) -> None:
    """In `finally` and `except` the exception decides, unless the outcome is given or it came before."""
    run_program(sink, body, tmp_path)
    assert endings(sink)[0] == ending


def test_a_crash_while_the_interpreter_ends_is_no_success(sink: Sink, tmp_path: Path) -> None:
    """Handlers of `atexit` run after ours where they were registered before."""
    run_program(sink, "", tmp_path, head=f"import atexit, os; atexit.register(os.abort){HEAD}")
    assert endings(sink)[-1] == ("failed", "killed by signal 6 (SIGABRT) while it exited")


WORKER = """
import multiprocessing as mp, sys
import overwatch.sdk

def work(way):
    run = overwatch.sdk.start(run_id="worker", endpoint=ENDPOINT, sample=False)
    run.log("working")
    exec(way)

if __name__ == "__main__":
    child = mp.get_context({how!r}).Process(target=work, args=({way!r},))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize(
    ("way", "ended"),
    [
        ("pass", (0, ("completed", None))),
        ("raise ValueError('bad')", (1, ("failed", "ValueError: bad"))),
        ("raise SystemExit(3)", (3, ("failed", "exit status 3"))),
    ],
)
def test_a_worker_without_close_ends_as_it_ends(
    sink: Sink, tmp_path: Path, how: str, way: str, ended: tuple[int, tuple[str, str | None]]
) -> None:
    """Python runs no `atexit` in a forked worker; its run ends all the same, well or not."""
    done = run_program(sink, WORKER.format(how=how, way=way), tmp_path, head="")
    assert (done.returncode, *endings(sink)) == ended, done.stderr
    assert [event.message for event in sink.events(LogLine)] == ["working"]


POOL = """
import multiprocessing as mp, signal, sys
import overwatch.sdk

def work(ready):
    run = overwatch.sdk.start(run_id="worker", endpoint=ENDPOINT, sample=False)
    run.log("working")
    assert run.flush(30.0)
    ready.set()
    signal.pause()

if __name__ == "__main__":
    context = mp.get_context("fork")
    with context.Manager() as manager, context.Pool(1) as pool:
        ready = manager.Event()
        pool.apply_async(work, [ready])
        sys.exit(not ready.wait(60.0))
"""


def test_a_worker_that_its_pool_ends_was_asked_to_end(sink: Sink, tmp_path: Path) -> None:
    """A pool ends its workers with SIGTERM: their runs are not lost, and perhaps were not done."""
    done = run_program(sink, POOL, tmp_path, head="")
    assert done.returncode == 0, done.stderr
    assert endings(sink) == [
        ("interrupted", "worker ended by signal 15 (SIGTERM), as a pool ends its workers")
    ]


NOTEBOOK = """
import sys, types

class Events:
    def __init__(self):
        self.callbacks = []
    def register(self, name, callback):
        assert name == "post_run_cell"
        self.callbacks.append(callback)
    def unregister(self, name, callback):
        self.callbacks.remove(callback)

shell = types.SimpleNamespace(events=Events())
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)

def cell(body):
    error = None
    try:
        exec(body, globals())
    except BaseException as raised:
        error = sys.last_value = raised
    result = types.SimpleNamespace(error_before_exec=None, error_in_exec=error)
    for callback in list(shell.events.callbacks):
        callback(result)

cell("import overwatch.sdk")
cell("1 / 0")
cell("run = overwatch.sdk.start(run_id='cells', endpoint=ENDPOINT, sample=False)")
"""
"""A shell with the events of IPython."""
GOOD, BAD = "run.log('trained')", "run.log('trained'); raise ValueError('NaN in the loss')"
FAILED = ("failed", "ValueError: NaN in the loss")


@pytest.mark.parametrize(
    ("cells", "ending"),
    [
        ([], ("completed", None)),
        ([GOOD], ("completed", None)),
        ([BAD], FAILED),
        ([GOOD, "raise ValueError('NaN in the loss')"], FAILED),
        ([BAD, "print('a plot')"], FAILED),
        ([BAD, GOOD], ("completed", None)),
        ([GOOD, "typo", "print('a plot')"], ("completed", None)),
        (["run.log('trained'); raise KeyboardInterrupt"], ("interrupted", "KeyboardInterrupt")),
        ([BAD, "run.close()"], ("completed", None)),
    ],
)
def test_the_last_cell_that_used_the_run_decides(
    sink: Sink, tmp_path: Path, cells: list[str], ending: tuple[str, str | None]
) -> None:
    """An exception ends a cell and not the kernel, whose end is no end of the training."""
    run_program(sink, "".join(f"cell({cell!r})\n" for cell in cells), tmp_path, head=NOTEBOOK)
    assert endings(sink) == [ending]
