"""The producers of one run: who spoke when, which records are new, how far their clock is from ours."""

from collections.abc import Iterable
from typing import Final

import msgspec

from overwatch.catalog.tallies import SCOPE_OF_ROLE
from overwatch.events import Origin, RunFinished
from overwatch.state.ring import Ring, median

OUTAGE_S: Final = 5.0
"""A hole between batches, after which data comes this late, was an outage: a spool kept the data."""
INTERVALS: Final = 3
"""A producer may be quiet for so many of its own intervals..."""
LONGEST_TIMES: Final = 2.0
"""...or for so many times its longest pause."""
SHORTEST_S: Final = 1.0
"""An interval of so much may be any shorter one: it allows for nothing."""
STALE_S: Final = 5.0
"""The least patience with a producer that promised an end record: it emits by the second..."""
FOREIGN_S: Final = 60.0
"""...and with one that promised nothing, once its rhythm is known..."""
UNKNOWN_S: Final = 180.0
"""...and before: three export intervals of OpenTelemetry's default."""
LONGEST_S: Final = 900.0
"""A pause beyond this adds no patience: that a producer was killed must become known."""
LEAST_INTERVALS: Final = 3
"""Intervals that make a rhythm."""
TRAINER: Final = "trainer"
LEARNS: Final = frozenset({TRAINER, "learner"})
"""Roles whose numbers of a policy are the run's, and that hold a run, where any producer has one of them."""
MAX_GAPS = 65_536
"""Missing sequence numbers remembered per producer, so that a late record still counts once."""
_NAMED: Final = 3
"""Producers named where many are meant."""
SECOND_NS: Final = 1_000_000_000


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A spool that empties after an outage, since its first batch."""

    away_s: float
    """How long nothing had come."""
    stamp: int
    at: int
    """Producer's time of the first record."""


class Source(msgspec.Struct, kw_only=True):
    """One life of one producer process."""

    name: str
    rank: int = 0
    stamp: int = 0
    """Receive stamp of its newest batch."""
    at: int = 0
    """Producer's time of its newest record."""
    first_at: int = 0
    """Producer's time of the first record that was heard of it."""
    high: int = 0
    """Highest sequence number seen."""
    gaps: dict[int, bool] = msgspec.field(default_factory=dict)
    duplicates: int = 0
    least_delay: int | None = None
    """Smallest receive − producer seen, nanoseconds: the clocks' offset plus the shortest way."""
    delay: int = 0
    """Receive − producer of the newest record."""
    intervals: Ring[float] = msgspec.field(default_factory=lambda: Ring(16))
    """From each of the newest seconds with a batch to the next such second, in whole seconds."""
    drain: Drain | None = None
    """Present while data comes late because of an outage."""
    sampled: int = 0
    """Receive stamp of its newest readings of machines; 0 while it sent none."""
    dropped: int | None = None
    """Records its own side dropped, as it last said."""
    promised: bool = False
    """Whether it ends with a record: Overwatch's SDK does, and any producer that sent a start or an end."""
    longest_s: float = 0.0
    """Its longest pause so far, in whole seconds; an outage is none."""
    ending: RunFinished | None = None
    """Its end record."""

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.ending is not None

    @property
    def role(self) -> str:
        """What it is to its run."""
        return self.name.rpartition(" ")[0]

    @property
    def is_trainer(self) -> bool:
        """Whether it is a rank of the trainer, or of a learner that takes its experience from a server."""
        return self.role in LEARNS

    @property
    def is_beside(self) -> bool:
        """Whether it is a service beside a trainer: its phases are its own, whatever its rank."""
        return self.role in SCOPE_OF_ROLE and not self.is_trainer

    @property
    def speaker(self) -> str:
        """`rank 0`, or the role with the rank where it is no trainer."""
        return f"rank {self.rank}" if self.role == TRAINER else self.name

    def is_new(self, seq: int | None) -> bool:
        """Whether this record was not folded before; records without a number always are."""
        if seq is None:
            return True
        if seq > self.high:
            if 1 < seq - self.high <= MAX_GAPS - len(self.gaps):
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
        silent_s = (stamp - self.stamp) / 1e9 if self.stamp else 0.0
        # What a thinned recording still tells is whether it spoke in a second, not how often.
        seconds = stamp // SECOND_NS - self.stamp // SECOND_NS if self.stamp else 0
        self.delay = stamp - at
        self.least_delay = self.delay if self.least_delay is None else min(self.least_delay, self.delay)
        if self.lag_s() >= OUTAGE_S > self.delay / 1e9 >= 0.0:
            # Fresh by our clock: what told of the future before was a clock that is right now, or one record.
            self.least_delay = self.delay
        late = self.lag_s() >= OUTAGE_S
        if late and silent_s >= OUTAGE_S:
            self.drain = Drain(away_s=silent_s, stamp=stamp, at=at)
        elif seconds > 0:
            self.intervals.push(float(seconds))
            self.longest_s = max(self.longest_s, float(seconds))
        if not late:
            self.drain = None
        self.stamp = max(self.stamp, stamp)
        self.first_at = self.first_at or at
        self.at = max(self.at, at)

    def interval_s(self) -> float | None:
        """Median seconds from one in which it spoke to the next; 1 where that is every second or oftener."""
        return median(self.intervals.items)

    def allowed_s(self) -> float:
        """Seconds of silence that its own rhythm makes usual: its median interval, and the spread."""
        usual, longest = self.interval_s() or 0.0, max(self.intervals.items, default=0.0)
        if not self.promised:
            longest = max(longest, min(self.longest_s, LONGEST_S / LONGEST_TIMES))
        return max(
            INTERVALS * usual if usual > SHORTEST_S else 0.0,
            LONGEST_TIMES * longest if longest > SHORTEST_S else 0.0,
        )

    def patience_s(self) -> float:
        """Seconds of silence after which it is quieter than usual; an unknown rhythm is not a fast one."""
        if self.promised:
            return max(STALE_S, self.allowed_s())
        known = len(self.intervals.items) >= LEAST_INTERVALS
        return max(FOREIGN_S if known else UNKNOWN_S, self.allowed_s())

    def is_live(self, tick: int) -> bool:
        """Whether it has not ended, and is not quieter than usual at `tick`, Unix nanoseconds."""
        return not self.finished and tick - self.stamp < self.patience_s() * 1e9

    def lag_s(self) -> float:
        """How much later than usual the newest record came, clock skew removed, seconds."""
        return 0.0 if self.least_delay is None else (self.delay - self.least_delay) / 1e9


def spoken_for(sources: Iterable[Source]) -> str:
    """Who they are, in a few words.

    >>> spoken_for(Source(name=f"trainer {rank}") for rank in (0, 0, 1, 2, 3))
    'rank 0, rank 1, rank 2 and 1 more'
    """
    names = list(dict.fromkeys(source.speaker for source in sources))
    beyond = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {beyond} more" if beyond > 0 else "")


def speed(source: Source) -> float | None:
    """Producer's seconds told in one second of a drain; `None` without one, or before its second batch."""
    drain = source.drain
    if drain is None or source.stamp <= drain.stamp:
        return None
    return max(0.0, (source.at - drain.at) / (source.stamp - drain.stamp))


def source_key(origin: Origin) -> str:
    """Identity of one life of one producer."""
    return f"{origin.role}/{origin.rank}/{origin.epoch}"
