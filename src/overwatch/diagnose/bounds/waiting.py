"""What a lane waits for that is not learning itself: other lanes and ranks, data, storage. Pure."""

from typing import Final

from overwatch.catalog.bounds import BoundState
from overwatch.catalog.phases import Phase
from overwatch.diagnose.bounds.bound import Bound, duration_like, evidence
from overwatch.diagnose.bounds.device import FULL_UTIL
from overwatch.diagnose.cycle import Cycle
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.limits import AnomalyLimits

WAIT_SHARE: Final = 0.15
"""Share of the time from which a wait is what holds it back."""
HUNGRY: Final = 0.25
"""Filled share of the loader's queue at and below which it starves the lanes."""
WAITING_UTIL: Final = 0.85
MUCH: Final = 1.1
"""A straggler by this many times the limit is critical."""


def straggler(lane: LaneFacts, limits: AnomalyLimits) -> Bound | None:
    """Its steps take well longer than those of the other lanes of its kind, or its rank's work does."""
    if lane.pace is not None and lane.step_s is not None and lane.pace >= limits.slow_lane:
        return _straggler(lane, "step", (lane.pace, lane.step_s, lane.step_s / lane.pace), limits)
    cycle = lane.cycle
    if cycle is None or not is_straggler(cycle, limits):
        return None
    return _straggler(lane, "update", (cycle.pace or 0.0, cycle.work_s or 0.0, cycle.others_s or 0.0), limits)


def is_straggler(cycle: Cycle, limits: AnomalyLimits) -> bool:
    """Whether the others wait for this rank: it works longer than they do, and hardly waits itself.

    What an exchange costs is in the waiting of each: who waits half as long as the others is waited for.
    """
    waits = cycle.share(Phase.SYNC)
    if cycle.pace is None or cycle.pace < limits.slow_lane or waits is None:
        return False
    others = 1 - (cycle.others_s or 0.0) / cycle.update_s if cycle.update_s else 0.0
    return waits < max(WAIT_SHARE, others / 2)


def _straggler(
    lane: LaneFacts, what: str, numbers: tuple[float, float, float], limits: AnomalyLimits
) -> Bound:
    pace, own_s, others_s = numbers
    own, others = duration_like(own_s, own_s), duration_like(others_s, own_s)
    who = "" if what == "step" or lane.cycle is None else f" (rank {lane.cycle.rank})"
    return Bound(
        state=BoundState.STRAGGLER.value,
        mark="!!" if pace >= MUCH * limits.slow_lane else "!",
        why=f"{what} {own} against {others}{who}; the others wait",
        hint=f"compare clock and PCIe width of {lane.name}",
        confidence=0.9,
        evidence=evidence(lane, f"{what} {own}", f"{pace:.2f}x the others"),
    )


def sync_bound(lane: LaneFacts, limits: AnomalyLimits) -> Bound | None:
    """It waits for a slower lane or rank, or at a barrier."""
    waits = lane.share(Phase.SYNC)
    if waits is not None and waits >= WAIT_SHARE:
        return _sync(lane, waits, _waited_for(lane), 0.9)
    idle_enough = lane.util is not None and lane.util <= WAITING_UTIL
    if not idle_enough or lane.step_s is None or lane.slowest is None or lane.slowest_s is None:
        return None
    if lane.slowest_s < limits.slow_lane * lane.step_s:
        return None
    return _sync(lane, 1 - lane.step_s / lane.slowest_s, lane.slowest, 0.86 if lane.saw is None else 0.9)


def sawtooth_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """It works and rests in turn, and no phase says for what it rests."""
    if lane.saw is None:
        return None
    return Bound(
        state=BoundState.SYNC.value, mark="!", why=f"{lane.saw.said}; it waits in each",
        hint="time the phases (env_wait, update, sync) to see for what it waits", confidence=0.5,
        evidence=evidence(lane, lane.saw.said),
    )  # fmt: skip


def io_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """The data loader runs dry, or loading or saving takes long, while the lane has nothing to do."""
    if lane.util is not None and lane.util >= FULL_UTIL:
        return None
    loads, saves = lane.share(Phase.LOAD) or 0.0, lane.share(Phase.CHECKPOINT) or 0.0
    if lane.util is not None and lane.loader is not None and lane.loader <= HUNGRY:
        said, hint = lane.loader_text, "more loader workers, or faster storage"
    elif loads >= 2 * WAIT_SHARE:
        said, hint = f"{loads:.0%} of each update loads data", "more loader workers, or faster storage"
    elif saves >= WAIT_SHARE:
        said, hint = f"{saves:.0%} of the time is spent saving", "save less often, or beside the training"
        if lane.is_fed:
            said = f"{saves:.0%} of the time waits for checkpoints, which make room in replay"
            hint = "faster storage for checkpoints, or a larger table of replay"
        hint += f"; {lane.saves}" if lane.saves else ""
    else:
        return None
    rests = "" if lane.util is None else f", util {lane.util:.0%}"
    return Bound(
        state=BoundState.IO.value, mark="!", why=f"{said}{rests}; it waits for data", hint=hint,
        confidence=0.85 if lane.util is not None else 0.7, evidence=evidence(lane, said),
    )  # fmt: skip


def _waited_for(lane: LaneFacts) -> str:
    if lane.slowest is not None:
        return lane.slowest
    slowest = None if lane.cycle is None else lane.cycle.slowest
    return "the others" if slowest is None else f"rank {slowest}"


def _sync(lane: LaneFacts, share: float, other: str, confidence: float) -> Bound:
    said = f"{share:.0%} of each step waits for {other}"
    saw = () if lane.saw is None else (lane.saw.said,)
    return Bound(
        state=BoundState.SYNC.value, mark="!", why=said, hint=f"find out why {other} is slow",
        confidence=confidence, evidence=evidence(lane, said, *saw),
    )  # fmt: skip
