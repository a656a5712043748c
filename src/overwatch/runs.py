"""The runs of a fold: each with its judgement behind a border of its own, and the room for all of them.

Owns the border around a run: where judging or showing it fails, a fault of ours that its numbers found,
nothing is shown of it at that tick, and its neighbours are unharmed. Owns when a run is judged: where many
live, each once a second and not at every tick. Owns when a run rests: it has been over for long, only its age
changes, and a collector may know hundreds of such. A view between is judged for itself alone, and the run
remembers nothing of it.

Owns how much a fold may hold, what a run takes of it, and who goes first when it is used up. A run's cost
follows from its state alone, and the room is part of the recording, so a replay evicts the same runs at the
same ticks. Runs that are over go first, then envs that have long been silent; then the runs that grow get no
more envs. Pure. Must not know how much memory the process really has.
"""

import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.assess import dump as dump_assessment
from overwatch.diagnose.assess import load as load_assessment
from overwatch.diagnose.assess import without_new
from overwatch.diagnose.judging import Judging
from overwatch.diagnose.liveness import OVER, QUIET, STALE, judge_link
from overwatch.diagnose.problem import Open
from overwatch.projection import project_views
from overwatch.projection.heat import heat_map
from overwatch.projection.history import history
from overwatch.snapshot import Baseline, Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.state import RunState
from overwatch.state import dump as dump_state
from overwatch.state import load as load_state
from overwatch.state.arrays import Ints
from overwatch.state.envs import MAX_ENVS
from overwatch.state.heat import Heat, Scored
from overwatch.state.past import Mark, Past

LONG_NS: Final = 1_000_000_000
"""So much of a run is not folded without being looked at."""
TIRED_NS: Final = 600_000_000_000
"""So long after its last record a run that is over begins to rest: its findings have cleared or never do."""
REST_NS: Final = 10_000_000_000
"""A run that rests is judged once in so long."""
_DEFAULT: Final = View()
_OVER: Final = OVER | {"silent"}


class _Saved(msgspec.Struct, frozen=True):
    state: bytes
    assessment: bytes
    past: bytes
    logged_stamp: int
    heat: bytes = b""
    """Empty in a checkpoint of before there was any."""
    looked_at: int | None = None
    """`None` in a checkpoint of before: it was judged at every tick."""


_saved: Final = msgspec.msgpack.Decoder(_Saved).decode


