"""What the bound rules know of each lane at one tick: fresh readings, their trend, its pace, its rank's time.

A reading that is missing or old is `None`. Pure.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from overwatch.catalog.learner import QUEUE_DEPTH, QUEUE_LIMIT
from overwatch.diagnose.fleet import Fleet, kind_of
from overwatch.diagnose.lane_signals import Cycle, MemoryTrend, cycle_of, cycles_of, memory_trend, sawtooth
from overwatch.events.adding import added
from overwatch.state.arrays import median, seconds_between
from overwatch.state.machines import Gauge
from overwatch.state.policy import Series
from overwatch.state.run import RunState

FRESH_S: Final = 5.0
INTERVALS: Final = 3
"""A lane is fresh for so many of its own intervals between readings, if that is longer."""
SMOOTH: Final = 3
"""Readings whose mean is a level, so that one odd sample decides nothing."""


class Of(Enum):
    """What facts are about."""

    DEVICE = "device"
    RANK = "rank"
    """Of which no device is known."""
    SERVICE = "service"
    """A process beside the trainer."""


class LaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One lane, or a process in the place of one; shares are 0 to 1."""

    name: str
    of: Of = Of.DEVICE
    age_s: float
    """Since its newest reading."""
    util: float | None = None
    sm: float | None = None
    """Share of its processors that had work."""
    dips: float | None = None
    """Share of the newest minute in which it was less than half used."""
    dip_s: float | None = None
    """So long at most are 95 of 100 of these dips."""
    saw: str = ""
    """How it works and rests in turn, where it does."""
    memory: float | None = None
    """Used share."""
    trend: MemoryTrend | None = None
    """Where memory rises."""
    power: float | None = None
    """Share of the power limit."""
    clock: float | None = None
    """Share of the highest clock."""
    clock_top: float | None = None
    """The same of the highest of its newest readings: below it the clock did not rise of late."""
    clock_hz: float | None = None
    clock_max_hz: float | None = None
    throttle: tuple[str, ...] | None = None
    """`None` where the lane never reports it."""
    loader: float | None = None
    """Filled share of the data loader's queue."""
    loader_text: str = ""
    queue: float | None = None
    """Filled share of the learner's queue of experience."""
    queue_text: str = ""
    core: float | None = None
    """Use of the host's busiest core."""
    saves: str = ""
    """What the run's newest save took, and where it went."""
    is_fed: bool = False
    """Whether it learns from a replay server, where a checkpoint makes room for new experience."""
    pace: float | None = None
    """Its usual step over that of the other lanes of its kind."""
    step_s: float | None = None
    slowest: str | None = None
    """The slowest other lane of its kind."""
    slowest_s: float | None = None
    cycle: Cycle = Cycle()
    """What its rank spends its time on."""
    fresh_s: float = FRESH_S
    """Age up to which its readings count."""

    @property
    def is_fresh(self) -> bool:
        """Whether its readings count."""
        return self.age_s <= self.fresh_s


def facts_of(state: RunState, fleet: Fleet, tick: int) -> dict[str, LaneFacts]:
    """Facts by name: of lanes that report readings, of ranks that are on none of them, and of services."""
    cycles, host, found = cycles_of(state.phases), _fresh(state.host, tick), dict[str, LaneFacts]()
    ranks = {name: rank_of(state, name) for name in state.lanes}
    for name, rank in ranks.items():
        lane = _facts(state, fleet, tick, name, cycles.get(-1 if rank is None else rank, Cycle()))
        found[name] = _beside(lane, state, host, tick, rank or 0)
    for rank in sorted(cycles.keys() - ranks.values()):
        lane = LaneFacts(name=f"rank {rank}", of=Of.RANK, age_s=0.0, cycle=cycles[rank])
        found[lane.name] = _beside(lane, state, host, tick, rank)
    for name, phases in sorted(state.beside.items()):
        found[name] = LaneFacts(name=name, of=Of.SERVICE, age_s=0.0, cycle=cycle_of(phases))
    return found


def rank_of(state: RunState, lane: str) -> int | None:
    """The rank that works on a lane; the only rank there is works on all."""
    rank = state.lane_ranks.get(lane)
    return next(iter(state.phases)) if rank is None and len(state.phases) == 1 else rank


def _fresh(readings: Mapping[str, Gauge], tick: int) -> dict[str, Gauge]:
    patience_s = _fresh_s(readings)
    return {key: gauge for key, gauge in readings.items() if _age_s(gauge.stamp, tick) <= patience_s}


