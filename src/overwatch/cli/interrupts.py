"""What Ctrl-C does to a command: it ends with status 130, and prints nothing of where it was.

Rules: while nothing is open yet, as during the imports, and at the process's end the process ends at once. In
between Ctrl-C is a `KeyboardInterrupt` as ever, so that a command closes what it opened. A command whose
own handler takes the signal is left alone, and so is a process that was started with the signal ignored. Main
thread only. Must not know commands.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STATUS: Final = 128 + signal.SIGINT
"""Exit status of a command that Ctrl-C ended, as shells give it."""
_SWALLOWED: Final = frozenset({"cb", "__del__"})
"""Functions whose exceptions the interpreter drops, by name: of the import system, and finalizers."""


@contextmanager
def ending_at_once() -> Iterator[None]:
    """In this context Ctrl-C ends the process silently."""
    if not _is_ours():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_where_it_is_seen() -> None:
    """From now on Ctrl-C is raised where it is not dropped."""
    if _is_ours():
        signal.signal(signal.SIGINT, _raise)


def end_at_once() -> None:
    """From now on Ctrl-C ends the process silently."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is _raise:
        signal.signal(signal.SIGINT, _end)


def _is_ours() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_name in _SWALLOWED:
        os.kill(os.getpid(), number)  # once more, until it falls on a frame that passes it on
        return
    raise KeyboardInterrupt
