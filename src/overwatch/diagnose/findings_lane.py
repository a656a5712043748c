"""Findings about lanes, made from what holds them back; slow envs are counted under their lane. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.factors.pace import with_slow_lane
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.problem import STEADY, Problem


def lane_problems(
    fleet: Fleet, lanes: Sequence[LaneFacts], bounds: Mapping[str, Bound], limits: AnomalyLimits
) -> Iterator[Problem]:
    """One finding for each lane whose bound is a fault; a lane that waits for another has none."""
    slow = with_slow_lane(fleet, limits)
    waiting = sum(bound.state == "SYNC-BOUND" for bound in bounds.values())
    for lane in lanes:
        bound = bounds[lane.name]
        num_slow = int((slow & fleet.on_lane(lane.name)).sum())
        match bound.state:
            case "THROTTLED":
                yield _problem(fleet, lane, bound, _throttled(lane, bound), num_slow)
            case "STRAGGLER":
                lead = "" if not waiting else f"; {waiting} {'lane waits' if waiting == 1 else 'lanes wait'}"
                message = bound.why.partition(";")[0]
                yield _problem(fleet, lane, bound, ("straggler", f"straggler: {message}{lead}"), num_slow)
            case "OOM-RISK":
                yield _problem(fleet, lane, bound, ("oom-forecast", bound.why), 0)
    yield from _starved(fleet, [lane for lane in lanes if bounds[lane.name].state == "IO-BOUND"], bounds)


def _problem(fleet: Fleet, lane: LaneFacts, bound: Bound, said: tuple[str, str], num_slow: int) -> Problem:
    code, message = said
    envs = "" if not num_slow else f"; {num_slow} slow {'env' if num_slow == 1 else 'envs'}"
    return Problem(
        code=code,
        severity="critical" if bound.mark == "!!" else "warning",
        scope="gpu",
        subject=lane.name,
        at=fleet.state.last_at,
        message=message + envs,
        hint=bound.hint,
        factors=bound.evidence,
        symptoms=num_slow,
        patience=STEADY,
    )


def _throttled(lane: LaneFacts, bound: Bound) -> tuple[str, str]:
    cause = bound.why.partition(":")[0].partition(";")[0]
    code = "clock-low" if cause == "clock" else f"{cause}-throttle"
    name = "clock held down" if cause == "clock" else f"{cause} throttle"
    return code, name if lane.clock is None else f"{name}, clock at {lane.clock:.0%} of max"


def _starved(fleet: Fleet, lanes: Sequence[LaneFacts], bounds: Mapping[str, Bound]) -> Iterator[Problem]:
    """Lanes that wait for data: the loader is the host's, so several lanes are one finding about it."""
    if not lanes:
        return
    bound = bounds[lanes[0].name]
    several = len(lanes) > 1
    said = bound.why.partition(",")[0]
    yield Problem(
        code="io-starvation",
        severity="warning",
        scope="host" if several else "gpu",
        subject=None if several else lanes[0].name,
        at=fleet.state.last_at,
        message=f"io starvation: {said}; {len(lanes)} lanes wait" if several else f"io starvation: {said}",
        hint=bound.hint,
        factors=bound.evidence,
        symptoms=len(lanes) if several else 0,
        patience=STEADY,
    )
