"""The clock of a journal: stamps that rise, ticks that are sealed, and the gaps in which there were neither.

Owns the rule of a gap. Where for `AWAY_NS` no stamp was given and no tick was sealed, the process did not
run: it was stopped, its machine slept, or it had no CPU or disk. What producers sent then waits, so their
silence means nothing. A gap ends with a start record, stamped before all that comes after it. A reader of
ticks that is slow while batches come makes no gap. The caller holds the journal's lock. Must not know what is
stamped, nor how long a tick is.
"""

from collections.abc import Callable
from typing import Final

from overwatch.journal.batches import Batch, Gap, Signal

AWAY_NS: Final = 2_500_000_000
"""Half of the silence of a trainer that is a finding: it may have been silent for a moment before."""


class Stamps:
    """What was stamped and sealed last, and the gaps that the reader of ticks has not passed."""

    def __init__(self, now: Callable[[], int], newest: int = 0) -> None:
        self.newest = newest
        """The newest stamp or sealed tick; 0 for none, and then there is no gap either."""
        self.restarted: Callable[[int], bytes] | None = None
        """Makes the body of the start record that ends a gap, of its `before`; without it none is noted."""
        self._now = now
        self._gaps: list[Gap] = []

    def give(self) -> int:
        """The stamp of the next batch."""
        self.newest = max(self.newest + 1, self._now())
        return self.newest

    @property
    def is_late(self) -> bool:
        """Whether there is a gap that no start record ended yet."""
        return self.restarted is not None and 0 < self.newest < self._now() - AWAY_NS

    def end_gap(self, sequence: int) -> Batch | None:
        """The start record that is to come next, if there is a gap."""
        if self.restarted is None or not self.is_late:
            return None
        body = self.restarted(self.newest)
        gap = Gap(before=self.newest, stamp=self.give())
        self._gaps.append(gap)
        return Batch(sequence=sequence, stamp=gap.stamp, signal=Signal.START, body=body)

    def seal(self, tick: int) -> None:
        """Whatever comes is stamped after `tick`; gaps before it are passed."""
        self.newest = max(self.newest, tick)
        self._gaps = [gap for gap in self._gaps if gap.stamp > tick]

    def reach(self, tick: int) -> Gap | None:
        """Seal `tick`, or return the gap that it lies in."""
        found = next((gap for gap in self._gaps if gap.before < tick < gap.stamp), None)
        if found is None:
            self.seal(tick)
        return found