class Tracked(msgspec.Struct):
    """A run with its judgement."""

    state: RunState
    assessment: Assessment
    logged_stamp: int = -1
    """`last_stamp` when the run's ended snapshot was last recorded."""
    judged: Judged | None = None
    """The newest judgement, if it could be judged; not part of a checkpoint."""
    looked_at: int = 0
    """Newest producer's time when it was last judged."""
    judged_stamp: int = -1
    """`last_stamp` then; not part of a checkpoint."""
    was_over: bool = False
    """Whether it was over then."""
    fault: str | None = None
    """Why it could not be judged or shown, when that was last tried."""
    shown: Snapshot | None = None
    """What the default view showed last; not part of a checkpoint."""
    past: Past = msgspec.field(default_factory=Past)
    """Its numbers over its whole length."""
    heat: Heat = msgspec.field(default_factory=Heat)
    """Its envs and lanes over its whole length."""

    def dump(self) -> bytes:
        """What outlives a life of the collector."""
        state, assessment = dump_state(self.state), dump_assessment(self.assessment)
        past, heat = self.past.dump(), self.heat.dump()
        return msgspec.msgpack.encode(
            _Saved(state, assessment, past, self.logged_stamp, heat, self.looked_at)
        )

    @classmethod
    def load(cls, data: bytes) -> "Tracked":
        """The run of `dump`'s bytes; raises `ValueError` on anything else."""
        saved = _saved(data)
        state, assessment = load_state(saved.state), load_assessment(saved.assessment)
        past, heat = Past.load(saved.past), Heat.load(saved.heat)
        looked_at = state.last_at if saved.looked_at is None else saved.looked_at
        return cls(state, assessment, saved.logged_stamp, looked_at=looked_at, past=past, heat=heat)

    def is_long(self, every_ns: int) -> bool:
        """Whether so much of it has come in since it was last judged that its turn comes too late for it."""
        return self.state.last_at - self.looked_at >= max(LONG_NS, 2 * every_ns)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it, or nothing for long."""
        if self.state.last_stamp == self.judged_stamp:
            return self.was_over
        # What came since may be a new life. That of a checkpoint is as over as when it was judged last.
        judged_at = self.assessment.tick
        return judged_at > 0 and judge_link(self.state, judged_at).state in _OVER

    def excuse(self, stamp: int) -> None:
        """The collector was away until `stamp`: silence counts from then.

        What was too quiet before stays so, and where nothing came since the last return, silence adds up.
        """
        state, tick = self.state, self.assessment.tick
        silent = max(0, tick - max(state.last_stamp, state.back_stamp))
        counts = state.last_stamp <= state.back_stamp or judge_link(state, tick).state in QUIET
        state.back_stamp = stamp - silent * counts

    def rests(self, tick: int) -> bool:
        """Whether its memory stays as it is at `tick`; only what a checkpoint holds decides that."""
        received = max(self.state.last_stamp, self.state.back_stamp)
        if tick - received < TIRED_NS or tick // REST_NS != self.assessment.tick // REST_NS:
            return False
        return judge_link(self.state, tick).state in _OVER

    def shown_since(self, tick: int) -> Snapshot | None:
        """What the default view showed last, if that was at `tick` or later or it was not judged since."""
        judged = 0 if self.judged is None else self.judged.assessment.tick
        if self.shown is None or self.shown.time < min(tick, judged) / 1e9:
            return None
        return self.shown

    def is_due(self, tick: int, every_ns: int) -> bool:
        """Whether it is judged at `tick`, where that is done once in `every_ns`; a new one is at once."""
        is_turn = tick % every_ns == 0 or self.assessment.tick == 0
        return is_turn and not self.rests(tick)

    def judge(
        self, tick: int, how: Judging, baseline: Baseline | None, muted: Collection[str] | None
    ) -> None:
        """Judge it at `tick`, and remember that; where it is `muted`, only the findings named there open."""
        judged = self.glance(tick, how, baseline, muted)
        self.looked_at, self.judged_stamp = self.state.last_at, -1
        if judged is None:
            return
        self.judged_stamp, self.was_over = self.state.last_stamp, judged.link.state in _OVER
        if not self.assessment.over:
            self._take_heat(judged)
        self.assessment = judged.assessment
        for item in judged.assessment.findings.values():
            self._mark(item)

    def glance(
        self, tick: int, how: Judging, baseline: Baseline | None, muted: Collection[str] | None
    ) -> Judged | None:
        """As `judge`, for who looks at it now: nothing of it is remembered, so a replay needs none of it."""
        self.judged, self.fault = None, None
        try:
            judged = assess(self.state, self.assessment, tick, how, baseline)
            if muted is not None:
                judged = without_new(judged, self.assessment, muted)
        except Exception as error:  # noqa: BLE001 the border that is named above
            self.shown = None
            self.fault = f"cannot be judged: {_where_raised(error)}"
            return None
        self.judged = judged
        return judged

    def _take_heat(self, judged: Judged) -> None:
        now, envs, anomalies = judged.assessment.watched.clock.now, self.state.envs, judged.anomalies
        scored = Scored(
            ids=envs.ids[: envs.n],
            moved=envs.moved,
            scores=anomalies.scores,
            crashed=anomalies.of_status("crashed"),
            is_known=judged.link.state not in STALE,
        )
        self.heat.take_envs(now, scored)
        if self.heat.is_due(now):
            # A verdict is held for seconds: none is missed by a look a second.
            self.heat.take_lanes(
                now, {name: (bound.state, bound.mark) for name, bound in judged.bounds.items()}
            )

    def _mark(self, item: Open) -> None:
        problem = item.problem
        mark = Mark(
            code=problem.code, severity=problem.severity, scope=problem.scope, subject=problem.subject,
            since=item.since, cleared_at=item.cleared_at, message=problem.message,
        )  # fmt: skip
        self.past.mark(problem.id, mark)

    def history(self, query: HistoryQuery) -> History:
        """What was asked for of its past."""
        return history(self.state, self.past, query)

    def heat_map(self, query: HeatQuery) -> HeatMap:
        """What was asked for of its envs or lanes over time."""
        return heat_map(self.state, self.judged, self.heat, query)

    def project(self, views: Sequence[View]) -> dict[View, Snapshot]:
        """What views show of it; nothing where it was not judged."""
        if self.judged is None:
            return {}
        try:
            snapshots = project_views(self.state, self.judged, views)
        except Exception as error:  # noqa: BLE001 the border that is named above
            self.shown, self.fault = None, f"cannot be shown: {_where_raised(error)}"
            return {}
        self.shown = snapshots.get(_DEFAULT, self.shown)
        return snapshots

    def is_recorded(self) -> bool:
        """Whether a snapshot log gets it now: living runs always, one that is over once more."""
        if self.judged is None or (self.is_over and self.logged_stamp == self.state.last_stamp):
            return False
        self.logged_stamp = self.state.last_stamp if self.is_over else -1
        return True


def _where_raised(error: Exception) -> str:
    """The error and where it was raised, on one line."""
    raised = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({PurePath(raised.filename).name}:{raised.lineno})"


RUN_BYTES: Final = 64 << 10
"""What a run takes beside its envs: measured 64 KiB."""
ENV_BYTES: Final = 2912
"""What a row for an env takes: state and judgement, measured 2,200, and up to 512 of its cells over time."""
SLOT_BYTES: Final = 72
"""What a slot of a row takes."""
FACT_BYTES: Final = 1024
"""What a remembered line about an env takes: measured 560, and 2,800 with the longest text."""
NUMBER_BYTES: Final = 64
"""What a remembered removal of an env, or a missing sequence number, takes."""
SMALL_PART: Final = 8
"""A run may take this part of the room for as long as so much is free."""
SILENT_NS: Final = 600_000_000_000
"""So long after its last record an env may be evicted."""
_DAY_NS: Final = 86_400_000_000_000


class Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a fold may hold."""

    runs: int = 1024
    """Most runs."""
    bytes: int = 640 << 20
    """Most bytes of all of them, as `cost` counts."""
    ended_ns: int = 7 * _DAY_NS
    """So long after its last record a run that is over is kept at most."""


