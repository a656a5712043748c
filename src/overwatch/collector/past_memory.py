"""How much memory what earlier lives journalled may take, so that enough is left to accept requests.

Rules: what is left out is missing in the fold, never in the recording. Must not know what a fold holds.
"""

from collections.abc import Callable
from typing import Final

from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig, Resident, reclaim

OF_LIMIT: Final = 0.9
"""Part of the memory from which on requests are refused that the past may take."""
_LEAST_GAIN: Final = 16
"""Giving memory back is worth it where it gives this part of the limit."""
_PART: Final = "resume"


class PastMemory:
    """The memory that is left while the past is folded."""

    def __init__(
        self, health: Health, limits: LimitsConfig, resident: Callable[[], int] | None = None
    ) -> None:
        self._health, self._soft = health, limits.soft_bytes
        self._resident = resident or Resident()
        self._is_full = False
        self._left_out: list[str] = []

    def has_room(self) -> bool:
        """Whether more of the past can be folded; where it could not, memory is given back first."""
        limit = OF_LIMIT * self._soft
        held = self._resident()
        if not self._is_full and held > limit:
            reclaim()
            left = self._resident()
            self._is_full = left > limit or held - left < limit / _LEAST_GAIN
        return not self._is_full

    def leave_out(self, what: str) -> None:
        """Note that this too of the past is not folded, in the log and in the health."""
        self._left_out.append(what)
        self._health.failed(
            _PART,
            f"left out of the live view: {', '.join(self._left_out)}; the recording has all of it "
            f"({self._soft >> 20} MiB are the memory to accept within; for more set "
            "receivers.otlp.limits.limit_mib, or give the process more memory)",
        )

    def done(self, left_out: int) -> None:
        """The past is folded, but for so many batches."""
        if left_out:
            self.leave_out(f"the last {left_out} batches that earlier lives journalled")
