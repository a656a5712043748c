"""The producers of one run: when each last sent, which records are new, how far its clock is from ours.

Owns which producer holds a run and how the run ended. A trainer comes before any other role, a producer that
promised an end record before one that did not; of a rank that was started again the newest life counts,
whenever the records of an earlier one arrive. Owns what ranks report together: the lowest trainer rank leads
the policy, the others give the spread; envs, lanes and phases come from all.

Owns which run a rank belongs to whose launcher gave it no run id. The ranks of such a launch share a key.
Rank 0's first record under a new epoch announces the run; a rank belongs to the newest announcement that has
not yet received another life of it, because that life was of an earlier launch that met at the same place.
Records that came before the announcement wait, bounded, as one pending run. Must not know how records are
folded or numbers judged.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, NonFinite
from overwatch.catalog.tallies import SCOPE_OF_ROLE
from overwatch.events import Column, Origin, Record, RunFinished, RunStarted
from overwatch.state.arrays import Ring, median

OUTAGE_S: Final = 5.0
"""A hole between batches, after which data comes this late, was an outage: a spool kept the data."""
INTERVALS: Final = 3
"""A producer may be quiet for so many of its own intervals..."""
LONGEST_TIMES: Final = 2.0
"""...or for so many times its longest pause."""
SHORTEST_S: Final = 1.0
"""An interval of so much may be any shorter one: it allows for nothing."""
STALE_S: Final = 5.0
"""The least patience with a producer that promised an end record, once it made an update: it emits by the
second..."""
FOREIGN_S: Final = 60.0
"""...and with one that promised nothing, once its rhythm is known..."""
UNKNOWN_S: Final = 180.0
"""...and before: three export intervals of OpenTelemetry's default."""
LONGEST_S: Final = 900.0
"""A pause beyond this adds no patience: that a producer was killed must become known."""
LEAST_INTERVALS: Final = 3
"""Intervals that make a rhythm..."""
START_S: Final = 15.0
"""...over so long before its first update: what a start sends is none."""
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


class Span(msgspec.Struct, kw_only=True):
    """The numbers from the first to the last that a life reported; empty before one."""

    first: int = 0
    last: int = -1

    def widen(self, first: int, last: int) -> None:
        """Take in the numbers from `first` to `last`."""
        if self.last < self.first:
            self.first, self.last = first, last
        self.first, self.last = min(self.first, first), max(self.last, last)

    def shared(self, first: int, last: int) -> int:
        """How many numbers from `first` to `last` are in it."""
        return max(0, min(self.last, last) - max(self.first, first) + 1)


