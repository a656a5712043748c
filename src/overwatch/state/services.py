"""Services of a run, process by process: their gauges, and what they count by labels.

Rules: two processes never overwrite each other: each is known by its role and rank. A counter goes on over
the lives of its process: of each life the largest total counts, whatever order its records come in. Must not
know how any of it is judged or shown.
"""

from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, NO_LIMITS
from overwatch.catalog.tallies import most_series
from overwatch.events import Buckets, Measured, Origin, Sample, Tallied, TallySeries
from overwatch.events.adding import added
from overwatch.state.arrays import Ring, counted
from overwatch.state.names import Overflow
from overwatch.state.policy import Series, new_series, observe

MAX_SERVICES: Final = 1024
"""Processes."""
MAX_GAUGES: Final = 256
"""Of one process."""
MAX_TALLIES: Final = 1024
"""Series of all processes of one run."""
LIVES: Final = 8
"""Lives of a process that are kept apart; older ones are added up."""
MARK_NS: Final = 5_000_000_000
"""Least producer's time between two marks."""
MARKS: Final = 13
"""Marks remembered: a minute of them."""
WINDOW_NS: Final = 60_000_000_000
"""What is counted of late: so long before the newest record of its process."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted."""

    sum: float | None = None
    count: int | None = None
    buckets: Buckets | None = None

    @property
    def size(self) -> float:
        """What only grows: the count of a histogram, the total of a counter."""
        return float(self.count if self.count is not None else self.sum or 0.0)

    def plus(self, other: "Amount") -> "Amount":
        """Both together."""
        held = self.buckets or other.buckets
        if self.buckets is not None and other.buckets is not None:
            held = self.buckets.plus(other.buckets)
        return Amount(
            sum=None if self.sum is None or other.sum is None else self.sum + other.sum,
            count=None if self.count is None or other.count is None else counted(self.count, other.count),
            buckets=held,
        )

    def minus(self, before: "Amount") -> "Amount":
        """What came since `before`; without buckets where theirs have other bounds."""
        held = None
        if self.buckets is not None and before.buckets is not None:
            held = self.buckets.minus(before.buckets)
        return Amount(
            sum=None if self.sum is None or before.sum is None else max(self.sum - before.sum, 0.0),
            count=None if self.count is None else max(self.count - (before.count or 0), 0),
            buckets=held,
        )


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What one life of a process counted."""

    began: int
    """Producer's time at which it was first received."""
    amount: Amount


class Tally(msgspec.Struct, kw_only=True):
    """One counter or histogram of one process."""

    labels: dict[str, str]
    lives: dict[str, Life] = {}
    """By epoch, in order of first sight."""
    before: Life | None = None
    """All older lives as one, begun with the newest of them."""
    grown: int = 0
    """Producer's time of the record with which it grew last."""
    samples: dict[int, Sample] = {}
    """Newest values that a trace shows, by the place of their bucket."""
    marks: Ring[tuple[int, Amount]] = msgspec.field(default_factory=lambda: Ring(MARKS))
    """(producer's time, what was counted until then), for what is new."""

    def whole(self) -> Amount:
        """What all lives counted."""
        parts = [life.amount for life in self.lives.values()]
        parts += [] if self.before is None else [self.before.amount]
        total = parts[0]
        for part in parts[1:]:
            total = total.plus(part)
        return total

    def take(self, epoch: str, began: int, at: int, series: TallySeries) -> None:
        """Fold what a life has counted; less than it had counted before is an older record."""
        known = self.lives.get(epoch)
        if known is None:
            if self.before is not None and began <= self.before.began:
                return  # one of those that are added up already
        elif series.size < known.amount.size:
            return
        amount = Amount(sum=series.sum, count=series.count, buckets=series.buckets)
        if series.size > (0.0 if known is None else known.amount.size):
            self.grown = max(self.grown, at)
        self.lives[epoch] = Life(began=began, amount=amount)
        most = 0 if series.buckets is None else len(series.buckets.counts)
        for sample in series.samples:
            known_one = self.samples.get(sample.bucket)
            if 0 <= sample.bucket < most and (known_one is None or known_one.at <= sample.at):
                self.samples[sample.bucket] = sample
        if len(self.lives) > LIVES:
            self._join_oldest()
        if not self.marks.items or at - self.marks.items[-1][0] >= MARK_NS:
            self.marks.push((at, self.whole()))

    def recent(self, now: int) -> tuple[Amount, float] | None:
        """What was counted in the minute before `now`, producer's time, and in how many seconds.

        `None` before a second record.
        """
        begin = now - WINDOW_NS
        before = [mark for mark in self.marks.items if mark[0] <= begin]
        at, then = before[-1] if before else self.marks.items[0]
        seconds = (now - max(at, begin)) / 1e9
        return (self.whole().minus(then), seconds) if seconds > 0 else None

    def _join_oldest(self) -> None:
        oldest = min(self.lives, key=lambda epoch: (self.lives[epoch].began, epoch))
        gone = self.lives.pop(oldest)
        amount = gone.amount if self.before is None else self.before.amount.plus(gone.amount)
        self.before = Life(began=gone.began, amount=amount)


