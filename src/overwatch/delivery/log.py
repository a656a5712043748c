"""What a trainer's log holds of the collector: each change once, and nothing while it changes to and fro.

Must not know requests or who sends.
"""

import logging
import math
import time
from typing import Final

from overwatch.delivery.request import Answer, Verdict

log: Final = logging.getLogger("overwatch.exporter")

_REPEAT_S: Final = 10.0


class DeliveryLog:
    """An overseer that logs, and never gives up."""

    def __init__(self, shown: str | None) -> None:
        """`shown` is what a collector in trouble is called; `None` logs only what it did not keep."""
        self._is_up: bool | None = None
        self._shown = shown
        self._logged_at: dict[str, float] = {}
        self._logged_down = False
        self._rejected = 0
        self._rejected_logged = 0

    def note(self, answer: Answer) -> None:
        """Take an answer."""
        is_up = answer.verdict is Verdict.TAKEN
        if is_up is not self._is_up:
            if not is_up:
                self._log_down(answer)
            elif self._logged_down:
                log.warning("the collector at %s takes telemetry again", self._shown)
                self._logged_down = False
            self._is_up = is_up
        if answer.rejected:
            self._log_rejected(answer)

    def gives_up(self) -> str | None:
        """Telemetry waits for as long as the process lives."""
        return None

    def _log_down(self, answer: Answer) -> None:
        now = time.monotonic()
        if self._shown is None:
            return
        if now - self._logged_at.get(answer.code, -math.inf) >= _REPEAT_S:
            self._logged_at[answer.code] = now
            self._logged_down = True
            log.warning(
                "the collector at %s does not take telemetry (%s); it is kept on disk: `overwatch collect` "
                "receives it, `overwatch sync` sends it later",
                self._shown,
                answer.detail,
            )

    def _log_rejected(self, answer: Answer) -> None:
        """At the first, and then each time the number has doubled."""
        self._rejected += answer.rejected
        if self._rejected >= 2 * self._rejected_logged:
            self._rejected_logged = self._rejected
            log.warning("the collector did not keep %d records: %s", self._rejected, answer.detail)
