"""Findings about lanes and ranks, made from what holds them back; slow envs are counted under their lane.

A lane that waits for another has no finding: it is counted in the one about whom it waits for. What is the
host's or the whole run's (data, experience, weights) is one finding, however many lanes wait. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from overwatch.catalog.bounds import ROWS, BoundState, Shared
from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.factors.pace import with_slow_lane
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lanes import LaneFacts, Of
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.problem import SECOND_NS, Patience, Problem

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
                yield _problem(fleet, lane, bound, _throttled(lane, bound), num_slow)
            case BoundState.STRAGGLER:
                what = "lane" if lane.of is Of.DEVICE else "rank"
                lead = "" if not waiting else f"; {waiting} {what}{' waits' if waiting == 1 else 's wait'}"
                message = bound.why.partition(";")[0]
                yield _problem(fleet, lane, bound, ("straggler", f"straggler: {message}{lead}"), num_slow)
            case BoundState.OOM_RISK:
                yield _problem(fleet, lane, bound, ("oom-forecast", bound.why), 0)
            case _:
                pass
    for row in ROWS:
        if row.shared is not None:
            of_it = [lane for lane in lanes if bounds[lane.name].state == row.state.value]
            yield from _for_all(fleet, of_it, bounds, row.shared)


def _problem(fleet: Fleet, lane: LaneFacts, bound: Bound, said: tuple[str, str], num_slow: int) -> Problem:
    code, message = said
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
    said = f"{shared.message}: {first.why.partition(',')[0]}"
    yield Problem(
        code=shared.code,
        severity="warning",
        scope="gpu" if own else shared.scope,
        subject=lanes[0].name if own else None,
        at=fleet.state.last_at,
        message=f"{said}; {len(lanes)} lanes wait" if several else said,
        hint=first.hint,
        factors=first.evidence,
        symptoms=len(lanes) if several else 0,
        patience=HELD,
    )
