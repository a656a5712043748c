"""The operating system's signals."""

import signal
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from overwatch.os_signals import received

USER = (signal.SIGUSR1, signal.SIGUSR2)


def open_files() -> int:
    """How many files this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_signal_is_reported_while_the_main_thread_waits_for_a_lock() -> None:
    """Whichever thread the kernel gave it to."""
    reported: SimpleQueue[int] = SimpleQueue()
    with received(USER, reported.put):
        sender = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1))
        sender.start()
        # Without a timeout the wait would go on for good where the signal is lost.
        assert reported.get(timeout=20) == signal.SIGUSR1
        sender.join()


def test_all_that_came_is_reported_in_order_by_the_end() -> None:
    """Two kinds, in turns."""
    reported: list[int] = []
    with received(USER, reported.append):
        for number in USER * 3:
            signal.raise_signal(number)

    assert reported == [*USER] * 3


def test_other_signals_and_later_ones_are_not_reported() -> None:
    """Handlers, the wakeup descriptor and the open files are as before."""
    reported: list[int] = []
    seen: list[int] = []
    files = open_files()
    before = {number: signal.signal(number, lambda number, _: seen.append(number)) for number in USER}
    try:
        with received(USER[:1], reported.append):
            signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert (reported, seen) == ([], [signal.SIGUSR2, signal.SIGUSR1])
    assert signal.set_wakeup_fd(-1) == -1
    assert open_files() == files


def test_a_thread_other_than_the_main_one_is_refused() -> None:
    """By the interpreter's own error; nothing stays open."""
    raised: list[BaseException] = []

    def attempt() -> None:
        try:
            with received(USER, print):
                pytest.fail("only the main thread may set handlers")
        except ValueError as error:
            raised.append(error)

    files = open_files()
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()

    assert len(raised) == 1
    assert open_files() == files
