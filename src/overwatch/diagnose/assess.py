"""`assess`: from state to judgement, once per fast tick; owns all memory over time.

Ranks with hysteresis, findings with their first moment, bounds that are held live here, in `Assessment`,
which is part of a checkpoint. Pure: the previous assessment comes in, the next goes out.

The order of envs is worst first, and calm. An env goes up at once when its score rises by more than a margin.
It goes down only when its score has been lower for two seconds on end, and then to the highest it had in
them: whatever jitters, and whatever flickers at a limit, stays where it was at its worst. The order as a
whole changes at most twice a second, but at once for an env whose score rises by as much as a factor that
begins to weigh. Ties keep the order they had.
"""

from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from overwatch.diagnose.anomaly import Anomalies, score_envs, score_lanes
from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.findings import Evidence, problems, while_paused
from overwatch.diagnose.fleet import (
    Fleet,
    FleetBaseline,
    Past,
    baseline_of,
    fleet_of,
    past_of,
)
from overwatch.diagnose.judging import Judging, failed_factors
from overwatch.diagnose.levels import Outlook, Standing
from overwatch.diagnose.liveness import (
    QUIET,
    STALLED,
    LinkJudgement,
    advanced,
    judge_link,
    line_problems,
    outliving,
)
from overwatch.diagnose.machines import Watched, is_new_second, watch
from overwatch.diagnose.policy_findings import PolicyMemory, judge_policy, stands_of
from overwatch.diagnose.policy_rows import has_converged
from overwatch.diagnose.problem import Followed, Now, Open, acknowledge, follow, forget, standing, stood_last
from overwatch.snapshot import Anomaly, Baseline
from overwatch.state.arrays import Floats, Ints, decode_hook, encode_hook, floats, ints
from overwatch.state.envs import Envs
from overwatch.state.rollups import Rollups, rollups_of
from overwatch.state.run import RunState

MARGIN: Final = 0.5
"""Scores that differ by less are alike."""
RELEASE_NS: Final = 2_000_000_000
"""How long a score must be lower before its env goes down."""
REORDER_NS: Final = 500_000_000
"""Least time between two changes of the order, unless a score jumps."""
JUMP: Final = 1.0
"""A rise of a score that is shown at once: the least that a factor weighs that names a fault."""


class Lives(msgspec.Struct, frozen=True, kw_only=True):
    """Whose row each row is, at one tick; both arrays of shape (n,)."""

    moved: int = 0
    """As the table counts it: while it is the same, so is all else."""
    numbers: Ints = msgspec.field(default_factory=lambda: ints(0))
    env_ids: Ints = msgspec.field(default_factory=lambda: ints(0))


def lives_of(envs: Envs, before: Lives) -> Lives:
    """Whose rows they are now; as before where nothing moved."""
    if before.moved == envs.moved:
        return before
    return Lives(moved=envs.moved, numbers=envs.lives[: envs.n].copy(), env_ids=envs.ids[: envs.n].copy())


def rows_of(these: Lives, among: Lives) -> Ints:
    """In which row each of these lives is among others, -1 where it is in none."""
    place = np.argsort(among.numbers, kind="stable")
    at = np.searchsorted(among.numbers[place], these.numbers)
    there = at < place.size
    there[there] = among.numbers[place[at[there]]] == these.numbers[there]
    row = np.full(these.numbers.size, -1, dtype=np.int64)
    row[there] = place[at[there]]
    return row


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """The order of the envs at one tick, and what keeps it calm; all but `order` by row, shape (n,)."""

    order: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Rows, worst first."""
    held: Floats = msgspec.field(default_factory=lambda: floats(0))
    """The score each env is ranked by; NaN of one that was not ranked yet."""
    lower_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Tick since which each env's score has been lower than that; 0 where it is not."""
    peak: Floats = msgspec.field(default_factory=lambda: floats(0))
    """Its highest score since then."""
    ordered_at: int = 0
    """Tick at which the order last changed."""


def carried(before: Ranked, then: Lives, now: Lives) -> tuple[Ranked, frozenset[int]]:
    """The last tick's ranks by rows of now, which may have moved, gone or been given away.

    New rows come last, in order of their birth. Beside them the ids of envs whose life has ended since.
    """
    if then is now:
        return before, frozenset()
    row, was = rows_of(then, now), rows_of(now, then)
    known, place = row[before.order], np.argsort(now.numbers, kind="stable")
    moved = Ranked(
        order=np.concatenate([known[known >= 0], place[was[place] < 0]]),
        held=np.append(before.held, np.nan)[was],
        lower_at=np.append(before.lower_at, 0)[was],
        peak=np.append(before.peak, np.nan)[was],
        ordered_at=before.ordered_at,
    )
    return moved, frozenset(then.env_ids[row < 0].tolist())


