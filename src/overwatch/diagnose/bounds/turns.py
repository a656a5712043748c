"""Why a learner waits for experience, by what those who collect it spend their time on. Pure.

Rules: where actors are slow, that is the cause. Where actors wait too, learner and actors take turns, as they
were configured to, and that is no fault. Where neither of them works, what lies between them is slow.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from overwatch.catalog.bounds import BoundState
from overwatch.catalog.phases import Phase
from overwatch.diagnose.bounds.bound import Bound
from overwatch.diagnose.bounds.waiting import WAIT_SHARE
from overwatch.diagnose.lanes import LaneFacts, Of

AT_WORK: Final = 0.8
"""Shares of the time in which learner and actors work, added up, below which what lies between them is slow:
who takes turns works all the time, together."""
_COLLECTING: Final = (BoundState.WEIGHTS.value, BoundState.ENV.value, BoundState.INFERENCE.value)
"""What makes those who collect slow."""


def explained(
    bounds: Mapping[str, Bound], facts: Iterable[LaneFacts], beside: Mapping[str, Bound]
) -> dict[str, Bound]:
    """The same, where experience is missing with why; `beside` are the verdicts of services among `facts`."""
    by_name = {one.name: one for one in facts}
    told = (one.share(Phase.ROLLOUT) for one in by_name.values() if one.of is Of.SERVICE)
    collects = [share for share in told if share is not None]
    slow = next((name for name, bound in beside.items() if bound.state in _COLLECTING), None)
    found = dict(bounds)
    for name, bound in bounds.items():
        if bound.state != BoundState.STARVED.value:
            continue
        if slow is not None:
            because = f"{slow} is {beside[slow].state}: {beside[slow].hint}"
            found[name] = msgspec.structs.replace(bound, hint=because)
        elif collects and (waits := by_name[name].share(Phase.QUEUE_WAIT)) is not None:
            found[name] = _by_turns(bound, waits, collects)
    return found


def _by_turns(bound: Bound, waits: float, collects: list[float]) -> Bound:
    mean = sum(collects) / len(collects)
    each = f"actors collect {mean:.0%} of their time"
    if 1 - waits + sum(collects) < AT_WORK:
        hint = f"{each}: replay or the way to it is slow, or batches are small"
        return msgspec.structs.replace(bound, hint=hint)
    if mean >= 1 - WAIT_SHARE:
        return msgspec.structs.replace(bound, hint=f"{each}: {bound.hint}")
    return msgspec.structs.replace(
        bound,
        state=BoundState.SYNC.value,
        mark="",
        why=f"learner and actors take turns: it waits {waits:.0%} of its time, {each}",
        hint="let actors collect further ahead (batch.ahead), or leave it so for fresh experience",
    )