class Source(msgspec.Struct, kw_only=True):
    """One life of one producer process."""

    name: str
    rank: int = 0
    stamp: int = 0
    """Receive stamp of its newest batch."""
    at: int = 0
    """Producer's time of its newest record."""
    first_at: int = 0
    """Producer's time of the first record that was received of it."""
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
    """Records its own side dropped, as it last reported."""
    promised: bool = False
    """Whether it ends with a record: Overwatch's SDK does, and any producer that sent a start or an end."""
    longest_s: float = 0.0
    """Its longest pause so far, in whole seconds; an outage is none, nor the wait for its first update."""
    ending: RunFinished | None = None
    """Its end record."""
    resumed: bool = False
    """Whether it goes on from a checkpoint of a life before."""
    steps: Span = msgspec.field(default_factory=Span)
    """Steps of envs of which it reported facts."""
    updates: Span = msgspec.field(default_factory=Span)

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

    def received(self, stamp: int, at: int, *, is_usual: bool = True) -> None:
        """Note one record's receive stamp and producer time; how long it was silent may not be usual."""
        silent_s = (stamp - self.stamp) / 1e9 if self.stamp else 0.0
        # What a thinned recording still shows is whether it sent in a second, not how often.
        seconds = stamp // SECOND_NS - self.stamp // SECOND_NS if self.stamp else 0
        self.delay = stamp - at
        self.least_delay = self.delay if self.least_delay is None else min(self.least_delay, self.delay)
        if self.lag_s() >= OUTAGE_S > self.delay / 1e9 >= 0.0:
            # Fresh by our clock: what was from the future was a clock that is right now, or one record.
            self.least_delay = self.delay
        late = self.lag_s() >= OUTAGE_S
        if late and silent_s >= OUTAGE_S:
            self.drain = Drain(away_s=silent_s, stamp=stamp, at=at)
        elif seconds > 0 and is_usual:
            if len(self.intervals.items) >= LEAST_INTERVALS:
                self.longest_s = max(self.longest_s, float(seconds))
            self.intervals.push(float(seconds))
        if not late:
            self.drain = None
        self.stamp = max(self.stamp, stamp)
        self.first_at = self.first_at or at
        self.at = max(self.at, at)

    def interval_s(self) -> float | None:
        """Median seconds from one in which it sent to the next; 1 where that is every second or oftener."""
        return median(self.intervals.items)

    def allowed_s(self) -> float:
        """Seconds of silence that its own rhythm makes usual: its median interval, and its longest pause."""
        usual, newest = self.interval_s() or 0.0, max(self.intervals.items, default=0.0)
        longest = max(newest, min(self.longest_s, LONGEST_S / LONGEST_TIMES))
        return max(
            INTERVALS * usual if usual > SHORTEST_S else 0.0,
            LONGEST_TIMES * longest if longest > SHORTEST_S else 0.0,
        )

    def patience_s(self) -> float:
        """Seconds of silence after which it is quieter than usual; an unknown rhythm is not a fast one."""
        is_start = self.promised and self.updates.last < 0 and sum(self.intervals.items) < START_S
        if self.promised:
            return max(UNKNOWN_S if is_start else STALE_S, self.allowed_s())
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
    """Producer's seconds received in one second of a drain; `None` without one, or before a second batch."""
    drain = source.drain
    if drain is None or source.stamp <= drain.stamp:
        return None
    return max(0.0, (source.at - drain.at) / (source.stamp - drain.stamp))


def source_key(origin: Origin) -> str:
    """Identity of one life of one producer."""
    return f"{origin.role}/{origin.rank}/{origin.epoch}"


_CAUSED: Final = ("failed", "interrupted", "lost")
"""Ends that the failure of another rank brings about."""


def team_of(sources: Mapping[str, Source]) -> dict[str, Source]:
    """Those whose silence is the run's, by key: the trainer's lives, of those the ones that promised an end.

    Of one rank the life that began last and the one that emitted last: where clocks differ these are two.
    Producers that promised nothing may share a rank by right, so all of them count.
    """
    trainers = {key: source for key, source in sources.items() if source.is_trainer}
    among = trainers or dict(sources)
    promised = {key: source for key, source in among.items() if source.promised}
    return newest_lives(promised) | latest_lives(promised) or among


def holder_of(sources: Mapping[str, Source]) -> str | None:
    """Key of the producer that decides; `None` without any."""
    team = team_of(sources)
    if not team:
        return None
    first = next(iter(team.values()))
    head = min(team.values(), key=lambda source: source.rank) if first.is_trainer else first
    return max((key for key in team if team[key].name == head.name), key=lambda key: team[key].first_at)


def end_of(sources: Mapping[str, Source]) -> RunFinished | None:
    """How the run ended; `None` while its holder goes on.

    A rank that was interrupted, was killed or failed after another rank had failed ended because of that: the
    first failure is the reason, in whatever order the records arrive.
    """
    key = holder_of(sources)
    holder = None if key is None else sources[key]
    if holder is None or holder.ending is None or holder.ending.outcome not in _CAUSED:
        return None if holder is None else holder.ending
    failures = [
        (source.ending.at, source.rank, source.ending)
        for source in newest_lives(sources).values()
        if source.is_trainer and source.ending is not None and source.ending.outcome == "failed"
        and holder.first_at <= source.ending.at <= holder.ending.at
    ]  # fmt: skip
    if not failures:
        return holder.ending
    _, rank, failure = min(failures, key=lambda found: found[:2])
    if rank == holder.rank:
        return holder.ending
    reason = f"rank {rank}: {failure.reason or 'no reason given'}"
    return msgspec.structs.replace(failure, at=holder.ending.at, reason=reason)


