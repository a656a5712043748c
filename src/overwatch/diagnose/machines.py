"""What machines do and what that costs, over time: the clock, the slow lane, held bounds, waste.

Gathers what is judged about lanes and ranks, in the one order in which each part can know of the others.
Pure; must not know envs or the policy.
"""

from collections.abc import Iterator

import msgspec

from overwatch.diagnose.bounds import Bound, judge_run
from overwatch.diagnose.clock import DataClock
from overwatch.diagnose.experience import services_down
from overwatch.diagnose.findings_lane import lane_problems
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.held import Held, hold
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.problem import Problem
from overwatch.diagnose.slow import Slow, slowly
from overwatch.diagnose.throughput import regressions
from overwatch.diagnose.waste import Waste, wasted
from overwatch.diagnose.watchdog import gone_producers, stalled
from overwatch.snapshot import Baseline
from overwatch.state.run import RunState


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
    watched = Watched(
        clock=clock, slow=slow, lanes=held, ranks=ranks, waste=wasted(before.waste, state.rested, bounds)
    )
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
    yield from stalled(slow.stalls)
    yield from services_down(state, slow.gone, slow.tick)
    yield from gone_producers(state, slow.gone, slow.tick)
    yield from slow.hardware
    yield from lane_problems(fleet, machines.lanes, machines.all_bounds, limits)
    yield from regressions(slow.throughput, baseline)