def cost(run: Tracked) -> int:
    """What a run takes, in bytes."""
    return _beside(run) + run.state.envs.ids.size * _row(run)


def most_envs(run: Tracked, room: Room, free: int) -> int:
    """How many envs a run may have where `free` bytes are left.

    A large run takes at most half of what it alone could have: the next one finds room too.
    """
    could = free + cost(run)
    within = max(could // 2, min(could, room.bytes // SMALL_PART))
    return min(MAX_ENVS, max(run.state.envs.n, (within - _beside(run)) // _row(run)))


def leaving(runs: Mapping[str, Tracked], room: Room, tick: int) -> list[str]:
    """The runs to evict: of those that are over the oldest, until what is left fits and none is too old."""
    over = sorted(
        (run_id for run_id, run in runs.items() if run.is_over or run.fault is not None),
        key=lambda run_id: runs[run_id].state.last_stamp,
    )
    used, count, gone = sum(cost(run) for run in runs.values()), len(runs), list[str]()
    for run_id in over:
        run = runs[run_id]
        if used <= room.bytes and count <= room.runs and tick - run.state.last_stamp <= room.ended_ns:
            break
        gone.append(run_id)
        used, count = used - cost(run), count - 1
    return gone


def cut_down(runs: Mapping[str, Tracked], room: Room) -> tuple[Tracked, Ints] | None:
    """The run that takes most, with the rows of envs to evict; `None` where all runs fit."""
    used = sum(cost(run) for run in runs.values())
    if used <= room.bytes:
        return None
    run = max(runs.values(), key=cost)
    half = (room.bytes - used + cost(run)) // 2
    keeps = max(0, (half - _beside(run)) // _row(run))
    return run, run.state.envs.quietest(run.state.envs.n - keeps)


def _beside(run: Tracked) -> int:
    """What it takes beside its envs' rows, its past among it."""
    state = run.state
    numbers = len(state.envs.gone) + sum(len(source.gaps) for source in state.sources.values())
    return RUN_BYTES + FACT_BYTES * state.facts.total + NUMBER_BYTES * numbers + run.past.size


def _row(run: Tracked) -> int:
    slots: int = run.state.envs.stage.shape[1]
    return ENV_BYTES + SLOT_BYTES * slots
