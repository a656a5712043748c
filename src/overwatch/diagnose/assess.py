"""`assess`: from state to judgement, once per fast tick; owns all memory over time.

Ranks with hysteresis, findings with their first moment, bounds that are held live here, in `Assessment`,
which is part of a checkpoint. Pure: the previous assessment comes in, the next goes out.
"""

from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from overwatch.diagnose.anomaly import Anomalies, LaneScore, low_lanes, score_envs, score_lanes
from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.findings import Evidence, problems
from overwatch.diagnose.fleet import Fleet, Usual, fleet_of, usual_of
from overwatch.diagnose.judging import Judging, failed_factors
from overwatch.diagnose.liveness import QUIET, LinkJudgement, advanced, judge_link, line_problems, outliving
from overwatch.diagnose.machines import Watched, is_new_second, watch
from overwatch.diagnose.policy_findings import PolicyMemory, judge_policy
from overwatch.diagnose.policy_rows import has_converged
from overwatch.diagnose.problem import Followed, Now, Open, acknowledge, follow, forget, standing
from overwatch.diagnose.ranking import Lives, Ranked, carried, lives_of, rank
from overwatch.diagnose.rollups import Rollups, rollups_of
from overwatch.diagnose.rules import Streak, judge_rules
from overwatch.snapshot import Baseline
from overwatch.state.arrays import decode_hook, encode_hook
from overwatch.state.run import RunState


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """What is worked out of all envs at the start of a second, and holds within it."""

    usual: Usual = Usual()
    rollups: Rollups = Rollups()
    low: dict[str, tuple[float, str]] = {}
    """Lanes whose episodes earn little: how much that weighs, and the reason."""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a tick."""

    tick: int = 0
    ranks: Ranked = Ranked()
    """Env rows, worst first."""
    lives: Lives = Lives()
    """Whose rows those are."""
    watched: Watched = Watched()
    """What machines did over time."""
    followed: Followed = Followed()
    policy: PolicyMemory = PolicyMemory()
    acks: int = 0
    """Acknowledgements taken so far."""
    streaks: dict[str, Streak] = {}
    """How long each rule of a user has been true, by its name."""
    second: Second = Second()
    off: dict[str, str] = {}
    """Factors of others that failed in this run, with the reason."""
    over: bool = False
    """Whether the run has ended, and was judged with its last values."""

    @property
    def findings(self) -> dict[str, Open]:
        """Findings that are open, or were just now, by id."""
        return self.followed.open


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """An assessment with what only this tick's projection needs."""

    assessment: Assessment
    anomalies: Anomalies
    fleet: Fleet
    link: LinkJudgement
    bounds: dict[str, Bound]
    """What holds each lane back, by lane."""
    bound: Bound | None
    """What holds the run back as a whole."""
    beside: dict[str, Bound] = {}
    """What holds services beside the trainer back, by process."""
    lanes: dict[str, LaneScore]
    """How far each lane is from the others, by name."""
    baseline: Baseline | None
    """The run that its throughput is compared with."""
    converged: bool
    """Whether entropy is low because the task is solved."""


AS_SHIPPED: Final = Judging()


def assess(
    state: RunState,
    previous: Assessment,
    tick: int,
    how: Judging = AS_SHIPPED,
    baseline: Baseline | None = None,
) -> Judged:
    """Judge one run at `tick` (Unix ns on the stamp clock), its throughput against `baseline` too."""
    lives = lives_of(state.envs, previous.lives)
    clock = advanced(previous.watched.clock, state, tick)
    second = _second(state, previous, lives, (tick, clock.now), how)
    fleet, anomalies = _scored(state, how, previous.off, second.usual)
    link = judge_link(state, tick)
    machines = watch(fleet, previous.watched, tick, clock, how.limits)
    ranks, followed = _carried(state, previous, lives)
    stand = standing(followed)
    is_over = state.finished is not None
    # The end comes with the last values: they are judged once, then what stands is kept.
    is_judged = not previous.over if is_over else link.state not in QUIET
    policy, memory = (
        judge_policy(state, fleet, how.limits, stand, previous.policy) if is_judged else ([], previous.policy)
    )
    seen = Evidence(
        state=state,
        fleet=fleet,
        anomalies=anomalies,
        machines=machines,
        link=link,
        limits=how.limits,
        baseline=baseline,
        standing=stand,
        policy=policy,
    )
    ruled, streaks = judge_rules(how.rules, fleet, previous.streaks, tick)
    found = [*problems(seen), *ruled] if is_judged else list(stand.values())
    if link.state in QUIET:
        found = [*outliving(state, followed, found), *line_problems(state, link)]
    found += failed_factors(state, how, anomalies)
    now = Now(tick, clock.now, state.updates)
    kept = Assessment(
        tick=tick, ranks=rank(anomalies.scores, ranks, tick), lives=lives, watched=machines.watched,
        followed=follow(followed, found, now), policy=memory, acks=state.acks_total, streaks=streaks,
        second=second, off=dict(anomalies.off), over=is_over,
    )  # fmt: skip
    return _judged(seen, kept, how)


