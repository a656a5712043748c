"""What holds reinforcement learning itself back: envs, inference, the learner, queues, weights. Pure."""

from typing import Final

from overwatch.catalog.bounds import BoundState
from overwatch.catalog.phases import Phase
from overwatch.diagnose.bounds.bound import Bound, evidence
from overwatch.diagnose.bounds.device import FULL_UTIL
from overwatch.diagnose.bounds.waiting import WAIT_SHARE
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.limits import AnomalyLimits

MOST: Final = 0.5
"""Share of the time from which envs or inference are what the run waits for."""
LEARNING: Final = 0.6
"""The same of learning, which is what the time should go to."""
DRY: Final = 0.1
"""Filled share of the learner's queue at and below which it starves."""
BRIMFUL: Final = 0.9
"""And from which on the learner is what is slow."""


def weights_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Bringing new weights to those who collect takes long."""
    share = lane.share(Phase.WEIGHTS)
    if share is None or share < WAIT_SHARE:
        return None
    return _bound(
        lane, BoundState.WEIGHTS, f"{share:.0%} of each update brings weights to the actors",
        "send weights less often, in a smaller type, or over a faster way", "!",
    )  # fmt: skip


def starved(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """The learner waits for experience: its queue is dry, or it waits, and not more for saving."""
    waits = lane.share(Phase.QUEUE_WAIT)
    if waits is not None and waits >= max(WAIT_SHARE, lane.share(Phase.CHECKPOINT) or 0.0):
        said = f"the learner waits {waits:.0%} of its time for experience"
    elif (
        waits is None
        # Who says how long it waits knows better: a learner that keeps up with its actors has a dry queue.
        and not lane.is_coming(Phase.QUEUE_WAIT)
        and lane.queue is not None
        and lane.queue <= DRY
        and not _is_full_of_work(lane)
    ):
        said = f"{lane.queue_text}: learning is faster than collecting"
    else:
        return None
    return _bound(lane, BoundState.STARVED, said, "more actors or envs, or more epochs a batch", "!")


def env_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Most of the time goes into waiting for environments."""
    share = _most(lane, Phase.ENV_WAIT)
    if share is None:
        return None
    return _bound(
        lane, BoundState.ENV, f"{share:.0%} of the time waits for envs",
        "more envs a worker, asynchronous envs, more cores",
    )  # fmt: skip


def inference_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Most of the time goes into choosing actions."""
    share = _most(lane, Phase.INFERENCE)
    if share is None:
        return None
    return _bound(
        lane, BoundState.INFERENCE, f"{share:.0%} of the time chooses actions",
        "larger batches of observations, compile or graphs",
    )  # fmt: skip


def learner_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Most of the time goes into learning, or experience piles up before the learner."""
    if _is_full_of_work(lane):
        return None
    share = (lane.share(Phase.UPDATE) or 0.0) + (lane.share(Phase.ADVANTAGE) or 0.0)
    if share >= LEARNING:
        said = f"{share:.0%} of the time learns"
    elif lane.queue is not None and lane.queue >= BRIMFUL:
        said = f"{lane.queue_text}: collecting is faster than learning"
    else:
        return None
    return _bound(lane, BoundState.LEARNER, said, "larger minibatches, fewer epochs, compile")


def _most(lane: LaneFacts, kind: Phase) -> float | None:
    """Share of a kind of phase that takes at least half of the time, and the device is not full of work."""
    share = lane.share(kind)
    return None if share is None or share < MOST or _is_full_of_work(lane) else share


def undecided(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """The phases show no bound: which of them are missing, or that no one takes most of the time."""
    shares = {} if lane.cycle is None else lane.cycle.shares
    if not shares:
        return None
    collects = lane.share(Phase.ROLLOUT) or 0.0
    missing = [phase.value for phase in (Phase.ENV_WAIT, Phase.INFERENCE) if lane.share(phase) is None]
    if collects >= MOST and missing:
        why = f"{collects:.0%} of the time collects; not reported: {', '.join(missing)}"
        hint = f"time {' and '.join(missing)} within the collecting phase"
    else:
        most = sorted(shares, key=lambda name: (-shares[name], name))[:2]
        why = "no phase takes most of the time: " + ", ".join(f"{name} {shares[name]:.0%}" for name in most)
        hint = "time what happens between the phases" if sum(shares.values()) < MOST else ""
    return Bound(state=BoundState.UNKNOWN.value, mark="?", why=why, hint=hint, confidence=0.0)


def _is_full_of_work(lane: LaneFacts) -> bool:
    return lane.util is not None and lane.util >= FULL_UTIL


def _bound(lane: LaneFacts, state: BoundState, said: str, hint: str, mark: str = "") -> Bound:
    rests = "" if lane.util is None else f", util {lane.util:.0%}"
    return Bound(
        state=state.value, mark=mark, why=said + rests, hint=hint,
        confidence=0.85 if lane.util is not None else 0.7, evidence=evidence(lane, said),
    )  # fmt: skip
