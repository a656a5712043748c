"""What is kept of each env beside its newest values, as tables with a row an env.

- `Silences`: how long each env is usually quiet, on a clock that runs while the fleet reports. A pause that
  all envs share (a learning phase, an evaluation) counts for one usual interval; facts end a silence and
  teach no rhythm, since they come when they like.
- `Tally`: how often something happened to each env in the last minute, and before it, in buckets of
  producer's time; a late event counts in the newest bucket.
- `Trends` and `Actions`: short windows of each env's own numbers, and what it did last. One sample at most
  each `STRIDE` steps and `STRIDE_NS`, so a window spans seconds at any rate; all envs of a record are sampled
  at once.
- `EpisodeSums`: what finished episodes show. A row is summed up when it is read and one of its episodes
  ended since, so a tick costs what ended in it; every tick reads what the newest show. Derived, so no part of
  a checkpoint. Only episodes of the present task count; what is too large to square counts as unknown.

Must not know when a silence is too long, what is counted, what a trend means, or which return is low.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.catalog import Kind, Scope, of_scope
from overwatch.state.arrays import Derived, Floats, Ints, Ring, floats, ints, median, no_ints
from overwatch.state.places import At, Mask, Rows

INTERVALS: Final = 16
"""Newest intervals of the fleet that are remembered."""
MEAN_OF: Final = 32
"""Gaps that an env's mean is about."""
FORGETS_S: Final = 3600.0
"""Seconds in which most of its longest gap is forgotten: an accident fades, what comes again does not."""
LONGEST_NS: Final = 86_400_000_000_000
"""What one gap counts for at most: a clock that jumps is no silence."""
SECOND_NS: Final = 1_000_000_000


class Silences(msgspec.Struct, kw_only=True):
    """The silences of all envs; arrays have capacity C rows, all times are of the fleet's clock."""

    FILLS: ClassVar[Mapping[str, float]] = dict.fromkeys(("last_ns", "mean_s", "longest_s", "gaps"), 0)

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
        kept = np.maximum(1.0 - gap_s / FORGETS_S, 0.0)
        self.longest_s[rows] = np.maximum(gap_s, self.longest_s[rows] * kept)

    def reported_one(self, row: int, at: int) -> None:
        """A fact about one env came at `at`."""
        self.advance(at)
        self.last_ns[row] = self.clock_ns


BUCKET_NS: Final = 5_000_000_000
BUCKETS: Final = 12
WINDOW_S: Final = BUCKETS * BUCKET_NS // 1_000_000_000
"""Seconds that a tally looks back."""


