"""What machines do and what that costs, over time: the clock, the slow lane, held bounds, waste.

Gathers what is judged about lanes and ranks, in the one order in which each part can know of the others. What
needs minutes of data or looks at much of it is worked out once a second: readings of machines come once a
second, and so do verdicts about them. A second is one of the reader or of the data, whichever comes first: a
spool that drains fast is looked at as often as if it were live. A lane's verdict changes only when another
one has held for a while; GPU-seconds in which nothing ran are counted by what held the lane back meanwhile.
Pure; must not know envs or the policy.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog.bounds import BoundState
from overwatch.diagnose.bounds import Bound, explained, judge, judge_run
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lane_signals import (
    MemoryTrend,
    cycle_of,
    cycles_of,
    memory_trend,
    step_spreads,
    update_spreads,
)
from overwatch.diagnose.lanes import LaneFacts, Minutes, Of, lanes_of, ranks_of
from overwatch.diagnose.liveness import DataClock, Stall, gone_producers, gone_sources, stalled, stalls_of
from overwatch.diagnose.machine_findings import (
    Throughput,
    hardware_problems,
    lane_problems,
    regressions,
    throughput_of,
)
from overwatch.diagnose.problem import Problem
from overwatch.events import FOLLOWER
from overwatch.snapshot import Baseline, Spread
from overwatch.state.machines import Rested
from overwatch.state.run import RunState

HOLD_NS: Final = 3_000_000_000
FORECAST_NS: Final = 2_000_000_000
"""The same of a forecast: it rests on many readings already, and waiting eats the time that it gives."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about one lane, and the one that may follow it."""

    bound: Bound
    next_state: str | None = None
    next_since: int = 0


def hold(previous: Mapping[str, Held], now: Mapping[str, Bound], tick: int) -> dict[str, Held]:
    """Verdicts after this tick; the same verdict takes its newest words, a first one is believed at once."""
    return {name: _hold(previous.get(name), bound, tick) for name, bound in now.items()}


def _hold(known: Held | None, bound: Bound, tick: int) -> Held:
    if known is None or known.bound.state == bound.state:
        return Held(bound=bound)
    since = known.next_since if known.next_state == bound.state else tick
    needed = FORECAST_NS if bound.state == BoundState.OOM_RISK.value else HOLD_NS
    if tick - since >= needed:
        return Held(bound=bound)
    return Held(bound=known.bound, next_state=bound.state, next_since=since)


_LABELS: Final = tuple(state.label for state in BoundState)


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """What was wasted so far."""

    by_bound: dict[str, float] = {}
    """GPU-seconds, by the label of the bound."""
    counted: dict[str, float] = {}
    """Of each lane, how much of its rest is in there."""

    def of_all(self) -> dict[str, float]:
        """Every bound there is, 0 where nothing was wasted."""
        return {label: self.by_bound.get(label, 0.0) for label in _LABELS}


def wasted(
    before: Waste, rested: Mapping[str, Rested], bounds: Mapping[str, Bound], *, counts: bool = True
) -> Waste:
    """What was wasted by now: the rest since the last tick goes to the bound that holds now, if it counts."""
    if all(before.counted.get(lane) == rest.idle_s for lane, rest in rested.items()):
        return before
    by_bound, counted = dict(before.by_bound), dict(before.counted)
    for lane, rest in rested.items():
        if lane in bounds:
            label = BoundState(bounds[lane].state).label
            idle_s = rest.idle_s - counted.get(lane, 0.0) if counts else 0.0
            by_bound[label] = by_bound.get(label, 0.0) + idle_s
            counted[lane] = rest.idle_s
    return Waste(by_bound=by_bound, counted=counted)


SLOW_NS: Final = 1_000_000_000


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known by the second."""

    tick: int = -SLOW_NS
    clock: int = -SLOW_NS
    """On the clock of the data."""
    resumed_at: int = 0
    """When the newest pause had ended; what was worked out in one does not hold after it."""
    past: Minutes = Minutes()
    lanes: tuple[LaneFacts, ...] = ()
    """Lanes that report readings."""
    ranks: tuple[LaneFacts, ...] = ()
    """Ranks of which no such lane is known."""
    verdicts: dict[str, Bound] = {}
    """What holds each lane back, by this second's readings."""
    of_ranks: dict[str, Bound] = {}
    """The same of those ranks, where their phases show it."""
    steps: dict[str, Spread] = {}
    """By lane."""
    updates: dict[int, Spread] = {}
    """By rank."""
    stalls: tuple[Stall, ...] = ()
    gone: tuple[str, ...] = ()
    """Keys of the sources that left the run."""
    hardware: tuple[Problem, ...] = ()
    """What is wrong with the machines themselves."""
    throughput: Throughput | None = None


