"""What threads and processes that work beside others do to be in nobody's way.

Rules: whoever is waited for comes first, but what is done in the background gets on however busy the machine
is: without a share of its own it would never end beside a trainer that uses every core. Must not know what
is done.
"""

import contextlib
import os
from typing import Final

from overwatch import platform

_NICE: Final = 10
"""A tenth of a busy core."""


def give_way(pid: int = 0) -> None:
    """Lower the priority of a process, of this one unless another is named; saying it twice is as once.

    It takes the core from nobody who is at work on it. Who starts one says so: to begin takes a lot too.
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