def newest_lives(sources: Mapping[str, Source]) -> dict[str, Source]:
    """The latest life of each role and rank, by key: an earlier one was replaced."""
    return _newest(sources, lambda life: life.first_at)


def latest_lives(sources: Mapping[str, Source]) -> dict[str, Source]:
    """The life of each role and rank that emitted last, by key."""
    return _newest(sources, lambda life: life.stamp)


def _newest(sources: Mapping[str, Source], moment: Callable[[Source], int]) -> dict[str, Source]:
    newest: dict[str, str] = {}
    for key, source in sources.items():
        member = key.rpartition("/")[0]
        if member not in newest or moment(source) >= moment(sources[newest[member]]):
            newest[member] = key
    return {key: sources[key] for key in newest.values()}


MAX_NAMES: Final = 512
"""Values that ranks report beside the one that counts."""
MAX_SPREAD: Final = 1024
"""Most ranks whose policy numbers are kept beside the leading one's."""


class Ranks(msgspec.Struct, kw_only=True):
    """What the ranks of one run report that only makes sense together."""

    starts: dict[str, RunStarted] = {}
    """The newest start of each (role, rank)."""
    leader: int | None = None
    """The rank whose policy numbers are the run's."""
    others: dict[str, dict[int, float]] = {}
    """Newest finite values of the other ranks, by full metric name, then by rank."""
    sent: dict[int, int] = {}
    """Records of the other ranks' policy numbers so far, by rank."""
    broken: dict[int, dict[str, str]] = {}
    """Values of the other ranks that must be numbers and are none now: what they are, by rank and name."""

    def started(self, origin: Origin, event: RunStarted) -> RunStarted:
        """The run's definition now that this process has started."""
        self.starts[f"{origin.role}/{origin.rank:09d}"] = event
        trainers = {owner: start for owner, start in self.starts.items() if owner.startswith("trainer/")}
        ordered = [start for _, start in sorted((trainers or self.starts).items())]
        counts = [start.n_envs for start in ordered if start.n_envs is not None]
        return msgspec.structs.replace(
            ordered[0],
            devices=tuple(dict.fromkeys(lane for start in ordered for lane in start.devices)),
            # Of services only those that step envs have any; of a trainer's ranks one may know of all.
            n_envs=ordered[0].n_envs if trainers and len(counts) < len(ordered) else sum(counts) or None,
        )

    def leads(self, rank: int) -> bool:
        """Whether a rank that now reports policy numbers is the one that counts."""
        if self.leader is None or rank <= self.leader:
            self.leader = rank
            return True
        return False

    def aside(self, rank: int, values: dict[str, Column]) -> None:
        """Keep the policy numbers of a rank that does not lead."""
        if rank in self.sent or len(self.sent) < MAX_SPREAD:
            self.sent[rank] = self.sent.get(rank, 0) + 1
        for name, column in values.items():
            if not len(column):
                self._end(rank, name)
                continue
            value = column.first()
            self._note_broken(rank, name, value)
            if name not in self.others and len(self.others) >= MAX_NAMES:
                continue
            known = self.others.setdefault(name, {})
            if math.isfinite(value) and (rank in known or len(known) < MAX_SPREAD):
                known[rank] = value

    def _end(self, rank: int, name: str) -> None:
        """Forget a value that a rank sends no more."""
        self.others.get(name, {}).pop(rank, None)
        self._note_broken(rank, name, 0.0)

    def _note_broken(self, rank: int, name: str, value: float) -> None:
        row = BY_NAME.get(name)
        if not math.isfinite(value) and row is not None and row.non_finite is NonFinite.CRITICAL:
            if rank in self.broken or len(self.broken) < MAX_SPREAD:
                word = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
                self.broken.setdefault(rank, {})[name] = word
        elif self.broken.get(rank, {}).pop(name, None) is not None and not self.broken[rank]:
            del self.broken[rank]

    def spread(self, name: str, value: float | None) -> float | None:
        """Largest minus smallest over all ranks; `None` with fewer than two."""
        values = [*self.others.get(name, {}).values(), *(() if value is None else (value,))]
        return max(values) - min(values) if len(values) > 1 else None