class Service(msgspec.Struct, kw_only=True):
    """One process that counts, or that reports numbers of a service."""

    role: str
    rank: int
    at: int = 0
    """Producer's time of its newest record."""
    stamp: int = 0
    """Receive stamp of its newest record."""
    gauges: dict[str, Series] = {}
    """By full name."""
    tallies: dict[str, dict[str, Tally]] = {}
    """By full name, then by labels."""

    @property
    def name(self) -> str:
        """What it is called: its role, and its rank where that is not 0."""
        return self.role if not self.rank else f"{self.role} {self.rank}"

    def value(self, name: str) -> float | None:
        """The newest value of a gauge; `None` where there is none, or it was not finite."""
        series = self.gauges.get(name)
        return None if series is None else series.value

    def recently(self, name: str, *, but: str = "") -> float | None:
        """How many a second it counted of late, over all labels `but` those of a value.

        `None` where that is not known.
        """
        counted = [one for one in self.tallies.get(name, {}).values() if but not in one.labels.values()]
        news = [tally.recent(self.at) for tally in counted]
        known = [one for one in news if one is not None]
        return added(amount.size / seconds for amount, seconds in known) if known else None

    def recently_by(self, name: str, label: str) -> dict[str, float]:
        """How many a second it counted of late, by the words of a label; without what is not known yet."""
        found: dict[str, float] = {}
        for tally in self.tallies.get(name, {}).values():
            news = tally.recent(self.at)
            if news is not None:
                word = tally.labels.get(label, "")
                found[word] = found.get(word, 0.0) + news[0].size / news[1]
        return found

    def grown_at(self, name: str) -> int | None:
        """Producer's time at which a counter grew last, over all labels; `None` where it never did."""
        return max((tally.grown for tally in self.tallies.get(name, {}).values()), default=0) or None

    def heard(self, at: int, stamp: int) -> None:
        """Note one record."""
        self.at, self.stamp = max(self.at, at), max(self.stamp, stamp)


class Services(msgspec.Struct, kw_only=True):
    """All of them."""

    processes: dict[str, Service] = {}
    """By role and rank."""
    size: int = 0
    """Series that are counted."""

    def of(self, origin: Origin, overflow: Overflow) -> Service | None:
        """The process that an origin is; `None` where there is room for no more."""
        key = f"{origin.role}/{origin.rank}"
        found = self.processes.get(key)
        if found is None:
            if len(self.processes) >= MAX_SERVICES:
                overflow.note("service", key)
                return None
            found = self.processes[key] = Service(role=origin.role, rank=origin.rank)
        return found

    def series(self, name: str) -> Series | None:
        """A gauge of the first process by role and rank that reports it."""
        service = self.first(name)
        return None if service is None else service.gauges[name]

    def first(self, name: str) -> Service | None:
        """The first process by role and rank that reports a gauge."""
        known = [service for service in self.processes.values() if name in service.gauges]
        return min(known, key=lambda one: (one.role, one.rank), default=None)

    def measure(self, service: Service, event: Measured, stamp: int, overflow: Overflow) -> None:
        """Fold gauges; an empty column ends its gauge."""
        service.heard(event.at, stamp)
        for name, column in event.values.items():
            if not len(column):
                service.gauges.pop(name, None)
                continue
            if name not in service.gauges and len(service.gauges) >= MAX_GAUGES:
                overflow.note("metric", name)
                continue
            series = service.gauges.setdefault(name, new_series())
            if event.at < series.at:
                continue
            observe(series, BY_NAME.get(name), NO_LIMITS, column.first())
            series.at, series.stamp = event.at, stamp

    def count(self, service: Service, event: Tallied, epoch: str, began: int, overflow: Overflow) -> None:
        """Fold counters and histograms of one life of a process that began at `began`."""
        for series in event.series:
            by_labels = service.tallies.setdefault(series.metric, {})
            key = msgspec.json.encode(sorted(series.labels.items())).decode()
            tally = by_labels.get(key)
            if tally is None:
                full = len(by_labels) > most_series(BY_NAME.get(series.metric)) or self.size >= MAX_TALLIES
                if full:
                    overflow.note("series", series.metric)
                    if not by_labels:
                        del service.tallies[series.metric]
                    continue
                self.size += 1
                tally = by_labels[key] = Tally(labels=dict(series.labels))
            tally.take(epoch, began, event.at, series)
