"""The producers of one run: who spoke when, which records are new, how far their clock is from ours."""

import msgspec

from overwatch.events import Origin
from overwatch.state.ring import Ring, median

MAX_GAPS = 65_536
"""Missing sequence numbers remembered per producer, so that a late record still counts once."""


class Source(msgspec.Struct, kw_only=True):
    """One life of one producer process."""

    name: str
    rank: int = 0
    stamp: int = 0
    """Receive stamp of its newest batch."""
    at: int = 0
    """Producer's time of its newest record."""
    high: int = 0
    """Highest sequence number seen."""
    gaps: dict[int, bool] = msgspec.field(default_factory=dict)
    duplicates: int = 0
    least_delay: int | None = None
    """Smallest receive − producer seen, nanoseconds: the clocks' offset plus the shortest way."""
    delay: int = 0
    """Receive − producer of the newest record."""
    intervals: Ring[float] = msgspec.field(default_factory=lambda: Ring(16))
    """Seconds between its newest batches."""
    dropped: int | None = None
    """Records its own side dropped, as it last said."""
    finished: bool = False

    def is_new(self, seq: int | None) -> bool:
        """Whether this record was not folded before; records without a number always are."""
        if seq is None:
            return True
        if seq > self.high:
            if seq - self.high <= MAX_GAPS - len(self.gaps):
                self.gaps.update(dict.fromkeys(range(self.high + 1, seq), True))
            self.high = seq
            return True
        if seq in self.gaps:
            del self.gaps[seq]
            return True
        self.duplicates += 1
        return False

    def heard(self, stamp: int, at: int) -> None:
        """Note one record's receive stamp and producer time."""
        if stamp != self.stamp:
            if self.stamp:
                self.intervals.push((stamp - self.stamp) / 1e9)
            self.stamp = stamp
        self.at = max(self.at, at)
        self.delay = stamp - at
        self.least_delay = self.delay if self.least_delay is None else min(self.least_delay, self.delay)

    def interval_s(self) -> float | None:
        """Median seconds between batches."""
        return median(self.intervals.items)

    def lag_s(self) -> float:
        """How much later than usual the newest record came, clock skew removed, seconds."""
        return 0.0 if self.least_delay is None else (self.delay - self.least_delay) / 1e9


def source_key(origin: Origin) -> str:
    """Identity of one life of one producer."""
    return f"{origin.role}/{origin.rank}/{origin.epoch}"
