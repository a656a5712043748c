"""What threads and processes that work beside others do to be in nobody's way.

Rules: whoever is waited for comes first, but what is done in the background gets on however busy the machine
is: without a share of its own it would never end beside a trainer that uses every core. Must not know what
is done.
"""

import contextlib
import os
from typing import Final

_NICE: Final = 10
"""A tenth of a busy core."""


def give_way() -> None:
    """Lower the priority of this process; it takes the core from nobody who is at work on it."""
    os.nice(_NICE)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def leave_a_core() -> None:
    """Keep this thread, and what it starts, off one of the cores that the process may use, if there are more.

    A thread that is woken to answer may wait for a tick of the kernel behind one that computes, even beside
    an idle core; there is one where none does.
    """
    with contextlib.suppress(OSError, AttributeError):
        cores = os.sched_getaffinity(os.getpid())
        if len(cores) > 1:
            os.sched_setaffinity(0, cores - {max(cores)})