def rank(scores: Floats, before: Ranked, tick: int) -> Ranked:
    """The ranks at `tick` (ns) from its scores and the ranks before it, which may have fewer rows."""
    n, known = scores.size, before.held.size
    if before.held is scores:
        return before
    if known == n and _is_calm(scores, before):
        # Where no env stands out the scores are one array for as long as that lasts.
        return replace(before, held=scores, peak=scores)
    held, peak, lower_at = scores.copy(), scores.copy(), ints(n)
    held[:known], lower_at[:known], peak[:known] = before.held, before.lower_at, before.peak
    fresh = np.isnan(held)
    with np.errstate(invalid="ignore"):
        higher = fresh | (scores > held + MARGIN)
        lower = (scores < held - MARGIN) | ((scores == 0) & (held > 0))
    peak = np.where(lower & (lower_at > 0), np.maximum(peak, scores), scores)
    lower_at = np.where(lower, np.where(lower_at > 0, lower_at, tick), 0)
    settled = lower & (tick - lower_at >= RELEASE_NS)
    lower_at[settled] = 0
    jumped = bool((fresh | (scores >= held + JUMP)).any())
    held = np.where(higher, scores, np.where(settled, peak, held))
    order, at = np.concatenate([before.order, np.arange(known, n, dtype=np.int64)]), before.ordered_at
    if jumped or tick - at >= REORDER_NS:
        place = -held[order]
        if (place[1:] < place[:-1]).any():
            order, at = order[np.argsort(place, kind="stable")], tick
    return Ranked(order=order, held=held, lower_at=lower_at, peak=peak, ordered_at=at)


def _is_calm(scores: Floats, before: Ranked) -> bool:
    """Whether every env is where its score puts it, and nothing waits to change."""
    if before.lower_at.any() or (scores != before.held).any() or (scores != before.peak).any():
        return False
    ordered = scores[before.order]
    return not (ordered[1:] > ordered[:-1]).any()


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """What is worked out of all envs at the start of a second, and holds within it."""

    usual: FleetBaseline = FleetBaseline()
    past: Past = msgspec.field(default_factory=Past)
    rollups: Rollups = Rollups()


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
    second: Second = Second()
    off: dict[str, str] = {}
    """Factors of others that failed in this run, with the reason."""
    over: bool = False
    """Whether the run has ended, and was judged with its last values."""

    @property
    def stalled_since(self) -> int:
        """When the stall of training began that is open; 0 without such a stall."""
        stalls = [one for one in self.findings.values() if one.problem.code == STALLED]
        return max((one.since for one in stalls if one.cleared_at is None), default=0)

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
    lanes: dict[str, Anomaly]
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
    # Telemetry may hold any number; what overflows becomes infinite and is then left out.
    with np.errstate(over="ignore", invalid="ignore"):
        fleet = fleet_of(state, second.usual, second.past)
        anomalies = score_envs(fleet, how.limits, how.plugins, previous.off)
    link = judge_link(state, tick)
    machines = watch(fleet, previous.watched, tick, clock, how.limits)
    ranks, followed = _carried(state, previous, lives)
    stand = standing(followed)
    is_over = state.finished is not None
    # The end comes with the last values: they are judged once, then what stands is kept.
    is_paused = state.paused_at is not None
    is_judged = not previous.over if is_over else link.state not in QUIET and not is_paused
    policy, memory = (
        judge_policy(state, fleet, how.limits, stand, previous.policy) if is_judged else ([], previous.policy)
    )
    stands = stands_of(state, fleet, how.limits, memory.levels)
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
        learns=stands.outlook is Outlook.GOOD,
    )
    found = problems(seen) if is_judged else list(stand.values())
    if is_over and is_judged:
        ids = {problem.id for problem in found}
        found += [one for one in stood_last(followed, clock.now) if one.id not in ids]
    if is_paused and link.state not in QUIET:
        found = while_paused(seen)
    if link.state in QUIET:
        found = [*outliving(state, followed, found), *line_problems(state, link)]
    found += failed_factors(state, how, anomalies)
    now = Now(tick, clock.now, state.updates, tick - previous.tick if is_paused and previous.tick else 0)
    kept = Assessment(
        tick=tick, ranks=rank(anomalies.scores, ranks, tick), lives=lives, watched=machines.watched,
        followed=follow(followed, found, now), policy=memory, acks=state.acks_total,
        second=second, off=dict(anomalies.off), over=is_over,
    )  # fmt: skip
    return _judged(seen, kept, stands)


def _judged(seen: Evidence, kept: Assessment, stands: Standing) -> Judged:
    machines = seen.machines
    # Readings are over with the run, and of one that is paused they show nothing of its loop.
    is_still = seen.link.state == "ended" or seen.state.paused_at is not None
    bounds = {} if is_still else machines.bounds
    return Judged(
        assessment=kept,
        anomalies=seen.anomalies,
        fleet=seen.fleet,
        link=seen.link,
        bounds=bounds,
        bound=None if is_still else machines.bound,
        beside={} if is_still else machines.beside,
        lanes=score_lanes(seen.fleet, seen.anomalies, bounds, seen.limits),
        baseline=seen.baseline,
        converged=has_converged(seen.state, stands),
    )


def _second(
    state: RunState, previous: Assessment, lives: Lives, now: tuple[int, int], how: Judging
) -> Second:
    """As before, unless a second began, or envs came or went."""
    if lives is previous.lives and not is_new_second(previous.watched.slow, now):
        return previous.second
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        past = previous.second.past
        if lives is not previous.lives:
            past = past.by(rows_of(lives, previous.lives))
        past = past_of(state, past, how.limits.crowd)
        usual = baseline_of(state, past)
        return Second(usual=usual, past=past, rollups=rollups_of(state))


def _carried(state: RunState, previous: Assessment, lives: Lives) -> tuple[Ranked, Followed]:
    """Ranks and findings of the envs that are there now, with what operators have seen."""
    if lives is previous.lives and state.acks_total == previous.acks:
        return previous.ranks, previous.followed
    ranks, lost = carried(previous.ranks, previous.lives, lives)
    fresh = min(state.acks_total - previous.acks, len(state.acks.items))
    seen = {ack.finding for ack in state.acks.items[-fresh:]} if fresh > 0 else frozenset[str]()
    return ranks, acknowledge(forget(previous.followed, lost), seen)


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
