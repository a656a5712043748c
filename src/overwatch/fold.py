"""All runs, tick by tick: batches in, frames out. The same batches give the same frames, live or replayed.

Owns the tick clock's arithmetic, the routing of records to runs, and counts of what it did with everything it
was given. A bad record is quarantined and counted, its neighbours are unharmed. No thread, no clock, no file:
`Aggregator` and replay both drive it.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.ma
import zstandard

from overwatch.diagnose import Assessment
from overwatch.diagnose.judging import DiagnosisConfig, Judging, judging
from overwatch.events import FindingAcknowledged, Record, RunStarted
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import Decoded, MalformedBody, decode_batch
from overwatch.otlp.origin import begins_run
from overwatch.otlp.result import timed
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals
from overwatch.runs import SILENT_NS, Room, Tracked, cost, cut_down, leaving, most_envs
from overwatch.snapshot import Baseline, Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.state import apply, new_run
from overwatch.state.caps import evict, wants_room
from overwatch.state.names import Overflow
from overwatch.state.run import RunState
from overwatch.state.sources import Joins, source_key


class TowerStats(msgspec.Struct, kw_only=True):
    """What the fold did with everything it was given."""

    ticks: int = 0
    """Taken since the fold began empty."""
    batches: int = 0
    """Folded since then, start records among them."""
    records: int = 0
    problems: int = 0
    """Malformed or unfoldable records, quarantined."""
    unjudged: int = 0
    """Times that a run could not be judged or shown, for a fault of ours that its numbers found."""
    unattributed: int = 0
    """Records without a run id."""
    unmapped: int = 0
    """Foreign metric points that no catalogue row knows."""
    late: int = 0
    """Points of sums and distributions that came twice, or after a newer one."""
    resets: int = 0
    """Sums and distributions that began anew, for a restart or a gap."""
    overlaps: int = 0
    """Points that two writers sent of one series at once."""
    duplicates: int = 0
    refused_runs: int = 0
    """Records of runs beyond the limit of runs."""
    after_end: int = 0
    """Records of runs that had ended and were evicted."""
    evicted_runs: int = 0
    """Runs that were over and made room."""
    evicted_envs: int = 0
    """Envs that were silent for long, in runs that had as many as they may have."""
    overflowed: int = 0
    """Names and ids beyond what one run, or all of them, may have."""
    last_problem: str | None = None


FAST_NS: Final = 100_000_000
SLOW_NS: Final = 1_000_000_000
LOOKS: Final = 8
"""Times that a run is judged at most within one tick."""
MAX_ENDED: Final = 4096
"""Runs remembered that had ended when they were evicted."""
MAX_LIVES: Final = 16
"""Lives of producers remembered of each."""
MANY: Final = 64
"""Where more runs live, each is judged at whole seconds alone: at every tick, a core is busy with so many."""
DEFAULT_VIEW: Final = View()
Muted: TypeAlias = Mapping[str, Collection[str]]
"""By run id the findings that may open in it; any may in other runs."""
NOT_MUTED: Final[Muted] = {}
Folded: TypeAlias = Callable[[RunState, Record, int], None]
Reading: TypeAlias = Callable[[Batch], Decoded]
"""As `decode_batch`."""


_LEVEL: Final = 1
_LENGTH: Final = struct.Struct("<I")
_LONGEST: Final = 1 << 30
"""Bytes of a part of a dump."""


def _part(reader: zstandard.ZstdDecompressionReader) -> bytes:
    """The next part of a dump. Raises `ValueError` where it ends before."""
    head = reader.read(_LENGTH.size)
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
    if length > _LONGEST:
        raise ValueError(f"a part of {length} bytes in the dump of a fold; at most {_LONGEST} are read")
    part = reader.read(length) if length > 0 else b""
    if len(part) != length:
        raise ValueError("the dump of a fold is cut off")
    return part


def next_tick(stamp: int) -> int:
    """The first fast tick at or after a stamp."""
    return -(-stamp // FAST_NS) * FAST_NS


def _begins(record: Record) -> bool:
    """Whether a run may begin with a record."""
    if record.origin.is_implied:
        return begins_run(record.event)
    return not isinstance(record.event, FindingAcknowledged)


class LifeStarted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a start record, as JSON: one life of a collector."""

    version: str = ""
    """Empty in a body that shows nothing of its life."""
    pid: int = 0
    config_digest: str = ""
    after: int | None = None
    """Last tick of the checkpoint that this life's fold goes on from, 0 where there was none to load; `None`
    when the fold began empty. Where the same life goes on after a gap, the last tick before that."""
    baseline: Baseline | None = None
    """What the throughput of every run is compared with."""
    preset: str | None = None
    """Whose limits judge every run; `None` leaves it to the runs."""
    diagnosis: DiagnosisConfig | None = None
    """How runs are judged, where it is not as shipped."""
    room: Room | None = None
    """How much this life may hold; `None` in recordings of versions that did not write it."""

    def going_on(self, before: int) -> bytes:
        """The body with which the same life goes on after a gap: from all that came up to `before`."""
        return msgspec.json.encode(msgspec.structs.replace(self, after=next_tick(before)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What one tick published."""

    tick: int
    """Unix nanoseconds, a multiple of the fast tick."""
    slow: bool
    newest: str | None
    """The run with the newest stamp."""
    snapshots: Mapping[tuple[str, View], Snapshot]
    """Of runs that are watched, and the newest, as they are at this tick; of others the default view as
    it was at the last slow tick, or if they rest as they were judged last."""
    recorded: tuple[Snapshot, ...]
    """What a snapshot log gets at this tick: one of each run that is not over, on slow ticks."""
    tower: TowerStats
    capped: Mapping[str, Overflow] = field(default_factory=dict)
    """What runs were not given for their caps, by run; those that were given all are left out."""


class _Saved(msgspec.Struct, frozen=True):
    runs: int
    """How many follow."""
    tower: TowerStats
    joins: Joins
    totals: Totals = msgspec.field(default_factory=Totals)
    baseline: Baseline | None = None
    preset: str | None = None
    diagnosis: DiagnosisConfig | None = None
    room: Room = Room()
    ended: dict[str, list[str]] = {}


_saved: Final = msgspec.msgpack.Decoder(_Saved).decode
life_of: Final = msgspec.json.Decoder(LifeStarted).decode
"""Reads the body of a start record."""


class Fold:
    """Every run's state and judgement."""

    def __init__(
        self, read: Reading = decode_batch, baseline: Baseline | None = None, room: Room | None = None
    ) -> None:
        self.read = read
        """What makes records of a batch; must give what `decode_batch` gives."""
        self._given = baseline
        """What the throughput of every run is compared with, whatever start records hold."""
        self._reported: Baseline | None = None
        """What the newest start record holds."""
        self._preset: str | None = None
        """Whose limits judge every run, as the newest start record holds."""
        self._diagnosis: DiagnosisConfig | None = None
        """How runs are judged, as the newest start record holds."""
        self._how: Judging | None = None
        """The same, ready to judge with; `None` until it is needed."""
        self._room = room or Room()
        """How much this may hold, by the newest start record that has a room."""
        self._runs: dict[str, Tracked] = {}
        self._ended: dict[str, list[str]] = {}
        """By id the lives of producers of runs that had ended when they were evicted, the newest run last."""
        self.folded: Folded = lambda *_: None
        """Is called with each record once it is in its run's state, and with its stamp."""
        self.evicted: list[Tracked] = []
        """Runs that were over and made room at the newest tick; they are forgotten here."""
        self._joins = Joins()
        self._totals = Totals()
        self._taken: tuple[int, Muted] = (0, NOT_MUTED)
        """The newest tick, and what was hushed at it."""
        self.tower = TowerStats()

    @property
    def newest(self) -> str | None:
        """The run with the newest stamp."""
        return max(self._runs, key=lambda run_id: self._runs[run_id].state.last_stamp, default=None)

    def knows(self, run_id: str) -> bool:
        """Whether a run is in it, or was and made room."""
        return run_id in self._runs or run_id in self._ended

    def tracked(self, run_id: str) -> Tracked | None:
        """A run that is in it, with its judgement and its past."""
        return self._runs.get(run_id)

    def advance(
        self,
        tick: int,
        batches: Sequence[Batch],
        views: Iterable[tuple[str | None, View]],
        muted: Muted = NOT_MUTED,
    ) -> Frame:
        """Apply the batches stamped up to `tick`, judge every run, project every view.

        In runs that are `muted` only the findings named there open: their numbers were thinned.
        """
        logged = self.take(tick, batches, muted)
        snapshots = self._shown(self._resolve(views))
        return Frame(
            tick=tick,
            slow=tick % SLOW_NS == 0,
            newest=self.newest,
            capped={
                run_id: run.state.overflow.copy()
                for run_id, run in self._runs.items()
                if run.state.overflow.counts
            },
            snapshots=snapshots,
            recorded=tuple(
                snapshots[run_id, DEFAULT_VIEW] for run_id in logged if (run_id, DEFAULT_VIEW) in snapshots
            ),
            tower=msgspec.structs.replace(self.tower),
        )

    def take(self, tick: int, batches: Sequence[Batch], muted: Muted = NOT_MUTED) -> list[str]:
        """As `advance`, without a projection; returns the runs whose snapshot is recorded at this tick.

        Where seconds of a run come in one tick, it is judged within them too: what was true for a while and
        is over again is not missed because a spool drains fast.
        """
        self._taken = tick, muted
        self.evicted = []
        self.tower.ticks += 1
        if tick % SLOW_NS == 0:
            self._make_room(tick)
        every, every_ns = -(-len(batches) // LOOKS), self._judging_ns(tick)
        for place, batch in enumerate(batches):
            if place and place % every == 0:
                for run_id in [run_id for run_id, run in self._runs.items() if run.is_long(every_ns)]:
                    self._assess(run_id, tick, muted)
            self._apply(batch)
        logged: list[str] = []
        for run_id, tracked in self._runs.items():
            if tracked.is_due(tick, every_ns):
                self._assess(run_id, tick, muted)
            if tick % SLOW_NS == 0 and tracked.is_recorded():
                logged.append(run_id)
        return logged

    def skip(self, tick: int, batches: Sequence[Batch], muted: Muted = NOT_MUTED) -> tuple[Snapshot, ...]:
        """As `advance`, for who needs no frame: only what a snapshot log gets at this tick."""
        logged = self.take(tick, batches, muted)
        return tuple(
            snapshot for run_id in logged for snapshot in self._project(run_id, (DEFAULT_VIEW,)).values()
        )

    def look(self, views: Iterable[tuple[str | None, View]]) -> dict[tuple[str, View], Snapshot]:
        """Further views of the tick taken last; runs that are not there are left out."""
        wanted = [(run_id, view) for run_id, view in self._resolve(views) if run_id in self._runs]
        return {
            (run_id, view): snapshot
            for run_id, wish in wanted
            for view, snapshot in self._up_to_date(run_id).project((wish,)).items()
        }

    def late(self, second: int, runs: Collection[str]) -> tuple[Snapshot, ...]:
        """Return snapshots of some runs, and of those that sent something since; changes nothing."""
        late = [id_ for id_, run in self._runs.items() if id_ in runs or run.state.last_stamp > second]
        return tuple(self.look((run_id, DEFAULT_VIEW) for run_id in late).values())

    def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """The past of a run, or of the newest; `None` where it is not there."""
        run = self._runs.get(self.newest or "" if run_id is None else run_id)
        return None if run is None else run.history(query)

    def heat(self, run_id: str | None, query: HeatQuery) -> HeatMap | None:
        """Envs or lanes of a run, or of the newest, over time; `None` where it is not there."""
        run = self._runs.get(self.newest or "" if run_id is None else run_id)
        return None if run is None else run.heat_map(query)

    def dump(self) -> bytes:
        """Everything that outlives a tick, packed run by run: a second copy of all is never there."""
        reported = self._reported, self._preset, self._diagnosis
        kept = self._room, self._ended
        packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
        chunks = list[bytes]()

        def add(part: bytes) -> None:
            """Append a part behind its length, both compressed."""
            chunks.extend((packer.compress(_LENGTH.pack(len(part))), packer.compress(part)))

        add(
            msgspec.msgpack.encode(
                _Saved(len(self._runs), self.tower, self._joins, self._totals, *reported, *kept)
            )
        )
        for run in self._runs.values():
            add(run.dump())
        return b"".join((*chunks, packer.flush()))

    @classmethod
    def load(cls, data: bytes, baseline: Baseline | None = None) -> "Fold":
        """The fold of `dump`'s bytes; raises `ValueError` or `zstandard.ZstdError` on anything else."""
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        saved, fold = _saved(_part(reader)), cls(baseline=baseline)
        fold._reported, fold._preset, fold._diagnosis = saved.baseline, saved.preset, saved.diagnosis
        fold.tower, fold._joins, fold._totals = saved.tower, saved.joins, saved.totals
        fold._room, fold._ended = saved.room, saved.ended
        for _ in range(saved.runs):
            run = Tracked.load(_part(reader))
            fold._runs[run.state.origin.run_id] = run
        return fold

    def _assess(self, run_id: str, tick: int, muted: Muted) -> None:
        self._runs[run_id].judge(tick, self._judging(), self._compared(), muted.get(run_id))
        self._note_fault(run_id)

    def _judging(self) -> Judging:
        self._how = self._how or judging(self._diagnosis or DiagnosisConfig())
        return self._how

    def _compared(self) -> Baseline | None:
        return self._given or self._reported

    def _judging_ns(self, tick: int) -> int:
        """The time between two judgements of a run: it follows from the runs, so that a replay has it too."""
        living = sum(not run.rests(tick) for run in self._runs.values())
        return FAST_NS if living <= MANY else SLOW_NS

    def _shown(self, wanted: Sequence[tuple[str, View]]) -> dict[tuple[str, View], Snapshot]:
        """Every run, by the rule of `Frame.snapshots`."""
        second = self._taken[0] // SLOW_NS * SLOW_NS
        views: dict[str, list[View]] = {} if self.newest is None else {self.newest: []}
        for run_id, view in wanted:
            views.setdefault(run_id, []).append(view)
        shown: dict[tuple[str, View], Snapshot] = {}
        for run_id, tracked in self._runs.items():
            known = None if run_id in views else tracked.shown_since(second)
            if known is not None:
                shown[run_id, DEFAULT_VIEW] = known
                continue
            wishes = dict.fromkeys([DEFAULT_VIEW, *views.get(run_id, ())])
            self._up_to_date(run_id)
            for view, snapshot in self._project(run_id, tuple(wishes)).items():
                shown[run_id, view] = snapshot
        return shown

    def _up_to_date(self, run_id: str) -> Tracked:
        """A run, judged at the tick taken last even if it rests or was not due."""
        tracked, (tick, muted) = self._runs[run_id], self._taken
        known = 0 if tracked.judged is None else tracked.judged.assessment.tick
        if known < tick and tracked.fault is None:
            tracked.glance(tick, self._judging(), self._compared(), muted.get(run_id))
            self._note_fault(run_id)
        return tracked

    def _project(self, run_id: str, views: Sequence[View]) -> dict[View, Snapshot]:
        tracked = self._runs[run_id]
        snapshots = tracked.project(views)
        if tracked.judged is not None:
            self._note_fault(run_id)
        return snapshots

    def _note_fault(self, run_id: str) -> None:
        fault = self._runs[run_id].fault
        if fault is not None:
            self.tower.unjudged += 1
            self.tower.last_problem = f"run {run_id} {fault}"

    def _resolve(self, views: Iterable[tuple[str | None, View]]) -> list[tuple[str, View]]:
        newest = self.newest
        named = ((newest if run_id is None else run_id, view) for run_id, view in views)
        return [(run_id, view) for run_id, view in named if run_id is not None]

    def _apply(self, batch: Batch) -> None:
        self.tower.batches += 1
        if batch.signal is Signal.START:
            for tracked in self._runs.values():
                tracked.excuse(batch.stamp)
            self._enter_life(batch.body)
            return
        try:
            decoded = settle(timed(self.read(batch), batch.stamp), self._totals)
        except MalformedBody as error:
            self._quarantine(str(error))
            return
        except Exception as error:  # noqa: BLE001 a named border: a fault of ours takes one batch
            self._quarantine(f"a batch of {batch.signal.value}: {type(error).__name__}: {error}")
            return
        self._count(decoded)
        # Telemetry may hold any bits for a number: what is none is known by its value, not by a warning.
        with np.errstate(invalid="ignore"):
            for record in decoded.records:
                self._route(record, batch.stamp)
        if self._totals.full:
            self._totals.keep(self._runs)

    def _enter_life(self, body: bytes) -> None:
        """Compare and judge from here on as this life does; a body of nothing changes nothing."""
        if not body:
            return
        try:
            life = life_of(body)
        except msgspec.DecodeError as error:
            self._quarantine(f"a start record, so its limits are not applied: {error}")
            return
        self._reported, self._preset, self._room = life.baseline, life.preset, life.room or self._room
        self._diagnosis, self._how = life.diagnosis, None
        for tracked in self._runs.values():
            tracked.state.judged_by = life.preset
            tracked.state.heeded += 1

    def _count(self, decoded: Decoded) -> None:
        self.tower.unattributed += decoded.unattributed
        self.tower.unmapped += decoded.unmapped
        self.tower.late += decoded.late
        self.tower.resets += decoded.resets
        self.tower.overlaps += decoded.overlaps
        for problem in decoded.problems:
            self._quarantine(f"{problem.reason}: {problem.detail}")

    def _route(self, record: Record, stamp: int) -> None:
        """Fold a record into its run, and whatever had waited to know that this is its run."""
        if record.origin.join is None:
            self._fold(record, stamp)
            return
        resolved = self._joins.resolve(record, stamp)
        for stand_in in resolved.stand_ins:
            self._runs.pop(stand_in, None)
        for waited, its_stamp in resolved.released:
            self._fold(waited, its_stamp)
        self._fold(resolved.record, stamp)

    def _fold(self, record: Record, stamp: int) -> None:
        run_id = record.origin.run_id
        tracked = self._runs.get(run_id)
        if tracked is None and not self._may_begin(record):
            return
        if tracked is None:
            tracked = self._runs[run_id] = Tracked(new_run(record), Assessment())
            tracked.state.judged_by = self._preset
            self._make_room(stamp)
        state = tracked.state
        if wants_room(state, record.event):
            # A producer's clock may be ahead of all others: by ours, nothing is silent for longer than it is.
            now = min(record.event.at, stamp)
            self.tower.evicted_envs += evict(state, state.envs.silent(now - SILENT_NS))
        rows, beyond = state.envs.ids.size, state.overflow.total
        try:
            fresh = apply(state, record, stamp)
            if fresh:
                tracked.past.take(state, record, stamp)
                self.folded(state, record, stamp)
        except ValueError as error:
            self._quarantine(f"{type(record.event).__name__} of run {run_id}: {error}")
            return
        except Exception as error:  # noqa: BLE001 a named border: a fault of ours takes one record
            self._quarantine(
                f"{type(record.event).__name__} of run {run_id}: {type(error).__name__}: {error}"
            )
            return
        self.tower.records += 1
        self.tower.duplicates += not fresh
        self.tower.overflowed += state.overflow.total - beyond
        if state.envs.ids.size != rows:
            self._make_room(stamp)

    def _may_begin(self, record: Record) -> bool:
        """Whether a run begins with a record: there is room, and it is no rest of a run that ended."""
        if not _begins(record):
            self.tower.unattributed += 1
            return False
        run_id = record.origin.run_id
        is_rest = source_key(record.origin) in self._ended.get(run_id, ())
        if is_rest and not isinstance(record.event, RunStarted):
            self.tower.after_end += 1
            return False
        full = len(self._runs) >= self._room.runs
        if full and not any(run.is_over or run.fault is not None for run in self._runs.values()):
            self.tower.refused_runs += 1
            self.tower.last_problem = f"run {run_id}: there are {self._room.runs} runs already"
            return False
        self._ended.pop(run_id, None)
        return True

    def _make_room(self, now: int) -> None:
        """Evict what has to go, and share what is free among those that stay."""
        for run_id in leaving(self._runs, self._room, now):
            self._evict(run_id)
        too_large = cut_down(self._runs, self._room)
        if too_large is not None:
            run, rows = too_large
            self.tower.evicted_envs += evict(run.state, rows)
        costs = {run_id: cost(run) for run_id, run in self._runs.items()}
        over = sum(costs[run_id] for run_id, run in self._runs.items() if run.is_over)
        free = max(0, self._room.bytes - sum(costs.values())) + over
        for run in self._runs.values():
            run.state.envs.most = most_envs(run, self._room, free)

    def _evict(self, run_id: str) -> None:
        run = self._runs.pop(run_id)
        self._totals.forget(run_id)
        self.evicted.append(run)
        self.tower.evicted_runs += 1
        if run.state.finished is not None:
            self._ended[run_id] = list(run.state.sources)[-MAX_LIVES:]
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def _quarantine(self, detail: str) -> None:
        self.tower.problems += 1
        self.tower.last_problem = detail
