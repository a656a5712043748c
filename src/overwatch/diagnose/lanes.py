"""What the bound rules know of each lane at one tick: fresh readings, their trend, and its pace among others.

A reading that is missing or old is `None`. Pure.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from overwatch.catalog.phases import Phase as Kind
from overwatch.catalog.phases import parse_phase
from overwatch.diagnose.fleet import Fleet, kind_of
from overwatch.state.rhythm import Phase
from overwatch.state.run import Gauge, RunState

FRESH_S: Final = 5.0
SMOOTH: Final = 3
"""Readings whose mean is a level, so that one odd sample decides nothing."""
RISING_NEEDS: Final = 8
LEAST_PHASES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFacts:
    """One lane; shares are 0 to 1."""

    name: str
    age_s: float
    """Since its newest reading."""
    util: float | None = None
    swing: float | None = None
    """Between the lowest and the highest utilisation of the last ten readings."""
    memory: float | None = None
    """Used share."""
    memory_used: float | None = None
    memory_total: float | None = None
    memory_rate: float | None = None
    """Bytes a second, where memory rises steadily."""
    power: float | None = None
    """Share of the power limit."""
    clock: float | None = None
    """Share of the highest clock."""
    clock_hz: float | None = None
    clock_max_hz: float | None = None
    throttle: tuple[str, ...] | None = None
    """`None` where the lane never says."""
    loader: float | None = None
    """Filled share of the data loader's queue."""
    loader_text: str = ""
    cpu: float | None = None
    pace: float | None = None
    """Its usual step over that of the other lanes of its kind."""
    step_s: float | None = None
    slowest: str | None = None
    """The slowest other lane of its kind."""
    slowest_s: float | None = None
    sync_phase: float | None = None
    """Share of its rank's time spent waiting for the others."""
    io_phase: float | None = None
    """Share of its rank's time spent waiting for data."""

    @property
    def oom_s(self) -> float | None:
        """Seconds until memory is full, if it goes on rising as it does."""
        if self.memory_rate is None or self.memory_used is None or self.memory_total is None:
            return None
        return max(0.0, self.memory_total - self.memory_used) / self.memory_rate


def lanes_of(state: RunState, fleet: Fleet, tick: int) -> tuple[LaneFacts, ...]:
    """The facts of every lane that reports readings, in order of first sight."""
    return tuple(_facts(state, fleet, tick, name) for name in state.lanes)


def _facts(state: RunState, fleet: Fleet, tick: int, name: str) -> LaneFacts:
    readings = state.lanes[name]
    fresh = {key: gauge for key, gauge in readings.items() if _is_fresh(gauge.stamp, tick)}
    host = {key: gauge for key, gauge in state.host.items() if _is_fresh(gauge.stamp, tick)}
    used, total = _level(fresh.get("memory_used_bytes")), _level(fresh.get("memory_total_bytes"))
    clock, clock_max = _level(fresh.get("clock_hz")), _level(fresh.get("clock_max_hz"))
    throttle = state.throttles.get(name)
    slowest = _slowest_peer(fleet, name)
    phases = state.phases.get(state.lane_ranks.get(name, -1), {})
    util = fresh.get("utilization")
    return LaneFacts(
        name=name,
        age_s=_age_s(state, name, tick),
        util=_level(util),
        swing=_swing(util),
        memory=_share(used, total),
        memory_used=used,
        memory_total=total,
        memory_rate=_rising(fresh.get("memory_used_bytes")),
        power=_share(_level(fresh.get("power_w")), _level(fresh.get("power_limit_w"))),
        clock=_share(clock, clock_max),
        clock_hz=clock,
        clock_max_hz=clock_max,
        throttle=tuple(throttle.reasons) if throttle and _is_fresh(throttle.stamp, tick) else None,
        loader=_share(_level(host.get("loader_depth")), _level(host.get("loader_capacity"))),
        loader_text=_loader_text(host),
        cpu=_level(host.get("cpu_utilization")),
        pace=fleet.lane_pace.get(name),
        step_s=fleet.lane_step_time.get(name),
        slowest=slowest,
        slowest_s=None if slowest is None else fleet.lane_step_time[slowest],
        sync_phase=_phase_share(phases, Kind.SYNC),
        io_phase=_phase_share(phases, Kind.LOAD),
    )


def _is_fresh(stamp: int, tick: int) -> bool:
    return (tick - stamp) / 1e9 <= FRESH_S


def _age_s(state: RunState, name: str, tick: int) -> float:
    stamps = [gauge.stamp for gauge in state.lanes[name].values()]
    if name in state.throttles:
        stamps.append(state.throttles[name].stamp)
    return max(0.0, (tick - max(stamps, default=0)) / 1e9)


def _level(gauge: Gauge | None) -> float | None:
    if gauge is None:
        return None
    recent = [value for value in gauge.history.items[-SMOOTH:] if value is not None]
    return sum(recent) / len(recent) if recent else gauge.value


def _swing(gauge: Gauge | None) -> float | None:
    known = [value for value in gauge.history.items if value is not None] if gauge else []
    return max(known) - min(known) if len(known) >= LEAST_PHASES else None


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None or whole <= 0 else part / whole


def _rising(gauge: Gauge | None) -> float | None:
    """Growth a second of a reading that went up, or stayed, at each of its newest readings."""
    if gauge is None or len(gauge.history.items) < RISING_NEEDS:
        return None
    values = [value for value in gauge.history.items if value is not None]
    steps = [after - before for before, after in pairwise(values)]
    if min(steps) < 0 or sum(step > 0 for step in steps) < 0.8 * len(steps):
        return None
    span_s = (gauge.times.items[-1] - gauge.times.items[0]) / 1e9
    return (values[-1] - values[0]) / span_s if span_s > 0 and values[-1] > values[0] else None


def _loader_text(host: dict[str, Gauge]) -> str:
    depth, capacity = host.get("loader_depth"), host.get("loader_capacity")
    return "" if depth is None or capacity is None else f"loader {depth.value:.0f}/{capacity.value:.0f}"


def _slowest_peer(fleet: Fleet, name: str) -> str | None:
    peers = [lane for lane in fleet.lane_step_time if lane != name and kind_of(lane) == kind_of(name)]
    return max(peers, key=lambda lane: fleet.lane_step_time[lane], default=None)


def _phase_share(phases: dict[str, Phase], wanted: Kind) -> float | None:
    """Share of one rank's newest phase time spent in a kind of phase; `None` where it has none."""
    known = {name: phase for name, phase in phases.items() if len(phase.seconds.items) >= LEAST_PHASES}
    if not any(parse_phase(name) is wanted for name in known):
        return None
    means = {name: sum(phase.seconds.items) / len(phase.seconds.items) for name, phase in known.items()}
    total = sum(means.values())
    spent = sum(mean for name, mean in means.items() if parse_phase(name) is wanted)
    return spent / total if total > 0 else None
