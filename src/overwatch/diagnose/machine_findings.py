"""Findings about machines: lanes held back, throughput that fell, GPUs and hosts that fail or fill up.

A lane that waits for another has no finding: it is counted in the one about the lane it waits for. What is
the host's or the whole run's (data, experience, weights) is one finding, however many lanes wait; slow envs
are counted under their lane.

Whether a run gets less done than it could: against its own best hour, and against another run. Rates are of
stretches of whole updates, so collecting and learning weigh the same in each. A fall must be large, and stand
out from the scatter of stretches; it comes with the phase that grew.

A GPU whose readings end is lost only where the process that read it still sends other readings: a process
that is gone is another finding. What fills up is judged by what is left, and by the time until nothing is.
Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from overwatch.catalog.bounds import ROWS, BoundState, Shared
from overwatch.catalog.durations import duration
from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.factors import with_slow_lane
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lane_signals import memory_trend
from overwatch.diagnose.lanes import FRESH_S, LaneFacts, Of, is_known_rhythm
from overwatch.diagnose.problem import SECOND_NS, STEADY, Patience, Problem
from overwatch.events.adding import added
from overwatch.snapshot import Baseline
from overwatch.state.arrays import NORMAL, median
from overwatch.state.machines import HostReadings, LaneHealth
from overwatch.state.rhythm import Pace, Stretch
from overwatch.state.run import RunState

HELD: Final = Patience(hold=SECOND_NS // 2, clear=3 * SECOND_NS, cooldown=30 * SECOND_NS)
"""What holds a lane back has been true for a while already."""


_SPOKEN_OF: Final = frozenset(row.state.value for row in ROWS if row.fault)


def lane_problems(
    fleet: Fleet, lanes: Sequence[LaneFacts], bounds: Mapping[str, Bound], limits: AnomalyLimits
) -> Iterator[Problem]:
    """One finding for each lane, or rank without one, whose bound is a fault of its own; then shared ones."""
    if not _SPOKEN_OF.intersection(bound.state for bound in bounds.values()):
        return
    slow = with_slow_lane(fleet, limits)
    waiting = sum(bound.state == BoundState.SYNC.value for bound in bounds.values())
    for lane in lanes:
        bound = bounds[lane.name]
        num_slow = int((slow & fleet.on_lane(lane.name)).sum())
        match BoundState(bound.state):
            case BoundState.THROTTLED:
                yield _lane_problem(fleet, lane, bound, _throttled(lane, bound), num_slow)
            case BoundState.STRAGGLER:
                what = "lane" if lane.of is Of.DEVICE else "rank"
                lead = "" if not waiting else f"; {waiting} {what}{' waits' if waiting == 1 else 's wait'}"
                message = bound.why.partition(";")[0]
                yield _lane_problem(
                    fleet, lane, bound, ("straggler", f"straggler: {message}{lead}"), num_slow
                )
            case BoundState.OOM_RISK:
                yield _lane_problem(fleet, lane, bound, ("oom-forecast", bound.why), 0)
            case _:
                pass
    for row in ROWS:
        if row.shared is not None:
            of_it = [lane for lane in lanes if bounds[lane.name].state == row.state.value]
            yield from _for_all(fleet, of_it, bounds, row.shared)


def _lane_problem(
    fleet: Fleet, lane: LaneFacts, bound: Bound, stated: tuple[str, str], num_slow: int
) -> Problem:
    code, message = stated
    envs = "" if not num_slow else f"; {num_slow} slow {'env' if num_slow == 1 else 'envs'}"
    return Problem(
        code=code,
        severity="critical" if bound.mark == "!!" else "warning",
        scope="gpu" if lane.of is Of.DEVICE else "run",
        subject=lane.name,
        at=fleet.state.last_at,
        message=message + envs,
        hint=bound.hint,
        factors=bound.evidence,
        symptoms=num_slow,
        patience=HELD,
    )


def _throttled(lane: LaneFacts, bound: Bound) -> tuple[str, str]:
    cause = bound.why.partition(":")[0].partition(";")[0]
    code = "clock-low" if cause == "clock" else f"{cause}-throttle"
    name = "clock held down" if cause == "clock" else f"{cause} throttle"
    return code, name if lane.clock is None else f"{name}, clock at {lane.clock:.0%} of max"


def _for_all(
    fleet: Fleet, lanes: Sequence[LaneFacts], bounds: Mapping[str, Bound], shared: Shared
) -> Iterator[Problem]:
    """Several lanes that wait for the same thing are one finding about it."""
    if not lanes:
        return
    first = bounds[lanes[0].name]
    several = len(lanes) > 1
    own = not several and lanes[0].of is Of.DEVICE
    stated = f"{shared.message}: {first.why.partition(',')[0]}"
    yield Problem(
        code=shared.code,
        scope="gpu" if own else shared.scope,
        subject=lanes[0].name if own else None,
        at=fleet.state.last_at,
        message=f"{stated}; {len(lanes)} lanes wait" if several else stated,
        hint=first.hint,
        factors=first.evidence,
        symptoms=len(lanes) if several else 0,
        patience=HELD,
    )


HOUR_NS: Final = 3_600_000_000_000
RECENT: Final = 3
"""Stretches that are now; their middle counts, so that one evaluation is no fall."""
LEAST: Final = 12
"""Stretches from which on there is a best."""
FALL: Final = 0.2
SCATTER: Final = 3.0
"""Robust standard deviations of single stretches that the fall must be, too."""
OF_MEAN: Final = 1.2533
"""Standard deviations in one mean absolute deviation, for normal data."""
MOST_OF: Final = 0.8
"""Phases that grew by at least this share of the most are one and the same, within one another."""
LEAST_OF_FALL: Final = 0.25
"""Share of the lost time that a phase must have grown by to be named."""
PATIENCE: Final = Patience(clear=20 * SECOND_NS, cooldown=120 * SECOND_NS)
"""Its hold is in the stretches."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run gets done."""

    unit: str
    now: float
    """Of the newest stretches, a second."""
    at: int
    """When the newest of them ended."""
    phases: dict[str, float] = {}
    """Seconds in each phase for one step or update, now."""
    best: Baseline | None = None
    """Of the best hour so far; of the best minutes while the run is younger."""