def _judged(seen: Evidence, kept: Assessment, how: Judging) -> Judged:
    machines, is_over = seen.machines, seen.link.state == "ended"
    # Readings are over with the run: no verdict follows from old ones.
    bounds = {} if is_over else machines.bounds
    return Judged(
        assessment=kept,
        anomalies=seen.anomalies,
        fleet=seen.fleet,
        link=seen.link,
        bounds=bounds,
        bound=None if is_over else machines.bound,
        beside={} if is_over else machines.beside,
        lanes=score_lanes(seen.fleet, seen.anomalies, bounds, kept.second.low, how.limits),
        baseline=seen.baseline,
        converged=has_converged(seen.state, seen.fleet),
    )


def _scored(state: RunState, how: Judging, off: dict[str, str], usual: Usual) -> tuple[Fleet, Anomalies]:
    # Telemetry may hold any number; what overflows becomes infinite and is then left out.
    with np.errstate(over="ignore", invalid="ignore"):
        fleet = fleet_of(state, usual)
        return fleet, score_envs(fleet, how.limits, how.plugins, off)


def _second(
    state: RunState, previous: Assessment, lives: Lives, now: tuple[int, int], how: Judging
) -> Second:
    """As before, unless a second began, or envs came or went."""
    if lives is previous.lives and not is_new_second(previous.watched.slow, now):
        return previous.second
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        usual = usual_of(state)
        low = low_lanes(fleet_of(state, usual), how.limits)
        return Second(usual=usual, rollups=rollups_of(state), low=low)


def _carried(state: RunState, previous: Assessment, lives: Lives) -> tuple[Ranked, Followed]:
    """Ranks and findings of the envs that are there now, with what operators have seen."""
    if lives is previous.lives and state.acks_total == previous.acks:
        return previous.ranks, previous.followed
    ranks, lost = carried(previous.ranks, previous.lives, lives)
    return ranks, acknowledge(forget(previous.followed, lost), _acknowledged(state, previous.acks))


def _acknowledged(state: RunState, taken: int) -> set[str]:
    """Ids of the findings that were acknowledged since so many acknowledgements."""
    fresh = min(state.acks_total - taken, len(state.acks.items))
    return {ack.finding for ack in state.acks.items[-fresh:]} if fresh > 0 else set()


def dump(assessment: Assessment) -> bytes:
    """The assessment as bytes, for a checkpoint."""
    return msgspec.msgpack.encode(assessment, enc_hook=encode_hook)


_decoder: Final = msgspec.msgpack.Decoder(Assessment, dec_hook=decode_hook)


def load(data: bytes) -> Assessment:
    """The assessment from `dump`'s bytes."""
    return _decoder.decode(data)


def without_new(judged: Judged, before: Assessment, known: Collection[str]) -> Judged:
    """A judgement without findings that opened or wait at its tick, but for those of `known` ids."""
    now, earlier = judged.assessment.followed, before.followed.open
    if not now.waiting and now.open.keys() <= earlier.keys():
        return judged
    followed = Followed(
        open={key: item for key, item in now.open.items() if key in earlier or key in known},
        waiting={key: item for key, item in now.waiting.items() if key in known},
        cooling=now.cooling,
    )
    return replace(judged, assessment=replace(judged.assessment, followed=followed))
