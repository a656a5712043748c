"""What a process that works beside a trainer or a collector does to be in nobody's way.

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
