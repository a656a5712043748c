"""Looks, beside an actor, whether the run that it acts for is over: nobody learns from what it does then.

Rules: an orchestrator that is away ends nothing, and the actor never waits for it. A run that failed may go
on, with a new life of its learner. Must not know how an actor works.
"""

import threading
from collections.abc import Callable
from typing import Final

from overwatch_rl.orchestrator.client import OrchestratorError

POLL_INTERVAL_S: Final = 5.0
"""Between two looks."""
_OVER: Final = ("completed", "terminated")


class RunEnd:
    """Why to end: as the actor was asked, or because the run is over."""

    def __init__(
        self, stop: Callable[[], str | None], state: Callable[[], str], report: Callable[[str], None]
    ) -> None:
        """`state` asks the orchestrator; `report` is given a line when the run is over."""
        self._stop, self._state, self._report = stop, state, report
        self._is_over = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="run-end", daemon=True)
        self._thread.start()

    def outcome(self) -> str | None:
        """The outcome to end with now, or `None` to go on."""
        return self._stop() or ("completed" if self._is_over else None)

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(POLL_INTERVAL_S):
            try:
                state = self._state()
            except OrchestratorError:
                continue
            if state in _OVER:
                self._report(f"the run is {state}; this actor ends")
                self._is_over = True
                return