def _beside(lane: LaneFacts, state: RunState, host: Mapping[str, Gauge], tick: int, rank: int) -> LaneFacts:
    """With what its host and its learner report: queues, cores, and what saves take."""
    service, saved = state.services.processes.get(f"learner/{rank}"), state.checkpoint
    queue, queue_text = _filled("queue", host.get("queue_depth"), host.get("queue_capacity"))
    loader, loader_text = _filled("loader", host.get("loader_depth"), host.get("loader_capacity"))
    depth = None if service is None else service.gauges.get(QUEUE_DEPTH.name)
    if queue is None and service is not None and depth is not None and _age_s(depth.stamp, tick) <= FRESH_S:
        queue, queue_text = _filled("queue", depth, service.gauges.get(QUEUE_LIMIT.name))
    saves = ""
    if saved is not None and saved.duration_s is not None:
        where = saved.path.rpartition("/")[0] or saved.path
        saves = f"the newest save took {saved.duration_s:.1f}s to {where}"
    return msgspec.structs.replace(
        lane,
        loader=loader,
        loader_text=loader_text,
        queue=queue,
        queue_text=queue_text,
        core=_level(host.get("cpu_busiest")),
        saves=saves,
        is_fed=service is not None,
    )


def _filled(
    what: str, depth: Gauge | Series | None, limit: Gauge | Series | None
) -> tuple[float | None, str]:
    """Filled share of a queue, and `loader 3/8`, by the newest readings."""
    share = _share(_level(depth), _level(limit))
    if share is None or depth is None or depth.value is None or limit is None or limit.value is None:
        return None, ""
    return share, f"{what} {depth.value:.0f}/{limit.value:.0f}"


def _facts(state: RunState, fleet: Fleet, tick: int, name: str, cycle: Cycle) -> LaneFacts:
    readings, throttle = state.lanes[name], state.throttles.get(name)
    patience_s, steps = _fresh_s(readings), fleet.usual.pace.lanes
    fresh, total = _fresh(readings, tick), readings.get("memory_total_bytes")
    levels = {key: _level(gauge) for key, gauge in fresh.items()}
    clock, clock_max = fresh.get("clock_hz"), levels.get("clock_max_hz")
    tops = (
        [] if clock is None else [value for value in clock.history.items[-2 * SMOOTH :] if value is not None]
    )
    peers = {lane: step for lane, step in steps.items() if lane != name and kind_of(lane) == kind_of(name)}
    slowest = max(peers, key=lambda lane: peers[lane], default=None)
    reported = throttle is not None and _age_s(throttle.stamp, tick) <= patience_s
    stamps = [gauge.stamp for gauge in readings.values()] + ([throttle.stamp] if throttle is not None else [])
    return LaneFacts(
        name=name,
        age_s=_age_s(max(stamps, default=0), tick),
        fresh_s=patience_s,
        util=levels.get("utilization"),
        sm=levels.get("sm_activity"),
        dips=levels.get("dip_share"),
        dip_s=levels.get("dip_p95_s"),
        saw=sawtooth(fresh.get("utilization")),
        memory=_share(levels.get("memory_used_bytes"), levels.get("memory_total_bytes")),
        trend=memory_trend(
            fresh.get("memory_used_bytes"), state.peaks.get(name), None if total is None else total.value
        ),
        power=_share(levels.get("power_w"), levels.get("power_limit_w")),
        clock=_share(levels.get("clock_hz"), clock_max),
        clock_top=_share(max(tops, default=None), clock_max),
        clock_hz=levels.get("clock_hz"),
        clock_max_hz=clock_max,
        throttle=tuple(throttle.reasons) if throttle is not None and reported else None,
        pace=fleet.usual.pace.times.get(name),
        step_s=steps.get(name),
        slowest=slowest,
        slowest_s=None if slowest is None else peers[slowest],
        cycle=cycle,
    )


def is_known_rhythm(readings: Mapping[str, Gauge]) -> bool:
    """Whether a lane has been read often enough to know how often it is."""
    return any(len(gauge.times.items) > INTERVALS for gauge in readings.values())


def _fresh_s(readings: Mapping[str, Gauge]) -> float:
    """How long readings count: their own interval decides where it is long. They come together."""
    times = next((gauge.times.items for gauge in readings.values()), [])
    return max(FRESH_S, INTERVALS * (median(seconds_between(times)) or 0.0))


def _age_s(stamp: int, tick: int) -> float:
    return max(0.0, (tick - stamp) / 1e9)


def _level(gauge: Gauge | Series | None) -> float | None:
    if gauge is None:
        return None
    recent = [value for value in gauge.history.items[-SMOOTH:] if value is not None]
    return added(recent) / len(recent) if recent else gauge.value


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None or whole <= 0 else part / whole
