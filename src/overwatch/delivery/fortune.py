"""What a trainer's log says of the collector: once how it takes it, and quiet while that changes to and fro.

Must not know requests or who sends.
"""

import logging
import math
import time
from typing import Final

from overwatch.delivery.request import Answer, Verdict

log: Final = logging.getLogger("overwatch.exporter")

_SAY_AGAIN_S: Final = 10.0


class Fortune:
    """An overseer that tells a person, and never gives up."""

    def __init__(self, shown: str | None) -> None:
        """`shown` is what a collector in trouble is called; without it only what it did not keep is said."""
        self._is_up: bool | None = None
        self._shown = shown
        self._said_at: dict[str, float] = {}
        self._told_down = False
        self._rejected = 0
        self._rejected_said = 0

    def note(self, answer: Answer) -> None:
        """Take an answer."""
        is_up = answer.verdict is Verdict.TAKEN
        if is_up is not self._is_up:
            if not is_up:
                self._say_down(answer)
            elif self._told_down:
                log.warning("the collector at %s takes telemetry again", self._shown)
                self._told_down = False
            self._is_up = is_up
        if answer.rejected:
            self._say_rejected(answer)

    def gives_up(self) -> str | None:
        """Telemetry waits for as long as the process lives."""
        return None

    def _say_down(self, answer: Answer) -> None:
        now = time.monotonic()
        if self._shown is None:
            return
        if now - self._said_at.get(answer.code, -math.inf) >= _SAY_AGAIN_S:
            self._said_at[answer.code] = now
            self._told_down = True
            log.warning(
                "the collector at %s does not take telemetry (%s); it is kept on disk: `overwatch collect` "
                "receives it, `overwatch sync` sends it later",
                self._shown,
                answer.detail,
            )

    def _say_rejected(self, answer: Answer) -> None:
        """At the first, and then each time the number has doubled."""
        self._rejected += answer.rejected
        if self._rejected >= 2 * self._rejected_said:
            self._rejected_said = self._rejected
            log.warning("the collector did not keep %d records: %s", self._rejected, answer.detail)
