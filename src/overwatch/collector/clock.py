"""The time that stamps and ticks are made of: the machine's when the collector began, counted on from there.

Rules: a machine's clock that is set, by hand or by NTP, changes nothing but a line of the log: ages and
silences are measured in this time, and an hour that did not pass is none. The next life begins with
the machine's time of then. Must not know what is stamped.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from overwatch.platform import since_boot_ns

_STATED_NS: Final = 5_000_000_000
"""So far a clock may be set before it is logged."""

_log = logging.getLogger("overwatch.collector")


class SteadyClock:
    """Unix nanoseconds; safe from any thread."""

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = since_boot_ns
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._zero = wall() - steady()
        self._stated = 0
        """How far the machine's clock was ahead when that was logged."""

    def __call__(self) -> int:
        """The time."""
        now = self._steady() + self._zero
        ahead = self._wall() - now
        if abs(ahead - self._stated) > _STATED_NS:
            self._stated = ahead
            _log.warning(
                "the machine's clock was set and is %+.0f s from the time of stamps, which goes on as before "
                "until a restart",
                ahead / 1e9,
            )
        return now
