"""What holds each lane back: small rules in an explicit list, the first that applies speaks.

A rule says what, why, what to do, how sure it is and from which evidence. Where the signals that a verdict
needs are missing the lane is `unknown`, and says which. Pure; must not know how a bound is held over time.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from overwatch.catalog.bounds import BoundState
from overwatch.diagnose.bounds.bound import Bound, Rule
from overwatch.diagnose.bounds.device import (
    compute_bound,
    host_bound,
    idle,
    memory_bound,
    oom_risk,
    throttled,
    unknown,
)
from overwatch.diagnose.bounds.learning import (
    env_bound,
    inference_bound,
    learner_bound,
    starved,
    undecided,
    weights_bound,
)
from overwatch.diagnose.bounds.turns import explained
from overwatch.diagnose.bounds.waiting import io_bound, sawtooth_bound, straggler, sync_bound
from overwatch.diagnose.lanes import LaneFacts, Of
from overwatch.diagnose.limits import AnomalyLimits

__all__ = ["RULES", "Bound", "Rule", "badness", "explained", "judge_lanes", "judge_ranks", "judge_run"]

RULES: Final[tuple[Rule, ...]] = (
    throttled, oom_risk, straggler, sync_bound, weights_bound, starved, io_bound, compute_bound, env_bound,
    inference_bound, learner_bound, memory_bound, host_bound, sawtooth_bound, idle, unknown,
)  # fmt: skip
OF_RANKS: Final[tuple[Rule, ...]] = (
    straggler, sync_bound, weights_bound, starved, io_bound, env_bound, inference_bound, learner_bound,
    undecided,
)  # fmt: skip
"""Those that phases alone can answer, for a run without lanes; the last gives the reason where none can."""
OF_SERVICES: Final[tuple[Rule, ...]] = (weights_bound, io_bound, env_bound, inference_bound, undecided)
"""Those of a service beside the trainer: it has no peers to wait for, and learns nothing."""


def judge_lanes(lanes: Iterable[LaneFacts], limits: AnomalyLimits) -> dict[str, Bound]:
    """The verdict of the first rule that applies, by lane; lanes that went silent abstain."""
    return {lane.name: _judge(lane, limits) for lane in lanes}


def _judge(lane: LaneFacts, limits: AnomalyLimits) -> Bound:
    rules = RULES if lane.is_fresh else (unknown,)
    found = (rule(lane, limits) for rule in rules)
    return next(bound for bound in found if bound is not None)


def judge_ranks(ranks: Iterable[LaneFacts], limits: AnomalyLimits) -> dict[str, Bound]:
    """The same by rank, for a run without lanes; a rank of which too few phases have ended has no verdict."""
    found: dict[str, Bound] = {}
    for rank in ranks:
        rules = OF_SERVICES if rank.of is Of.SERVICE else OF_RANKS
        verdicts = (rule(rank, limits) for rule in rules)
        bound = next((verdict for verdict in verdicts if verdict is not None), None)
        if bound is not None:
            found[rank.name] = bound
    return found


def judge_run(bounds: dict[str, Bound]) -> Bound | None:
    """What holds the run as a whole back: the wait at the barrier if there is one, else the worst lane."""
    if not bounds:
        return None
    waiting = [name for name in bounds if bounds[name].state == BoundState.SYNC.value]
    if waiting:
        return bounds[waiting[0]]
    worst = min(bounds, key=lambda name: badness(bounds[name]))
    same = sum(bound.state == bounds[worst].state for bound in bounds.values())
    why = f"{worst}: {bounds[worst].why}" if len(bounds) == 1 else f"{same} of {len(bounds)} lanes"
    return msgspec.structs.replace(bounds[worst], why=why)


def badness(bound: Bound | None) -> int:
    """Place in the order of lanes; smaller is worse. A lane that went silent comes before mere warnings."""
    if bound is None:
        return 5
    if bound.mark == "?":
        return 1 if bound.why.startswith("stale") else 4
    return {"!!": 0, "!": 2}.get(bound.mark, 3)
