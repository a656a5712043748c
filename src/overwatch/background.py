"""What threads and processes that work beside others do to stay out of the way.

Rules: whoever is waited for comes first, but what is done in the background gets on however busy the machine
is: without a share of its own it would never end beside a trainer that uses every core. Must not know what
is done.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from overwatch import platform

_NICE: Final = 10
"""A tenth of a busy core."""


def give_way(pid: int = 0) -> None:
    """Lower the priority of a process, of this one unless another is named; twice is as once.

    It takes the core from no one at work on it. Call it at the start of a process: to begin takes a lot too.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, max(os.getpriority(os.PRIO_PROCESS, pid), _NICE))
    platform.work_as_batch(pid)


def leave_a_core() -> None:
    """Keep this thread, and what it starts, off one of the cores that the process may use, if there are more.

    A thread that is woken to answer may wait for a tick of the kernel behind one that computes, even beside
    an idle core; there is one where none does.
    """
    cores = platform.cores()
    if len(cores) > 1:
        platform.keep_to(cores - {max(cores)})


class Periodic:
    """A thread that works, rests and works again until it is stopped."""

    def __init__(self, name: str, rest_s: float, work: Callable[[], None], share: float = 1.0) -> None:
        """`rest_s` is the least rest, also before the first work, which takes `share` of the time at most.

        An error of the work ends the thread.
        """
        self._work = work
        self._rest_s = rest_s
        self._share = share
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def is_running(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after the work that is under way; one that never began has ended."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        rest_s = self._rest_s
        while not self._ended.wait(rest_s):
            began = time.monotonic()
            self._work()
            rest_s = max(self._rest_s, (time.monotonic() - began) / self._share)
