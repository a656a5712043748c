"""Machines that fail or fill up: GPUs lost or losing data, hosts without memory or disk, no more saving.

A GPU whose readings end is lost only where the process that read it still sends other readings: a process
that is gone is another finding. What fills up is judged by what is left, and by the time until nothing is.
Pure.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.diagnose.findings_lane import HELD
from overwatch.diagnose.lanes import FRESH_S, LaneFacts, is_known_rhythm
from overwatch.diagnose.memory import memory_trend
from overwatch.diagnose.problem import SECOND_NS, STEADY, Problem
from overwatch.state.arrays import median
from overwatch.state.machines import HostReadings, LaneHealth
from overwatch.state.run import RunState

GONE_S: Final = 7.0
"""Silence of a GPU, beyond its own rhythm, that is more than one look that hung."""
GONE_FOR_GOOD_S: Final = 30.0
FAULT_S: Final = 600.0
"""How long a fault that a GPU lives with is held against it."""
GIB: Final = 1 << 30
SHORT: Final = 0.95
"""Used share from which memory, or a disk that is not large, is short."""
OUT: Final = 0.98
"""Used share of memory from which a process is likely to be ended."""
SMALL_ROOM: Final = 20 * GIB
NO_ROOM: Final = GIB
"""Bytes left on a disk below which it is short, and as good as full."""
LEAST_SAVES: Final = 4
"""Checkpoints from which on there is a schedule."""
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
    if trend is not None and share >= filling.rising_from and trend.oom_s <= filling.soon_s:
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
    """Checkpoints came by a schedule, in updates and in time, and are overdue by both."""
    saves = state.saves.items
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
        severity="warning",
        scope="run",
        subject=None,
        at=at + int(max(times) * SECOND_NS),
        message=(
            f"no checkpoint for {duration(for_s)} and {more:,} updates; usual every "
            f"{duration(median(times) or 0.0)}, {usual:.0f} updates"
        ),
        hint="look at the trainer's log for a save that failed: a full disk, a quota, a path that is gone",
    )
