"""Retries of calls by stamina: at growing intervals with jitter, until a deadline."""

import time
from collections.abc import Callable
from typing import Any

import stamina
from stamina.instrumentation import set_on_retry_hooks

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 2.0

set_on_retry_hooks(())  # a tried call is no line on the screen, and no series of the default registry


def retrying(patience_s: float, passes: Callable[[Exception], bool | float]) -> Any:
    """Return the tries of a call for so long, to be iterated with or without `async`.

    `passes` is given an error, and answers whether to try again, or in how many seconds.
    """
    until = time.monotonic() + patience_s

    def decide(error: Exception) -> bool | float:
        """Try again as long as there is time."""
        found = passes(error)
        wait_s = FIRST_WAIT_S if found is True else float(found)
        return found if time.monotonic() + wait_s < until else False

    return stamina.retry_context(
        on=decide,
        attempts=None,
        timeout=None,
        wait_initial=FIRST_WAIT_S,
        wait_jitter=FIRST_WAIT_S,
        wait_max=LONGEST_WAIT_S,
    )
