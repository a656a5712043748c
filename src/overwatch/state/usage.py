"""What a lane used of itself over minutes: the peaks of its memory, and how long it rested.

Rules: producer's time only; a hole between readings is not filled with a guess. Must not know why.
"""

import msgspec

from overwatch.state.ring import Ring

BUCKET_NS = 5_000_000_000
PEAKS = 64
"""Buckets remembered: somewhat over five minutes."""
LONGEST_GAP_NS = 30_000_000_000
"""Between two readings of utilisation; over a longer one nobody knows what the lane did."""


class Peaks(msgspec.Struct, kw_only=True):
    """The highest reading of each five seconds; what goes up and down with each update has level peaks."""

    at: Ring[int] = msgspec.field(default_factory=lambda: Ring(PEAKS))
    """When each of them was read."""
    highest: Ring[float] = msgspec.field(default_factory=lambda: Ring(PEAKS))

    def note(self, at: int, value: float) -> None:
        """Fold one reading; one that comes late counts in the newest bucket."""
        times, peaks = self.at.items, self.highest.items
        if not times or at // BUCKET_NS > times[-1] // BUCKET_NS:
            self.at.push(at)
            self.highest.push(value)
        elif value > peaks[-1]:
            times[-1], peaks[-1] = max(times[-1], at), value


class Rested(msgspec.Struct, kw_only=True):
    """How long a lane rested and worked, seconds, as far as it was read."""

    idle_s: float = 0.0
    busy_s: float = 0.0
    at: int = 0
    """Of the newest reading."""

    def note(self, at: int, utilization: float) -> None:
        """Fold one reading: the share of the time since the one before in which something ran."""
        past_ns = at - self.at if self.at else 0
        if 0 < past_ns <= LONGEST_GAP_NS:
            busy = min(1.0, max(0.0, utilization))
            self.busy_s += busy * past_ns / 1e9
            self.idle_s += (1.0 - busy) * past_ns / 1e9
        self.at = max(self.at, at)
