"""One rule for the end of a run, whatever it is read from: an exception, an exit status, a wait status."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

import pytest

from overwatch.sdk.ending import COMPLETED, Ending, corrected, of_error, of_exit, of_status, of_wait


class TrialPruned(Exception):  # noqa: N818 as Optuna calls it
    """Optuna's early end of a trial."""


class Unspeakable(Exception):  # noqa: N818 a stranger's
    """An exception that breaks when it is asked for text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (None, COMPLETED),
        (ValueError("bad"), Ending("failed", "ValueError: bad")),
        (ValueError(), Ending("failed", "ValueError")),
        (Unspeakable(), Ending("failed", "Unspeakable")),
        (KeyboardInterrupt(), Ending("interrupted", "KeyboardInterrupt")),
        (asyncio.CancelledError(), Ending("interrupted", "CancelledError")),
        (GeneratorExit(), Ending("interrupted", "GeneratorExit")),
        (TrialPruned("step 3"), Ending("completed", "TrialPruned: step 3")),
        (SystemExit(), COMPLETED),
        (SystemExit(0), COMPLETED),
        (SystemExit("bad flag"), Ending("failed", "bad flag")),
        (SystemExit(""), Ending("failed", "")),
        (SystemExit(2), Ending("failed", "exit status 2")),
        (SystemExit(Unspeakable()), Ending("failed", "exit status 1")),
    ],
)
def test_an_exception_decides_the_outcome(error: BaseException | None, ending: Ending) -> None:
    """A stop from outside interrupts, an early end completes, everything else fails with its words."""
    assert of_error(error) == ending


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (True, Ending("failed", "exit status 1")),
        (-1, Ending("failed", "exit status 255")),
        (256, COMPLETED),
        (143, Ending("interrupted", "exit status 143 (SIGTERM)")),
        (130, Ending("interrupted", "exit status 130 (SIGINT)")),
        (137, Ending("failed", "exit status 137")),
        ((1, 2), Ending("failed", "(1, 2)")),
    ],
)
def test_an_exit_code_is_read_as_the_system_reads_it(code: object, ending: Ending) -> None:
    """Of a number eight bits count, text is an error, and 128 plus a signal is a handler's exit."""
    assert of_exit(code) == ending


@pytest.mark.parametrize("status", range(256))
def test_no_status_but_zero_is_completed(status: int) -> None:
    """All that a process can exit with, in process and from outside."""
    assert (of_status(status) == COMPLETED) is (status == 0)
    assert of_wait(status << 8) == of_status(status)


def test_a_killed_trainer_is_lost_with_its_signal() -> None:
    """A known signal is named, an unknown end is not guessed, and memory is blamed for SIGKILL alone."""
    assert of_wait(9) == Ending("lost", "trainer killed by signal 9 (SIGKILL)")
    assert of_wait(11 | 128) == Ending("lost", "trainer killed by signal 11 (SIGSEGV)")
    assert of_wait(40) == Ending("lost", "trainer killed by signal 40")
    assert of_wait(None) == Ending("lost", "trainer gone without an end")
    assert of_wait(9, "/pod").reason == (
        "trainer killed by signal 9 (SIGKILL): out of memory (control group /pod)"
    )
    assert of_wait(15, "/pod").reason == "trainer killed by signal 15 (SIGTERM)"


def test_a_daemonic_worker_that_its_parent_ends_is_interrupted_and_by_nothing_else() -> None:
    """A pool ends its workers with SIGTERM; a kill, a crash and an exit stay what they are."""
    ended = "worker ended by signal 15 (SIGTERM), as a pool ends its workers"
    assert of_wait(15, is_daemon=True) == Ending("interrupted", ended)
    for status in (9, 11 | 128, 0, 3 << 8, 143 << 8, None):
        assert of_wait(status, is_daemon=True) == of_wait(status)


@pytest.mark.parametrize(
    ("presumed", "status", "ending"),
    [
        ("completed", 0, None),
        ("completed", None, None),
        ("completed", 3 << 8, Ending("failed", "exit status 3")),
        ("completed", 143 << 8, Ending("interrupted", "exit status 143 (SIGTERM)")),
        ("completed", 11, Ending("failed", "killed by signal 11 (SIGSEGV) while it exited")),
        ("completed", 15, None),
        ("completed", 9, None),
        ("failed", 1 << 8, None),
        ("interrupted", 9, None),
    ],
)
def test_only_a_presumed_success_is_corrected(
    presumed: str, status: int | None, ending: Ending | None
) -> None:
    """A process that knew why it ended knew more than its status."""
    assert corrected(presumed, status) == ending


class Saver:
    """Handlers as programs have them: each ends the program in its own way."""

    def method(self, number: int, frame: FrameType | None) -> None:
        """A method that fails."""
        raise RuntimeError(f"{number} at {frame}")

    def __call__(self, *_: object) -> None:
        """An object, and an exit that reads as success."""
        raise SystemExit(0)


def _ignores_more(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
@pytest.mark.parametrize("handler", [Saver().method, Saver(), _ignores_more])
def test_what_a_signals_handler_raises_is_an_interruption(
    number: signal.Signals, handler: Callable[..., None]
) -> None:
    """However it leaves, with status 0 too: the signal is the reason."""
    before = signal.signal(number, handler)
    error: BaseException | None = None
    try:
        os.kill(os.getpid(), number)
    except BaseException as raised:  # noqa: BLE001 a handler may raise anything
        error = raised
    finally:
        signal.signal(number, before)
    assert of_error(error) == Ending("interrupted", number.name)


def test_a_handler_called_by_hand_is_no_signal() -> None:
    """A cleanup that serves as a handler too ends a program as any function does."""
    with pytest.raises(SystemExit) as caught:
        Saver()(signal.SIGTERM, None)
    assert of_error(caught.value) == COMPLETED
