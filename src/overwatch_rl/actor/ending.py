"""Asks, beside an actor, whether the run that it acts for is over: nobody learns from what it does then.

Rules: an orchestrator that is away ends nothing, and the actor never waits for it. A run that failed may go
on, with a new life of its learner. Must not know how an actor works.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from overwatch_rl.orchestrator.client import OrchestratorError

POLL_INTERVAL_S: Final = 5.0
_OVER: Final = ("completed", "terminated")


@contextmanager
def until_over(
    stop: Callable[[], str | None], state: Callable[[], str], report: Callable[[str], None]
) -> Iterator[Callable[[], str | None]]:
    """Yield what gives the outcome to end with: that of `stop`, or that the run is over.

    `state` asks the orchestrator; `report` is given a line when the run is over.
    """
    over = threading.Event()

    def poll() -> None:
        """Ask until it is over."""
        while not over.wait(POLL_INTERVAL_S):
            try:
                found = state()
            except OrchestratorError:
                continue
            if found in _OVER:
                report(f"the run is {found}; this actor ends")
                over.set()

    threading.Thread(target=poll, name="run-end", daemon=True).start()
    try:
        yield lambda: stop() or ("completed" if over.is_set() else None)
    finally:
        over.set()
