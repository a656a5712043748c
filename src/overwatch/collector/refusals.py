"""Runs that are refused because as many live as there may be: seen on the health page and in the log.

Owns the condition `runs`, from the first refusal until none came for a minute. A frame sink: it reads counts
of the fold and returns at once. Must not know why runs live.
"""

from typing import TYPE_CHECKING, Final

from overwatch.collector.health import Health
from overwatch.fold import SLOW_NS

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

PART: Final = "runs"
CLEAR_NS: Final = 60 * SLOW_NS
"""So long without a refusal ends the condition."""


class Refusals:
    """The condition of one collector."""

    def __init__(self, health: Health, max_runs: int) -> None:
        self._health = health
        self._max_runs = max_runs
        self._before: int | None = None
        """Records that were refused up to the frame before; what earlier lives refused is no news."""
        self._since = 0
        self._at: int | None = None
        """Tick of the newest refusal, while the condition holds."""

    def publish(self, frame: "Frame") -> None:
        """Compare the count with the one of the frame before."""
        refused, before = frame.tower.refused_runs, self._before
        self._before = refused
        if before is not None and refused > before:
            if self._at is None:
                self._since = before
            self._at = frame.tick
            self._health.failed(
                PART,
                f"{refused - self._since:,} records of new runs were refused: no run in memory is over, "
                f"and max_runs is {self._max_runs}; raise exporters.aggregator.max_runs or add a collector",
            )
        elif self._at is not None and frame.tick - self._at >= CLEAR_NS:
            self._at = None
            self._health.recovered(PART)

    def close(self) -> None:
        """Nothing waits."""