def is_new_second(before: Slow, now: tuple[int, int]) -> bool:
    """Whether a second began since, by the tick or by the clock of the data."""
    tick, clock = now
    return tick // SLOW_NS != before.tick // SLOW_NS or clock // SLOW_NS != before.clock // SLOW_NS


def slowly(before: Slow, state: RunState, fleet: Fleet, limits: AnomalyLimits, now: tuple[int, int]) -> Slow:
    """What is known at a tick, and a moment on the clock of the data; as before within a second.

    A lane that is new has a verdict at once, and so has a run that goes on after a pause.
    """
    tick, clock = now
    is_as_before = len(before.lanes) == len(state.lanes) and before.resumed_at == state.resumed_at
    if is_as_before and not is_new_second(before, now):
        return before
    past = Minutes(
        cycles=cycles_of(state.phases),
        memory=_memory(state),
        beside={name: cycle_of(phases) for name, phases in state.beside.items()},
    )
    lanes, ranks = lanes_of(state, fleet, past, tick), ranks_of(state, past, tick)
    of_ranks = judge(ranks, limits)
    stalls = stalls_of(state, tick)
    services = {rank.name for rank in ranks if rank.of is Of.SERVICE}
    beside = {name: bound for name, bound in of_ranks.items() if name in services}
    return Slow(
        tick=tick,
        clock=clock,
        resumed_at=state.resumed_at,
        past=past,
        lanes=lanes,
        ranks=ranks,
        verdicts=explained(judge(lanes, limits), (*lanes, *ranks), beside),
        of_ranks=explained(of_ranks, ranks, beside),
        steps=step_spreads(state),
        updates=update_spreads(state),
        stalls=stalls,
        gone=tuple(key for key in gone_sources(state, tick) if not stalls or key != stalls[0].key),
        hardware=tuple(hardware_problems(state, lanes, tick)),
        throughput=throughput_of(state.pace, before.throughput),
    )


def _memory(state: RunState) -> dict[str, MemoryTrend]:
    found: dict[str, MemoryTrend] = {}
    for lane, readings in state.lanes.items():
        total = readings.get("memory_total_bytes")
        trend = memory_trend(
            readings.get("memory_used_bytes"), state.peaks.get(lane), None if total is None else total.value
        )
        if trend is not None:
            found[lane] = trend
    return found


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a tick."""

    clock: DataClock = DataClock()
    slow: Slow = Slow()
    lanes: dict[str, Held] = {}
    """What holds each lane back."""
    ranks: dict[str, Held] = {}
    """What holds each rank back that no lane is known of."""
    waste: Waste = Waste()


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes and ranks at one tick."""

    watched: Watched
    lanes: tuple[LaneFacts, ...]
    """Those that report readings, then the ranks that no such lane is known of."""
    bounds: dict[str, Bound]
    """What holds each lane back, held over time."""
    bound: Bound | None
    """What holds the run back as a whole."""

    @property
    def beside(self) -> dict[str, Bound]:
        """What holds each service beside the trainer back."""
        held = self.watched.ranks
        return {name: held[name].bound for name in self.watched.slow.past.beside if name in held}

    @property
    def all_bounds(self) -> dict[str, Bound]:
        """Of lanes and ranks."""
        return {**self.bounds, **{name: item.bound for name, item in self.watched.ranks.items()}}


def watch(fleet: Fleet, before: Watched, tick: int, clock: DataClock, limits: AnomalyLimits) -> Machines:
    """Judge the machines of one run at `tick`, and at a moment on the clock of the data."""
    state = fleet.state
    slow = slowly(before.slow, state, fleet, limits, (tick, clock.now))
    held, ranks = hold(before.lanes, slow.verdicts, clock.now), hold(before.ranks, slow.of_ranks, clock.now)
    bounds = {name: item.bound for name, item in held.items()}
    waste = wasted(before.waste, state.rested, bounds, counts=state.paused_at is None)
    watched = Watched(clock=clock, slow=slow, lanes=held, ranks=ranks, waste=waste)
    return Machines(
        watched=watched,
        lanes=(*slow.lanes, *(rank for rank in slow.ranks if rank.name in ranks)),
        bounds=bounds,
        bound=judge_run(
            bounds or {name: item.bound for name, item in ranks.items() if name not in slow.past.beside}
        ),
    )


def machine_problems(
    state: RunState, fleet: Fleet, machines: Machines, limits: AnomalyLimits, baseline: Baseline | None
) -> Iterator[Problem]:
    """Everything that is wrong with lanes, ranks and processes, and with how much gets done."""
    slow = machines.watched.slow
    yield from stalled(slow.stalls, is_followed=state.origin.service == FOLLOWER)
    yield from gone_producers(state, slow.gone, slow.tick)
    yield from slow.hardware
    yield from lane_problems(fleet, machines.lanes, machines.all_bounds, limits)
    yield from regressions(slow.throughput, baseline)
