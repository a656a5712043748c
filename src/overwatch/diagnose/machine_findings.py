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

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from overwatch.catalog.bounds import ROWS, BoundState, Shared
from overwatch.catalog.durations import duration
from overwatch.diagnose.bounds import GIB, Bound
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.factors import with_slow_lane
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lane_signals import memory_trend
from overwatch.diagnose.lanes import FRESH_S, INTERVALS, LaneFacts, Of, is_known_rhythm
from overwatch.diagnose.problem import SECOND_NS, STEADY, Patience, Problem
from overwatch.events.adding import added
from overwatch.snapshot import Baseline
from overwatch.state.arrays import NORMAL, median, seconds_between
from overwatch.state.machines import HostReadings, LaneHealth
from overwatch.state.rhythm import Pace, Stretch
from overwatch.state.run import RunState

HELD: Final = Patience(hold=SECOND_NS // 2, clear=3 * SECOND_NS, cooldown=30 * SECOND_NS)
"""What holds a lane back has been true for a while already."""


def lane_problems(
    fleet: Fleet, lanes: Sequence[LaneFacts], bounds: Mapping[str, Bound], limits: AnomalyLimits,
    warns: Collection[str],
) -> Iterator[Problem]:  # fmt: skip
    """One finding for each lane, or rank without one, whose bound is a fault of its own; then shared ones.

    What lanes share is a warning where it `warns` of some of them; else the run was set up so and learns.
    """
    waiting = sum(bound.state == BoundState.SYNC.value for bound in bounds.values())
    alone = [(lane, bounds[lane.name]) for lane in lanes if bounds[lane.name].finding]
    slow = with_slow_lane(fleet, limits) if alone else None
    for lane, bound in alone:
        code, message = bound.finding or ("", "")
        is_device, num_slow = lane.of is Of.DEVICE, 0
        if bound.state == BoundState.STRAGGLER.value and waiting:
            what = "lane" if is_device else "rank"
            message += f"; {waiting} {what}{' waits' if waiting == 1 else 's wait'}"
        if bound.state != BoundState.OOM_RISK.value and slow is not None:
            num_slow = int((slow & fleet.on_lane(lane.name)).sum())
        envs = "" if not num_slow else f"; {num_slow} slow {'env' if num_slow == 1 else 'envs'}"
        yield Problem(
            code=code,
            severity="critical" if bound.mark == "!!" else "warning",
            scope="gpu" if is_device else "run",
            subject=lane.name,
            at=fleet.state.last_at,
            message=message + envs,
            hint=bound.hint,
            factors=bound.evidence,
            symptoms=num_slow,
            patience=HELD,
        )
    for row in ROWS:
        of_it = [lane for lane in lanes if bounds[lane.name].state == row.state.value]
        if row.shared is not None and of_it:
            severity = "warning" if any(lane.name in warns for lane in of_it) else "info"
            yield _shared(fleet, of_it, bounds[of_it[0].name], row.shared, severity)


def _shared(fleet: Fleet, lanes: Sequence[LaneFacts], first: Bound, shared: Shared, severity: str) -> Problem:
    """Several lanes that wait for the same thing are one finding about it."""
    several = len(lanes) > 1
    own = not several and lanes[0].of is Of.DEVICE
    waits = f"; {len(lanes)} lanes wait" if several else ""
    return Problem(
        code=shared.code,
        severity=severity,
        scope="gpu" if own else shared.scope,
        subject=lanes[0].name if own else None,
        at=fleet.state.last_at,
        message=f"{shared.message}: {first.why.partition(',')[0]}{waits}",
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

    at: int
    """When the newest stretch ended."""
    now: Baseline
    """Of the newest stretches."""
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
    alike = [one for one in stretches if bool(one.steps) == bool(newest.steps)]
    best = before.best if before is not None and before.at >= stretches[0].at else None
    hour = [one for one in alike if newest.at - one.at < HOUR_NS]
    if len(hour) >= LEAST:
        candidate = _baseline(hour)
        best = candidate if best is None or candidate.rate > best.rate else best
    return Throughput(at=newest.at, now=_baseline(alike[-RECENT:]), best=best)


def _baseline(stretches: Sequence[Stretch]) -> Baseline:
    """What these stretches were like, with the seconds in each phase for one step or update."""
    rates = [stretch.rate for stretch in stretches]
    centre = median(rates) or 0.0
    apart = [abs(rate - centre) for rate in rates]
    pieces = sum(stretch.steps or stretch.updates for stretch in stretches)
    names = sorted({name for stretch in stretches for name in stretch.phases}) if pieces else ()
    return Baseline(
        name="its best hour",
        unit="steps" if stretches[-1].steps else "updates",
        rate=centre,
        # Few steps a stretch make few different rates: most are alike, and the others no fall.
        scatter=max(NORMAL * (median(apart) or 0.0), OF_MEAN * added(apart) / max(1, len(apart))),
        phases={name: added(one.phases.get(name, 0.0) for one in stretches) / pieces for name in names},
    )


def regressions(reported: Throughput | None, baseline: Baseline | None) -> Iterator[Problem]:
    """At most one finding for each thing that the run is compared with."""
    if reported is None:
        return
    now = reported.now
    for code, other in (("throughput-regression", reported.best), ("throughput-below-baseline", baseline)):
        if other is None or other.unit != now.unit:
            continue
        if now.rate >= min((1 - FALL) * other.rate, other.rate - SCATTER * other.scatter):
            continue
        grew, words, hint = _grown_phase(now, other), "", "time the phases to see what takes the time"
        if grew is not None:
            before, hint = other.phases.get(grew, 0.0), f"look at what {grew} does now and did not before"
            words = f"{grew} takes {now.phases[grew] / before:.1f}x as long" if before else f"{grew} is new"
        elif now.phases and other.phases:
            hint = "all phases grew alike: look at the machine: clock, neighbours, cores"
        fall = f"{1 - now.rate / other.rate:.0%} below {other.rate:,.3g} of {other.name}"
        yield Problem(
            code=code,
            at=reported.at,
            message="; ".join(filter(None, (f"{now.rate:,.3g} {now.unit}/s, {fall}", words))),
            hint=hint,
            factors=(words,) if words else (),
            patience=PATIENCE,
        )


def _grown_phase(now: Baseline, other: Baseline) -> str | None:
    """The phase that took most of the time that is lost; of phases within phases the innermost."""
    grew = {name: took - other.phases.get(name, 0.0) for name, took in now.phases.items()}
    most = max(grew.values(), default=0.0) if other.phases and now.rate > 0 else 0.0
    if most <= 0 or most < LEAST_OF_FALL * (1 / now.rate - 1 / other.rate):
        return None
    alike = [name for name, more in grew.items() if more >= MOST_OF * most]
    return min(alike, key=lambda name: (now.phases[name], name))


GONE_S: Final = 7.0
"""Silence of a GPU, beyond its own rhythm, that is more than one look that hung."""
GONE_FOR_GOOD_S: Final = 30.0
FAULT_S: Final = 600.0
"""How long a fault that a GPU lives with is held against it."""
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


def hardware_problems(state: RunState, facts: Mapping[str, LaneFacts], tick: int) -> Iterator[Problem]:
    """Everything that is wrong with the machines themselves, by this second's readings."""
    for name, health in state.lane_health.items():
        for code, severity, at, message, hint in _ill(state, health, facts.get(name), tick):
            yield Problem(
                code=code, severity=severity, scope="gpu", subject=name, at=at, message=message, hint=hint,
                patience=STEADY if severity == "warning" else HELD,
            )  # fmt: skip
    for node, host in state.hosts.items():
        for filling in _FILLING:
            yield from _full(state, node, host, filling, tick)
    yield from _not_saving(state)


def _ill(
    state: RunState, health: LaneHealth, lane: LaneFacts | None, tick: int
) -> Iterator[tuple[str, str, int, str, str]]:
    """What is wrong with a GPU, by its driver or since its readings ended while its reader goes on."""
    reader = state.sources.get(health.read_by)
    if health.lost_at:
        hint = "save a checkpoint where it still can; look at dmesg for Xid, then reset or drain the machine"
        yield "gpu-lost", "critical", health.lost_at, f"GPU lost: {health.lost}", hint
    elif (
        lane is not None
        and reader is not None
        and not lane.is_fresh
        and is_known_rhythm(state.lanes[lane.name])
    ):
        is_read = not reader.finished and (tick - reader.sampled) / 1e9 <= lane.fresh_s
        if lane.age_s >= GONE_S and is_read:
            gone = lane.age_s >= max(GONE_FOR_GOOD_S, 2 * lane.fresh_s)
            message = (
                f"GPU gives no readings for {duration(lane.age_s)}, while {reader.speaker} reads its machine"
            )
            hint = "run nvidia-smi there; look at dmesg for Xid, then reset or drain the machine"
            at = tick - int(lane.age_s * 1e9)
            yield "gpu-lost", "critical" if gone else "warning", at, message, hint
    if health.memory_at:
        # What was counted before this run is another one's.
        more = health.newest_errors - (health.errors or 0.0)
        errors = "error" if more == 1 else "errors"
        counted = f"{more:.0f} uncorrected memory {errors} in this run" if more else ""
        hint = "stop trusting what it computed since; reset the GPU, and replace it where it happens again"
        message = "; ".join(filter(None, (counted, health.memory)))
        yield "ecc-uncorrectable", "critical", health.memory_at, message, hint
    if health.fault_at and (state.last_at - health.fault_at) / 1e9 <= FAULT_S:
        hint = "look at dmesg around it; a fault that comes again needs a reset, or another GPU"
        yield "gpu-fault", "warning", health.fault_at, health.fault, hint


_FILLING: Final = (
    (
        "host-memory", "memory", "ram", 300.0, 60.0, 0.85,
        "save a checkpoint; look for what grows: replay buffers, workers, caches, kept tensors",
    ),
    (
        "disk-full", "disk", "disk", 3600.0, 120.0, 0.8,
        "make room now, the next checkpoint fails; keep fewer checkpoints, or on another disk",
    ),
)  # fmt: skip
"""What fills up: code, word and readings; from so many seconds to full on a warning, and critical; the used
share below which a rise is a start; hint."""


def _shortage(code: str, used: float, total: float, state: RunState) -> str | None:
    """How bad it is by what is used of the whole alone."""
    share, left = used / total, total - used
    if code == "host-memory":
        # A kernel ends processes when nothing is left; a full page cache is not counted as used.
        return "critical" if share >= OUT else "warning" if share >= SHORT else None
    # By bytes too: a twentieth of a large disk is much.
    if share >= SHORT and left < NO_ROOM:
        return "critical"
    saved = state.checkpoint.size_bytes if state.checkpoint is not None else None
    return "warning" if (saved or 0) > left or (share >= SHORT and left < SMALL_ROOM) else None


def _full(
    state: RunState, node: str, host: HostReadings, filling: tuple[str, str, str, float, float, float, str],
    tick: int,
) -> Iterator[Problem]:  # fmt: skip
    """A host that is short of something, or will be soon."""
    code, what, short, soon_s, now_s, rising_from, hint = filling
    used, total = host.gauges.get(f"{short}_used_bytes"), host.gauges.get(f"{short}_total_bytes")
    if used is None or total is None or total.value <= 0:
        return
    if (tick - used.stamp) / 1e9 > max(
        FRESH_S, INTERVALS * (median(seconds_between(used.times.items)) or 0.0)
    ):
        return
    severity = _shortage(code, used.value, total.value, state)
    share, left = used.value / total.value, max(0.0, total.value - used.value)
    words = f"{what} of {node} {share:.0%} full, {left / GIB:.1f} GiB left"
    trend = memory_trend(used, host.peaks.get(f"{short}_used_bytes"), total.value)
    if trend is not None and share >= rising_from and trend.oom_s <= min(soon_s, FORESIGHT * trend.span_s):
        is_near = trend.oom_s <= now_s and share >= 0.9
        severity = "critical" if is_near or severity == "critical" else "warning"
        words += f"; full in about {duration(trend.oom_s)}"
    if severity is not None:
        yield Problem(
            code=code, severity=severity, scope="host", subject=node, at=used.at, message=words, hint=hint,
            patience=STEADY,
        )  # fmt: skip


def _not_saving(state: RunState) -> Iterator[Problem]:
    """Saves fail, by the log; or checkpoints are overdue by their schedule, in updates and in time."""
    saves, failed = state.saves.items, state.failed_saves
    times = seconds_between([at for at, _ in saves])
    updates = [float(after - before) for (_, before), (_, after) in pairwise(saves)]
    usual = median(updates)
    if failed.count >= FAILED_SAVES:
        last = "no checkpoint was saved yet" if state.checkpoint is None else "since the newest one"
        at, message = failed.first_at, f"{failed.count} saves failed, {last}: {failed.message}"
        hint = "make room, or mend the path or the access to it, and save at once: nothing can be resumed"
    elif len(saves) < LEAST_SAVES or usual is None or max(updates) > REGULAR * usual:
        return
    else:
        saved_at, done = saves[-1]
        for_s, more = (state.last_update_at - saved_at) / 1e9, state.updates - done
        if more <= OVERDUE * max(updates) or for_s <= OVERDUE * max(times):
            return
        at = saved_at + int(max(times) * SECOND_NS)
        every = f"usual every {duration(median(times) or 0.0)}, {usual:.0f} updates"
        message = f"no checkpoint for {duration(for_s)} and {more:,} updates; {every}"
        hint = "look at the trainer's log for a save that failed: a full disk, a quota, a path that is gone"
    yield Problem(code="checkpoints-stopped", at=at, message=message, hint=hint)
