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
from msgspec.structs import replace

from overwatch.catalog.bounds import BoundState
from overwatch.diagnose.bounds import Bound, explained, judge, judge_run
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lanes import LaneFacts, Of, facts_of
from overwatch.diagnose.liveness import DataClock, Stall, gone_producers, gone_sources, stalled, stalls_of
from overwatch.diagnose.machine_findings import (
    Throughput,
    hardware_problems,
    lane_problems,
    regressions,
    throughput_of,
)
from overwatch.diagnose.problem import SECOND_NS, Problem
from overwatch.events import FOLLOWER
from overwatch.snapshot import Baseline
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
    changed: bool = False
    """Whether it was another one before: what it was from the first on is how the run was set up."""


def hold(previous: Mapping[str, Held], now: Mapping[str, Bound], tick: int) -> dict[str, Held]:
    """Verdicts after this tick; the same verdict takes its newest words, a first one is believed at once."""
    held = {}
    for name, bound in now.items():
        known, state = previous.get(name, Held(bound=bound)), bound.state
        since = known.next_since if known.next_state == state else tick
        needed = FORECAST_NS if state == BoundState.OOM_RISK.value else HOLD_NS
        is_believed = known.bound.state == state or tick - since >= needed
        changed = known.changed or known.bound.state not in (BoundState.UNKNOWN.value, state)
        held[name] = Held(bound=bound, changed=changed)
        if not is_believed:
            held[name] = replace(known, next_state=state, next_since=since)
    return held


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


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known by the second."""

    tick: int = -SECOND_NS
    clock: int = -SECOND_NS
    """On the clock of the data."""
    resumed_at: int = 0
    """When the newest pause had ended; what was worked out in one does not hold after it."""
    facts: dict[str, LaneFacts] = {}
    """Of lanes that report readings, of ranks and of services, by name."""
    verdicts: dict[str, Bound] = {}
    """What holds each of them back, by this second's readings."""
    stalls: tuple[Stall, ...] = ()
    gone: tuple[str, ...] = ()
    """Keys of the sources that left the run."""
    hardware: tuple[Problem, ...] = ()
    """What is wrong with the machines themselves."""
    throughput: Throughput | None = None


def is_new_second(before: Slow, now: tuple[int, int]) -> bool:
    """Whether a second began since, by the tick or by the clock of the data."""
    tick, clock = now
    return tick // SECOND_NS != before.tick // SECOND_NS or clock // SECOND_NS != before.clock // SECOND_NS


def slowly(before: Slow, state: RunState, fleet: Fleet, limits: AnomalyLimits, now: tuple[int, int]) -> Slow:
    """What is known at a tick, and a moment on the clock of the data; as before within a second.

    A lane that is new has a verdict at once, and so has a run that goes on after a pause.
    """
    tick, clock = now
    known = sum(one.of is Of.DEVICE for one in before.facts.values())
    if known == len(state.lanes) and before.resumed_at == state.resumed_at and not is_new_second(before, now):
        return before
    facts, stalls = facts_of(state, fleet, tick), stalls_of(state, tick)
    return Slow(
        tick=tick,
        clock=clock,
        resumed_at=state.resumed_at,
        facts=facts,
        verdicts=explained(judge(facts.values(), limits), facts),
        stalls=stalls,
        gone=tuple(key for key in gone_sources(state, tick) if not stalls or key != stalls[0].key),
        hardware=tuple(hardware_problems(state, facts, tick)),
        throughput=throughput_of(state.pace, before.throughput),
    )


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a tick."""

    clock: DataClock = DataClock()
    slow: Slow = Slow()
    held: dict[str, Held] = {}
    """What holds each lane, rank and service back."""
    waste: Waste = Waste()


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes and ranks at one tick, with what holds them back, held over time."""

    watched: Watched
    bounds: dict[str, Bound]
    """Of lanes."""
    beside: dict[str, Bound]
    """Of services beside the trainer."""
    bound: Bound | None
    """What holds the run back as a whole."""


def watch(fleet: Fleet, before: Watched, tick: int, clock: DataClock, limits: AnomalyLimits) -> Machines:
    """Judge the machines of one run at `tick`, and at a moment on the clock of the data."""
    state = fleet.state
    slow = slowly(before.slow, state, fleet, limits, (tick, clock.now))
    held = hold(before.held, slow.verdicts, clock.now)
    bounds, ranks, beside = (
        {name: item.bound for name, item in held.items() if slow.facts[name].of is kind}
        for kind in (Of.DEVICE, Of.RANK, Of.SERVICE)
    )
    waste = wasted(before.waste, state.rested, bounds, counts=state.paused_at is None)
    watched = Watched(clock=clock, slow=slow, held=held, waste=waste)
    return Machines(watched=watched, bounds=bounds, beside=beside, bound=judge_run(bounds or ranks))


def machine_problems(
    fleet: Fleet, machines: Machines, limits: AnomalyLimits, baseline: Baseline | None, *, learns: bool
) -> Iterator[Problem]:
    """Everything that is wrong with lanes, ranks and processes, and with how much gets done."""
    state = fleet.state
    slow = machines.watched.slow
    yield from stalled(slow.stalls, is_followed=state.origin.service == FOLLOWER)
    yield from gone_producers(state, slow.gone, slow.tick)
    yield from slow.hardware
    held = machines.watched.held
    bounds = {name: item.bound for name, item in held.items()}
    warns = {name for name, item in held.items() if item.changed or not learns}
    yield from lane_problems(fleet, [slow.facts[name] for name in held], bounds, limits, warns)
    yield from regressions(slow.throughput, baseline)