class Tally(msgspec.Struct, kw_only=True):
    """Counts per env; arrays have capacity C rows."""

    FILLS: ClassVar[Mapping[str, float]] = {"counts": 0, "totals": 0}

    counts: Ints = msgspec.field(default_factory=lambda: ints(0, BUCKETS))
    """Ring of the newest buckets, shape (C, BUCKETS)."""
    totals: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Since the run's start, shape (C,)."""
    first_at: int = 0
    """Producer's time of the first event; 0 before it."""
    bucket: int = 0
    """Number of the newest bucket since the epoch; 0 before the first event."""

    def add(self, rows: Ints, at: int) -> None:
        """Count one event for each of these rows; a row may be named more than once."""
        self._turn(at // BUCKET_NS)
        if rows.size:
            self.first_at = self.first_at or at
        np.add.at(self.counts[:, self.bucket % BUCKETS], rows, 1)
        np.add.at(self.totals, rows, 1)

    def recent(self, n: int, now: int, seconds: int = WINDOW_S) -> Ints:
        """Events of each of the first `n` rows in the last `seconds` before `now`, shape (n,)."""
        if self.is_quiet(now):
            return no_ints(n)
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


MEASURES: Final = ("reward", "return", "metric", "rent", "step_time")
"""Short names of the env rows that are kept as columns of every run."""
FURTHER: Final = frozenset(
    row.short for row in of_scope(Scope.ENV) if row.kind is Kind.GAUGE and row.short not in MEASURES
)
"""Short names of those that are kept once a run reports them: shown of one env; no rule looks at them."""
TRENDED: Final = ("metric", "rent", "step_time")
SAMPLES: Final = 24
STRIDE: Final = 5
STRIDE_NS: Final = 500_000_000
ACTIONS: Final = 8
"""Actions remembered per env."""


class Trends(msgspec.Struct, kw_only=True):
    """Samples of each env's measures; arrays have capacity C rows."""

    FILLS: ClassVar[Mapping[str, float]] = {
        "values": np.nan,
        **dict.fromkeys(("step", "at", "count", "now", "last_step", "last_at"), 0),
    }

    values: dict[str, Floats] = msgspec.field(
        default_factory=lambda: {name: floats(0, SAMPLES) for name in TRENDED}
    )
    """Rings of samples, shape (C, SAMPLES); NaN where the value was absent."""
    step: Ints = msgspec.field(default_factory=lambda: ints(0, SAMPLES))
    """Env step of each sample."""
    at: Ints = msgspec.field(default_factory=lambda: ints(0, SAMPLES))
    """Producer's time of each sample; 0 = not taken."""
    count: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Samples taken of each env."""
    now: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Newest step of each env."""
    last_step: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Env step of each env's newest sample."""
    last_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of it."""

    def sample(self, reported: At, step: int | None, at: int, current: dict[str, Floats]) -> None:
        """Take a sample of those rows that are due; without a step number each record is one step."""
        span = reported.span
        now = self.now[span] + 1 if step is None else np.maximum(self.now[span], step)
        self.now[span] = now
        due = (at - self.last_at[span] >= STRIDE_NS) & (now - self.last_step[span] >= STRIDE)
        due |= self.count[span] == 0
        if due.any():
            rows = reported.rows[due]
            places = self.count[rows] % SAMPLES
            # Envs that were born together have their samples in one column of the rings.
            if due.all() and (places == places[0]).all():
                self._take(span, int(places[0]), at, current)
            else:
                self._take(rows, places, at, current)

    def _take(self, due: Rows, place: Ints | int, at: int, current: dict[str, Floats]) -> None:
        for name in TRENDED:
            self.values[name][due, place] = current[name][due]
        self.step[due, place] = self.now[due]
        self.at[due, place] = at
        self.last_step[due], self.last_at[due] = self.now[due], at
        self.count[due] += 1

    def of(self, row: int) -> Ints:
        """Positions of one env's samples in its rings, oldest first."""
        taken = int(self.count[row])
        return np.arange(max(0, taken - SAMPLES), taken, dtype=np.int64) % SAMPLES


class Actions(msgspec.Struct, kw_only=True):
    """The newest operations of each env; codes of words, -1 where absent."""

    FILLS: ClassVar[Mapping[str, float]] = {
        **dict.fromkeys(("op", "slot", "blueprint", "step"), -1), "count": 0, "streak": 0,
    }  # fmt: skip

    op: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    slot: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    blueprint: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    step: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    count: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Operations seen of each env."""
    streak: Ints = msgspec.field(default_factory=lambda: ints(0))
    """How often in a row each env did the newest one."""

    def add(self, rows: Ints, op: Ints, slot: Ints, blueprint: Ints, step: int) -> None:
        """Remember one operation a row."""
        place = self.count[rows] % ACTIONS
        same = (self.count[rows] > 0) & (self.op[rows, place - 1] == op)
        self.streak[rows] = np.where(same, self.streak[rows] + 1, 1) * (op >= 0)
        self.op[rows, place] = op
        self.slot[rows, place] = slot
        self.blueprint[rows, place] = blueprint
        self.step[rows, place] = step
        self.count[rows] += 1

    def last(self, row: int) -> tuple[int, int]:
        """Codes of the newest (operation, slot) of one env; -1 where there is none."""
        taken = int(self.count[row])
        if not taken:
            return -1, -1
        place = (taken - 1) % ACTIONS
        return int(self.op[row, place]), int(self.slot[row, place])

    def of(self, row: int) -> Ints:
        """Positions of one env's operations in its rings, newest first."""
        taken = int(self.count[row])
        return np.arange(taken - 1, max(0, taken - ACTIONS) - 1, -1, dtype=np.int64) % ACTIONS


RETURNS: Final = 32
"""Finished episodes remembered per env."""
SHOWN_RETURNS: Final = 10
"""Newest finished episodes whose mean is an env's return."""
LEAST: Final = 5
"""Episodes of the present task from which on an env is judged."""
RECENT: Final = 5
"""Newest episodes that show what an env earns now; while there are few in all, one less."""
EARLIER: Final = 5
"""Episodes before those from which on there are enough."""
HUGE: Final = 1e100
"""From here on a square may not be finite."""
_MIDDLE: Final = 2
"""Place, from the lowest, of the recent return: the median of five, the upper one of four."""


def usable(values: Floats) -> Floats:
    """The values whose squares are finite, NaN for the others."""
    known: Floats = np.where(np.abs(values) < HUGE, values, np.nan)
    return known


class EpisodeSums(Derived):
    """One row an env, capacity C; what all episodes show is NaN or 0 while they are too few to judge by."""

    FILLS: ClassVar[Mapping[str, float]] = {
        **dict.fromkeys(("stale", "newest_stale"), True),
        **dict.fromkeys(("mean", "recent"), np.nan), "judged": False,
        **dict.fromkeys(("last", "lasting", "earlier", "scatter", "centre", "squares"), np.nan),
        **dict.fromkeys(("before", "count"), 0),
    }  # fmt: skip
    stale: Mask
    """Rows whose episodes have changed since all of them were summed up..."""
    newest_stale: Mask
    """...and since the newest were."""
    mean: Floats
    """Mean of the newest episodes, of any task; NaN before the first."""
    recent: Floats
    """Middle of the newest of the present task; NaN while they are too few to judge by."""
    judged: Mask
    """Whether they are enough."""
    last: Floats
    """The very last episode."""
    lasting: Floats
    """The best of the newest, which must be low too."""
    earlier: Floats
    """Median of those before; NaN where there are none."""
    scatter: Floats
    """Median distance of those from `earlier`; NaN where they are too few."""
    before: Ints
    """How many those are."""
    count: Ints
    """Newest and earlier ones together."""
    centre: Floats
    """Mean of all these."""
    squares: Floats
    """Squared distances of all these from `centre`, added up."""

    def __init__(self) -> None:
        for name, fill in self.FILLS.items():
            setattr(self, name, np.full(0, fill))

    def note(self, rows: Ints) -> None:
        """The episodes of these rows have changed."""
        self.stale[rows] = self.newest_stale[rows] = True

    def take_due(self, n: int, *, newest: bool) -> Ints:
        """Those of the first `n` rows to be summed up now. A new row holds what no episodes add up to."""
        stale = self.newest_stale if newest else self.stale
        rows = np.flatnonzero(stale[:n])
        stale[rows] = False
        return rows

    def sum_newest(self, rows: Ints, reported: Floats, done: Ints, fresh: Ints) -> None:
        """Sum the newest episodes of these rows up anew, each named once.

        `reported` are their newest returns, newest first, shape (k, SHOWN_RETURNS), NaN where there is none;
        of `done` finished episodes `fresh` are of the present task; both of shape (k,).
        """
        newest = reported[:, :RECENT].copy()
        judged = (np.abs(newest) < HUGE).all(axis=1) & (fresh >= LEAST)
        newest[fresh < RECENT + EARLIER, RECENT - 1] = np.nan
        counts = np.minimum(done, SHOWN_RETURNS)
        reported = np.where(np.arange(SHOWN_RETURNS) < counts[:, None], reported, 0.0)
        self.mean[rows] = np.divide(added_up(reported), counts, out=floats(done.size), where=counts > 0)
        newest.sort(axis=1)
        self.recent[rows] = np.where(judged, newest[:, _MIDDLE], np.nan)
        self.judged[rows] = judged

    def sum_all(self, rows: Ints, reported: Floats, fresh: Ints) -> None:
        """Sum all episodes of these rows up anew, each named once.

        `reported` are their returns, newest first, shape (k, RETURNS), NaN where there is none; `fresh` of
        them are of the present task, shape (k,).
        """
        values = np.where(np.arange(RETURNS) < fresh[:, None], usable(reported), np.nan)
        judged = np.isfinite(values[:, :LEAST]).all(axis=1)
        few = fresh < RECENT + EARLIER
        for name in ("last", "lasting", "earlier", "scatter", "centre", "squares", "before", "count"):
            getattr(self, name)[rows[~judged]] = self.FILLS[name]
        for which, num_recent in ((judged & ~few, RECENT), (judged & few, RECENT - 1)):
            self._judge(rows[which], values[which], num_recent)

    def _judge(self, rows: Ints, values: Floats, num_recent: int) -> None:
        recent, before = np.sort(values[:, :num_recent], axis=1), np.sort(values[:, num_recent:], axis=1)
        unknown = np.isnan(values)
        count = RETURNS - unknown.sum(axis=1)
        num_before = count - num_recent
        self.last[rows], self.before[rows], self.count[rows] = values[:, 0], num_before, count
        self.lasting[rows] = recent[:, -1]
        self.earlier[rows] = earlier = _middle(before, num_before)
        own = _middle(np.sort(np.abs(before - earlier[:, None]), axis=1), num_before)
        self.scatter[rows] = np.where(num_before >= EARLIER, own, np.nan)
        # From the newest one, so that equal returns have no distance at all.
        apart = np.where(unknown, 0.0, values - values[:, :1])
        mean = added_up(apart) / count
        rest = np.where(unknown, 0.0, apart - mean[:, None])
        self.centre[rows], self.squares[rows] = values[:, 0] + mean, added_up(rest * rest)


def _middle(ordered: Floats, counts: Ints) -> Floats:
    """Median of so many first values of each row of shape (n, k); NaN, as the others are, where 0."""
    rows = np.arange(counts.size)
    found: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return found


def added_up(values: Floats) -> Floats:
    """The sum of each row, always in the same order, from the left: the same bits for any number of rows."""
    total: Floats = values[:, 0].copy()
    for place in range(1, values.shape[1]):
        total += values[:, place]
    return total
