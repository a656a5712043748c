"""The slow lane: what is worked out once a second, since it needs minutes of data or looks at much of it.

Kept between the fast ticks, which only read it. Pure.
"""

from typing import Final

import msgspec

from overwatch.diagnose.cycle import Cycle, cycles_of
from overwatch.diagnose.memory import MemoryTrend, memory_trend
from overwatch.diagnose.spreads import Spread, step_spreads, update_spreads
from overwatch.diagnose.throughput import Throughput, throughput_of
from overwatch.diagnose.watchdog import Stall, silent_sources, stalls_of
from overwatch.state.run import RunState

SLOW_NS: Final = 1_000_000_000


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known by the second."""

    tick: int = -SLOW_NS
    cycles: dict[int, Cycle] = {}
    """By rank."""
    memory: dict[str, MemoryTrend] = {}
    """By lane, where its memory rises."""
    steps: dict[str, Spread] = {}
    """By lane."""
    updates: dict[int, Spread] = {}
    """By rank."""
    stalls: tuple[Stall, ...] = ()
    silent: tuple[str, ...] = ()
    """Keys of the sources that fell silent."""
    throughput: Throughput | None = None


def slowly(before: Slow, state: RunState, tick: int) -> Slow:
    """What is known at `tick`; the same as before within a second."""
    if tick // SLOW_NS == before.tick // SLOW_NS:
        return before
    return Slow(
        tick=tick,
        cycles=cycles_of(state.phases),
        memory=_memory(state),
        steps=step_spreads(state),
        updates=update_spreads(state),
        stalls=stalls_of(state),
        silent=silent_sources(state, tick),
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
