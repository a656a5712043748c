"""The slow lane: what is worked out once a second, since it needs minutes of data or looks at much of it.

Readings of machines come once a second, and so do verdicts about them. A second is one of the reader or of
the data, whichever comes first: a spool that drains fast is looked at as often as if it were live. Kept
between the fast ticks, which only read it. Pure.
"""

from typing import Final

import msgspec

from overwatch.diagnose.bounds import Bound, explained, judge_lanes, judge_ranks
from overwatch.diagnose.cycle import cycle_of, cycles_of
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.hardware import hardware_problems
from overwatch.diagnose.lanes import LaneFacts, Minutes, Of, lanes_of, ranks_of
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.memory import MemoryTrend, memory_trend
from overwatch.diagnose.problem import Problem
from overwatch.diagnose.spreads import Spread, step_spreads, update_spreads
from overwatch.diagnose.throughput import Throughput, throughput_of
from overwatch.diagnose.watchdog import Stall, gone_sources, stalls_of
from overwatch.state.run import RunState

SLOW_NS: Final = 1_000_000_000


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known by the second."""

    tick: int = -SLOW_NS
    clock: int = -SLOW_NS
    """On the clock of the data."""
    past: Minutes = Minutes()
    lanes: tuple[LaneFacts, ...] = ()
    """Lanes that report readings."""
    ranks: tuple[LaneFacts, ...] = ()
    """Ranks of which no such lane is known."""
    verdicts: dict[str, Bound] = {}
    """What holds each lane back, by this second's readings."""
    of_ranks: dict[str, Bound] = {}
    """The same of those ranks, where their phases tell."""
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

    A lane that is new has a verdict at once.
    """
    tick, clock = now
    if not is_new_second(before, now) and len(before.lanes) == len(state.lanes):
        return before
    past = Minutes(
        cycles=cycles_of(state.phases),
        memory=_memory(state),
        beside={name: cycle_of(phases) for name, phases in state.beside.items()},
    )
    lanes, ranks = lanes_of(state, fleet, past, tick), ranks_of(state, past, tick)
    of_ranks = judge_ranks(ranks, limits)
    services = {rank.name for rank in ranks if rank.of is Of.SERVICE}
    beside = {name: bound for name, bound in of_ranks.items() if name in services}
    return Slow(
        tick=tick,
        clock=clock,
        past=past,
        lanes=lanes,
        ranks=ranks,
        verdicts=explained(judge_lanes(lanes, limits), (*lanes, *ranks), beside),
        of_ranks=explained(of_ranks, ranks, beside),
        steps=step_spreads(state),
        updates=update_spreads(state),
        stalls=stalls_of(state),
        gone=gone_sources(state, tick),
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
