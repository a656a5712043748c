"""How often something happened to each env in the last minute, and before it: counts in buckets of time.

Rules: producer time decides the bucket, never the clock; a late event counts in the newest bucket.
Must not know what is counted.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from overwatch.state.arrays import Ints, grown, ints

BUCKET_NS: Final = 5_000_000_000
BUCKETS: Final = 12
WINDOW_S: Final = BUCKETS * BUCKET_NS // 1_000_000_000
"""Seconds that a tally looks back."""


class Tally(msgspec.Struct, kw_only=True):
    """Counts per env; arrays have capacity C rows."""

    counts: Ints = msgspec.field(default_factory=lambda: ints(0, BUCKETS))
    """Ring of the newest buckets, shape (C, BUCKETS)."""
    totals: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Since the run's start, shape (C,)."""
    first_at: int = 0
    """Producer's time of the first event; 0 before it."""
    bucket: int = 0
    """Number of the newest bucket since the epoch; 0 before the first event."""

    def resize(self, rows: int) -> None:
        """Make room for `rows` envs."""
        self.counts = grown(self.counts, (rows, BUCKETS), 0)
        self.totals = grown(self.totals, (rows,), 0)

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """What has a row an env, with what an unused row holds."""
        yield self.counts, 0
        yield self.totals, 0

    def add(self, rows: Ints, at: int) -> None:
        """Count one event for each of these rows; a row may be named more than once."""
        self._turn(at // BUCKET_NS)
        if rows.size:
            self.first_at = self.first_at or at
        np.add.at(self.counts[:, self.bucket % BUCKETS], rows, 1)
        np.add.at(self.totals, rows, 1)

    def recent(self, n: int, now: int, seconds: int = WINDOW_S) -> Ints:
        """Events of each of the first `n` rows in the last `seconds` before `now`, shape (n,)."""
        newest = now // BUCKET_NS
        oldest = newest - seconds * 1_000_000_000 // BUCKET_NS
        held = [
            bucket % BUCKETS
            for bucket in range(self.bucket - BUCKETS + 1, self.bucket + 1)
            if bucket > oldest
        ]
        found: Ints = self.counts[:n][:, held].sum(axis=1)
        return found

    def is_quiet(self, now: int) -> bool:
        """Whether nothing happened to any env in the last minute before `now`."""
        return self.bucket <= now // BUCKET_NS - BUCKETS

    def _turn(self, bucket: int) -> None:
        """Move to a newer bucket and empty those between."""
        if bucket <= self.bucket:
            return
        for passed in range(max(self.bucket + 1, bucket - BUCKETS + 1), bucket + 1):
            self.counts[:, passed % BUCKETS] = 0
        self.bucket = bucket
