"""The operating system's signals, as numbers passed to a function whatever the main thread waits for.

Rules: a handler written in Python runs only when the main thread next executes bytecode, and a signal that
comes just before it begins to wait for a lock, or that the kernel gives to another thread, does not wake it.
So the interpreter writes each signal's number to a pipe, which a thread of its own reads. Main thread only.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_END: Final = b"\0"
"""No signal has the number 0."""
_READ: Final = 512


@contextmanager
def received(numbers: tuple[signal.Signals, ...], report: Callable[[int], None]) -> Iterator[None]:
    """In this context `report` is called with each of these signals, in order, by a thread of its own.

    What handled them before, and the interpreter's wakeup descriptor, are put back at the end; by then all
    that came is passed on. Raises `ValueError` in another than the main thread.
    """
    inner, outer = os.pipe()
    os.set_blocking(outer, False)
    reader = threading.Thread(
        target=_receive, args=(inner, frozenset(numbers), report), name="signals", daemon=True
    )
    try:
        woken = signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        before = {number: signal.signal(number, _nothing) for number in numbers}
        reader.start()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
            os.write(outer, _END)
            reader.join()
    finally:
        os.close(outer)
        os.close(inner)


def _nothing(*_: object) -> None:
    """A handler must be there, or the signal ends the process."""


def _receive(inner: int, numbers: frozenset[int], report: Callable[[int], None]) -> None:
    while True:
        for number in os.read(inner, _READ):
            if not number:
                return
            if number in numbers:
                report(number)