def throughput_of(pace: Pace, before: Throughput | None) -> Throughput | None:
    """What is done now and was at best; `None` before there are stretches enough to know what is now."""
    stretches = pace.stretches.items
    if len(stretches) < RECENT:
        return None
    newest = stretches[-1]
    if before is not None and before.at == newest.at:
        return before
    unit = _unit(newest)
    alike = [stretch for stretch in stretches if _unit(stretch) == unit]
    best = before.best if before is not None and before.at >= stretches[0].at else None
    hour = [stretch for stretch in alike if newest.at - stretch.at < HOUR_NS]
    if len(hour) >= LEAST:
        candidate = baseline_of(hour, unit)
        best = candidate if best is None or candidate.rate > best.rate else best
    recent = alike[-RECENT:]
    return Throughput(
        unit=unit,
        now=median([stretch.rate for stretch in recent]) or 0.0,
        at=newest.at,
        phases=_a_piece(recent),
        best=best,
    )


def baseline_of(stretches: Sequence[Stretch], unit: str, name: str = "its best hour") -> Baseline:
    """What these stretches were like."""
    rates = [stretch.rate for stretch in stretches]
    centre = median(rates) or 0.0
    apart = [abs(rate - centre) for rate in rates]
    # Few steps a stretch make few different rates: most are alike, and the others no fall.
    scatter = max(NORMAL * (median(apart) or 0.0), OF_MEAN * added(apart) / max(1, len(apart)))
    return Baseline(name=name, unit=unit, rate=centre, scatter=scatter, phases=_a_piece(stretches))


