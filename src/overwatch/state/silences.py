"""How long each env is usually quiet: its own rhythm, on a clock that runs while the fleet reports.

Rules: a pause that all envs share (a learning phase, an evaluation) counts for one usual interval; facts
end a silence and teach no rhythm, since they come when they like. Must not know when a silence is too long.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.state.arrays import Floats, Ints, floats, grown, ints
from overwatch.state.places import Rows
from overwatch.state.ring import Ring, median

INTERVALS: Final = 16
"""Newest intervals of the fleet that are remembered."""
MEAN_OF: Final = 32
"""Gaps that an env's mean is about."""
FORGETS: Final = 1.0 - 1.0 / 1024
"""Share of its longest gap that is kept after one more: an accident fades, what comes again does not."""
LONGEST_NS: Final = 86_400_000_000_000
"""What one gap counts for at most: a clock that jumps is no silence."""
SECOND_NS: Final = 1_000_000_000


class Silences(msgspec.Struct, kw_only=True):
    """The silences of all envs; arrays have capacity C rows, all times are of the fleet's clock."""

    clock_ns: int = 0
    """Nanoseconds in which the fleet reported."""
    at: int = 0
    """Producer's time up to which the clock has run; 0 before the first record."""
    intervals: Ring[float] = msgspec.field(default_factory=lambda: Ring(INTERVALS))
    """Seconds from each of the newest seconds in which any env reported to the next such second."""
    last_ns: Ints = msgspec.field(default_factory=lambda: ints(0))
    """When each env last reported."""
    mean_s: Floats = msgspec.field(default_factory=lambda: floats(0))
    """Its mean gap, the newest ones foremost."""
    longest_s: Floats = msgspec.field(default_factory=lambda: floats(0))
    """Its longest gap, fading."""
    gaps: Ints = msgspec.field(default_factory=lambda: ints(0))
    """How many gaps that is known from."""

    def resize(self, rows: int) -> None:
        """Make room for `rows` envs."""
        for name in ("last_ns", "mean_s", "longest_s", "gaps"):
            setattr(self, name, grown(getattr(self, name), (rows,), 0))

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """What has a row an env, with what an unused row holds."""
        yield from ((array, 0) for array in (self.last_ns, self.mean_s, self.longest_s, self.gaps))

    def advance(self, at: int) -> None:
        """Run the clock to `at`, when some env reported."""
        if at <= self.at:
            return
        passed_ns, seconds = min(at - self.at, LONGEST_NS), at // SECOND_NS - self.at // SECOND_NS
        if self.at and seconds:
            usual_s = median(self.intervals.items)
            self.intervals.push(float(seconds))
            if usual_s is not None:
                passed_ns = min(passed_ns, int(usual_s * SECOND_NS))
        self.clock_ns += passed_ns if self.at else 0
        self.at = at

    def begin(self, rows: Rows, new: npt.NDArray[np.bool_], at: int) -> None:
        """Begin the silences of those of these envs that are `new`, at `at`."""
        self.advance(at)
        self.last_ns[rows] = np.where(new, self.clock_ns, self.last_ns[rows])

    def reported(self, rows: Rows, at: int, down: npt.NDArray[np.bool_] | None = None) -> None:
        """These envs reported at `at`; a silence of those that were `down` is not learned as a gap."""
        self.advance(at)
        gap_ns = self.clock_ns - self.last_ns[rows]
        learns = gap_ns > 0 if down is None else (gap_ns > 0) & ~down
        self.last_ns[rows] = self.clock_ns
        if not learns.all():
            if not learns.any():
                return
            rows, gap_ns = np.arange(self.gaps.size)[rows][learns], gap_ns[learns]
        gap_s = gap_ns / 1e9
        gaps = self.gaps[rows] + 1
        self.gaps[rows] = gaps
        self.mean_s[rows] += (gap_s - self.mean_s[rows]) / np.minimum(gaps, MEAN_OF)
        self.longest_s[rows] = np.maximum(gap_s, self.longest_s[rows] * FORGETS)

    def reported_one(self, row: int, at: int) -> None:
        """A fact about one env came at `at`."""
        self.advance(at)
        self.last_ns[row] = self.clock_ns