MAX_KEYS: Final = 256
"""Launches remembered; the one announced or received first goes first."""
MAX_WAITING: Final = 20_000
"""Records of one launch that wait for its rank 0; the oldest goes first."""


class _Launch(msgspec.Struct, kw_only=True):
    run_id: str | None = None
    epoch: str = ""
    """Of rank 0, when it announced the run."""
    lives: dict[str, str] = {}
    """The life of each rank that belongs to the announced run."""
    waiting: list[tuple[Record, int]] = []
    forgotten: int = 0
    """Records that waited too long to be kept."""


class Resolved(msgspec.Struct, frozen=True):
    """Where a record belongs, and what became known with it."""

    record: Record
    """Under its run's id, or under its stand-in while that is not known."""
    released: list[tuple[Record, int]] = []
    """Records that waited, with their stamps, to be folded before this one."""
    stand_ins: frozenset[str] = frozenset()
    """Runs that the released records had been folded into; they are no more."""


class Joins(msgspec.Struct, kw_only=True):
    """All launches whose ranks share a key instead of a run id."""

    launches: dict[str, _Launch] = {}

    def resolve(self, record: Record, stamp: int) -> Resolved:
        """Where a record received at `stamp` belongs. One that must wait is released again later."""
        origin = record.origin
        if origin.join is None:
            return Resolved(record)
        launch = self.launches.get(origin.join)
        if launch is None:
            if len(self.launches) >= MAX_KEYS:
                del self.launches[next(iter(self.launches))]
            launch = self.launches[origin.join] = _Launch()
        if origin.rank == 0:
            return _announce(launch, record)
        if _belongs(launch, origin):
            return Resolved(_renamed(record, str(launch.run_id)))
        if len(launch.waiting) >= MAX_WAITING:
            del launch.waiting[0]
            launch.forgotten += 1
        launch.waiting.append((record, stamp))
        return Resolved(record)


def _announce(launch: _Launch, record: Record) -> Resolved:
    """Rank 0 reported: under a new epoch the newest waiting life of each rank is of its run."""
    origin = record.origin
    if launch.epoch == origin.epoch:
        return Resolved(record)
    waited, launch.waiting = launch.waiting, []
    launch.run_id, launch.epoch = origin.run_id, origin.epoch
    launch.lives = {_member(waiting.origin): waiting.origin.epoch for waiting, _ in waited}
    released = [
        (_renamed(waiting, origin.run_id) if _belongs(launch, waiting.origin) else waiting, stamp)
        for waiting, stamp in waited
    ]
    return Resolved(record, released, frozenset(waiting.origin.run_id for waiting, _ in waited))


def _belongs(launch: _Launch, origin: Origin) -> bool:
    if launch.run_id is None:
        return False
    return launch.lives.setdefault(_member(origin), origin.epoch) == origin.epoch


def _member(origin: Origin) -> str:
    return f"{origin.role}/{origin.rank}"


def _renamed(record: Record, run_id: str) -> Record:
    return msgspec.structs.replace(record, origin=msgspec.structs.replace(record.origin, run_id=run_id))