def _unit(stretch: Stretch) -> str:
    return "steps" if stretch.steps else "updates"


def _a_piece(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Seconds in each phase for one step or update."""
    pieces = sum(stretch.steps or stretch.updates for stretch in stretches)
    names = sorted({name for stretch in stretches for name in stretch.phases})
    if not pieces:
        return {}
    return {name: added(stretch.phases.get(name, 0.0) for stretch in stretches) / pieces for name in names}


def regressions(reported: Throughput | None, baseline: Baseline | None) -> Iterator[Problem]:
    """At most one finding for each thing that the run is compared with."""
    if reported is None:
        return
    for code, other in (("throughput-regression", reported.best), ("throughput-below-baseline", baseline)):
        if other is not None and other.unit == reported.unit and _has_fallen(reported, other):
            yield _fall_problem(code, reported, other)


def _has_fallen(reported: Throughput, other: Baseline) -> bool:
    return reported.now < (1 - FALL) * other.rate and reported.now < other.rate - SCATTER * other.scatter


def _fall_problem(code: str, reported: Throughput, other: Baseline) -> Problem:
    grew = grown_phase(reported, other)
    by = "" if grew is None else f"; {_grown(grew, reported, other)}"
    fall = 1 - reported.now / other.rate
    return Problem(
        code=code,
        at=reported.at,
        message=f"{reported.now:,.3g} {reported.unit}/s, {fall:.0%} below {other.rate:,.3g} of "
        f"{other.name}{by}",
        hint=_hint(grew)
        if reported.phases and other.phases
        else "time the phases to see what takes the time",
        factors=() if grew is None else (_grown(grew, reported, other),),
        patience=PATIENCE,
    )


def _hint(grew: str | None) -> str:
    if grew is None:
        return "all phases grew alike: look at the machine: clock, neighbours, cores"
    return f"look at what {grew} does now and did not before"


def _grown(name: str, reported: Throughput, other: Baseline) -> str:
    before, now = other.phases.get(name, 0.0), reported.phases[name]
    return f"{name} takes {now / before:.1f}x as long" if before > 0 else f"{name} is new"


def grown_phase(reported: Throughput, other: Baseline) -> str | None:
    """The phase that took most of the time that is lost; of phases within phases the innermost."""
    if not other.phases or reported.now <= 0 or other.rate <= 0:
        return None
    grew = {name: now - other.phases.get(name, 0.0) for name, now in reported.phases.items()}
    most = max(grew.values(), default=0.0)
    if most < LEAST_OF_FALL * (1 / reported.now - 1 / other.rate):
        return None
    alike = [name for name, more in grew.items() if more >= MOST_OF * most]
    return min(alike, key=lambda name: (reported.phases[name], name))


GONE_S: Final = 7.0
"""Silence of a GPU, beyond its own rhythm, that is more than one look that hung."""
GONE_FOR_GOOD_S: Final = 30.0
FAULT_S: Final = 600.0
"""How long a fault that a GPU lives with is held against it."""
GIB: Final = 1 << 30
FORESIGHT: Final = 8.0
"""Times as long as a rise was watched that it may be drawn on."""
SHORT: Final = 0.95
"""Used share from which memory, or a disk that is not large, is short."""
OUT: Final = 0.98
"""Used share of memory from which a process is likely to be ended."""
SMALL_ROOM: Final = 20 * GIB
NO_ROOM: Final = GIB
"""Bytes left on a disk below which it is short, and as good as full."""
LEAST_SAVES: Final = 4
"""Checkpoints from which on there is a schedule."""
FAILED_SAVES: Final = 2
OVERDUE: Final = 2.0
"""Times the longest usual pause: the next one is due by then, and the one after it."""
REGULAR: Final = 2.0
"""Most that the longest pause of a schedule is above the usual one."""


def hardware_problems(state: RunState, lanes: Sequence[LaneFacts], tick: int) -> Iterator[Problem]:
    """Everything that is wrong with the machines themselves, by this second's readings."""
    facts = {lane.name: lane for lane in lanes}
    for name, health in state.lane_health.items():
        yield from _lost(state, name, health, facts.get(name), tick)
        yield from _memory_errors(name, health)
        yield from _fault(state, name, health)
    for node, host in state.hosts.items():
        for filling in _FILLING:
            yield from _full(state, node, host, filling, tick)
    yield from _not_saving(state)


def _lost(
    state: RunState, name: str, health: LaneHealth, lane: LaneFacts | None, tick: int
) -> Iterator[Problem]:
    """A GPU that the driver reports lost, or whose readings ended while its reader goes on."""
    hint = "save a checkpoint where it still can; look at dmesg for Xid, then reset or drain the machine"
    if health.lost_at:
        yield _of_lane(
            name, "critical", health.lost_at, code="gpu-lost", message=f"GPU lost: {health.lost}", hint=hint
        )
        return
    if lane is None or lane.is_fresh or lane.age_s < GONE_S or not is_known_rhythm(state.lanes[name]):
        return
    reader = state.sources.get(health.read_by)
    if reader is None or reader.finished or (tick - reader.sampled) / 1e9 > lane.fresh_s:
        return
    yield _of_lane(
        name,
        "critical" if lane.age_s >= max(GONE_FOR_GOOD_S, 2 * lane.fresh_s) else "warning",
        tick - int(lane.age_s * 1e9),
        code="gpu-lost",
        message=f"GPU gives no readings for {duration(lane.age_s)}, while {reader.speaker} reads its machine",
        hint="run nvidia-smi there; look at dmesg for Xid, then reset or drain the machine",
    )


def _memory_errors(name: str, health: LaneHealth) -> Iterator[Problem]:
    """Memory that lost data since this run began; what was counted before is another run's."""
    if not health.memory_at:
        return
    more = health.newest_errors - (health.errors or 0.0)
    counted = (
        f"{more:.0f} uncorrected memory {'error' if more == 1 else 'errors'} in this run" if more else ""
    )
    words = "; ".join(part for part in (counted, health.memory) if part)
    hint = "stop trusting what it computed since; reset the GPU, and replace it where it happens again"
    yield _of_lane(name, "critical", health.memory_at, code="ecc-uncorrectable", message=words, hint=hint)


def _fault(state: RunState, name: str, health: LaneHealth) -> Iterator[Problem]:
    if health.fault_at and (state.last_at - health.fault_at) / 1e9 <= FAULT_S:
        hint = "look at dmesg around it; a fault that comes again needs a reset, or another GPU"
        yield _of_lane(name, "warning", health.fault_at, code="gpu-fault", message=health.fault, hint=hint)


def _of_lane(name: str, severity: str, at: int, *, code: str, message: str, hint: str) -> Problem:
    return Problem(
        code=code, severity=severity, scope="gpu", subject=name, at=at, message=message, hint=hint,
        patience=STEADY if severity == "warning" else HELD,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filling:
    """Something of a host that fills up."""

    code: str
    what: str
    used: str
    total: str
    """Short names of its readings."""
    hint: str
    soon_s: float
    """From so many seconds to full on it is a warning."""
    now_s: float
    """And from so many on critical."""
    rising_from: float
    """Used share below which a rise is a start."""
    is_short: Callable[[float, float, RunState], str | None]
    """How bad it is by what is used of the whole alone."""


def _short_of_memory(used: float, total: float, _state: RunState) -> str | None:
    """A kernel ends processes when nothing is left; a full page cache is not counted as used."""
    if used >= OUT * total:
        return "critical"
    return "warning" if used >= SHORT * total else None


def _short_of_disk(used: float, total: float, state: RunState) -> str | None:
    """By bytes too: a twentieth of a large disk is much."""
    saved = state.checkpoint.size_bytes if state.checkpoint is not None else None
    left = total - used
    if used >= SHORT * total and left < NO_ROOM:
        return "critical"
    if (saved or 0) > left or (used >= SHORT * total and left < SMALL_ROOM):
        return "warning"
    return None


_FILLING: Final = (
    _Filling(
        code="host-memory",
        what="memory",
        used="ram_used_bytes",
        total="ram_total_bytes",
        hint="save a checkpoint; look for what grows: replay buffers, workers, caches, kept tensors",
        soon_s=300.0,
        now_s=60.0,
        rising_from=0.85,
        is_short=_short_of_memory,
    ),
    _Filling(
        code="disk-full",
        what="disk",
        used="disk_used_bytes",
        total="disk_total_bytes",
        hint="make room now, the next checkpoint fails; keep fewer checkpoints, or on another disk",
        soon_s=3600.0,
        now_s=120.0,
        rising_from=0.8,
        is_short=_short_of_disk,
    ),
)


def _full(state: RunState, node: str, host: HostReadings, filling: _Filling, tick: int) -> Iterator[Problem]:
    """A host that is short of something, or will be soon."""
    used, total = host.gauges.get(filling.used), host.gauges.get(filling.total)
    if used is None or total is None or total.value <= 0:
        return
    if (tick - used.stamp) / 1e9 > max(FRESH_S, 3 * _interval_s(used.times.items)):
        return
    severity = filling.is_short(used.value, total.value, state)
    share, left = used.value / total.value, max(0.0, total.value - used.value)
    words = f"{filling.what} of {node} {share:.0%} full, {left / GIB:.1f} GiB left"
    trend = memory_trend(used, host.peaks.get(filling.used), total.value)
    soon_s = 0.0 if trend is None else min(filling.soon_s, FORESIGHT * trend.span_s)
    if trend is not None and share >= filling.rising_from and trend.oom_s <= soon_s:
        soon = trend.oom_s <= filling.now_s and share >= 0.9
        severity = "critical" if soon or severity == "critical" else "warning"
        words += f"; full in about {duration(trend.oom_s)}"
    if severity is None:
        return
    yield Problem(
        code=filling.code, severity=severity, scope="host", subject=node, at=used.at, message=words,
        hint=filling.hint, patience=STEADY,
    )  # fmt: skip


def _interval_s(times: Sequence[int]) -> float:
    return median([(after - before) / 1e9 for before, after in pairwise(times)]) or 0.0


def _not_saving(state: RunState) -> Iterator[Problem]:
    """Saves fail, by the log; or checkpoints are overdue by their schedule, in updates and in time."""
    saves, failed = state.saves.items, state.failed_saves
    if failed.count >= FAILED_SAVES:
        last = "no checkpoint was saved yet" if state.checkpoint is None else "since the newest one"
        yield Problem(
            code="checkpoints-stopped",
            at=failed.first_at,
            message=f"{failed.count} saves failed, {last}: {failed.message}",
            hint="make room, or mend the path or the access to it, and save at once: nothing can be resumed",
        )
        return
    if len(saves) < LEAST_SAVES:
        return
    times = [(after[0] - before[0]) / 1e9 for before, after in pairwise(saves)]
    updates = [float(after[1] - before[1]) for before, after in pairwise(saves)]
    usual = median(updates)
    if usual is None or max(updates) > REGULAR * usual:
        return
    at, done = saves[-1]
    for_s, more = (state.last_update_at - at) / 1e9, state.updates - done
    if more <= OVERDUE * max(updates) or for_s <= OVERDUE * max(times):
        return
    yield Problem(
        code="checkpoints-stopped",
        at=at + int(max(times) * SECOND_NS),
        message=(
            f"no checkpoint for {duration(for_s)} and {more:,} updates; usual every "
            f"{duration(median(times) or 0.0)}, {usual:.0f} updates"
        ),
        hint="look at the trainer's log for a save that failed: a full disk, a quota, a path that is gone",
    )
