"""What holds each lane back: small rules in an explicit list, the first that applies decides.

A rule gives what, why, what to do, how sure it is and from which evidence. Where the signals that a verdict
needs are missing the lane is `unknown`, and names them. The device: heat, power, memory, work, rest. What a
lane waits for that is not learning itself: other lanes and ranks, data, storage. What holds reinforcement
learning itself back: envs, inference, the learner, queues, weights.

Why a learner waits for experience follows from what those who collect it spend their time on. Where actors
are slow, that is the cause. Where actors wait too, learner and actors take turns, as they were configured to,
and that is no fault. Where neither of them works, what lies between them is slow. Pure; must not know how a
bound is held over time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from overwatch.catalog.bounds import BoundState
from overwatch.catalog.durations import duration
from overwatch.catalog.phases import Phase
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.lane_signals import Cycle
from overwatch.diagnose.lanes import LaneFacts, Of


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict about one lane, or about all."""

    state: str
    """A word of `overwatch.catalog.bounds.BoundState`."""
    mark: str = ""
    """`!!` critical, `!` warning, `?` abstains, none = as it should be."""
    why: str = ""
    hint: str = ""
    confidence: float
    evidence: tuple[str, ...] = ()


Rule: TypeAlias = Callable[[LaneFacts, AnomalyLimits], Bound | None]
"""One rule's verdict on a lane; `None` where it does not apply, or lacks a signal."""


def evidence(lane: LaneFacts, *more: str) -> tuple[str, ...]:
    """The numbers that a verdict rests on: the rule's own first, then the lane's levels."""
    shares = (
        ("util", lane.util), ("memory", lane.memory), ("power", lane.power), ("clock", lane.clock),
        ("processors", lane.sm),
    )  # fmt: skip
    numbers = (*more, *(f"{name} {share:.0%}" for name, share in shares if share is not None))
    if not lane.dips or lane.dip_s is None:
        return numbers
    return (
        *numbers,
        f"below 50% for {lane.dips:.0%} of a minute, p95 {duration_like(lane.dip_s, lane.dip_s)}",
    )


def _bound(
    lane: LaneFacts, state: BoundState, why: str, hint: str = "", *more: str, mark: str = "", sure: float
) -> Bound:
    """A verdict that rests on the lane's numbers, and on `more` before them."""
    return Bound(
        state=state.value, mark=mark, why=why, hint=hint, confidence=sure, evidence=evidence(lane, *more)
    )


def _of_shares(
    lane: LaneFacts, state: BoundState, stated: str, hint: str, mark: str = "", *, so: str = ""
) -> Bound:
    """A verdict by what the time goes to, surer where the device rests meanwhile."""
    rests = "" if lane.util is None else f", util {lane.util:.0%}"
    sure = 0.7 if lane.util is None else 0.85
    return _bound(lane, state, f"{stated}{rests}{so}", hint, stated, mark=mark, sure=sure)


def duration_like(value: float, like: float) -> str:
    """A duration as shown, in the unit that suits `like`."""
    return f"{value:.2f}s" if like >= 1 else f"{value * 1000:.3g}ms"


BUSY: Final = 0.6
"""Utilisation from which a low clock means something."""
FULL_UTIL: Final = 0.9
HARD_WORK: Final = 0.6
"""Share of the power limit from which a busy GPU is truly computing."""
ACTIVE: Final = 0.6
"""Share of the processors with work, from which the same is true."""
IDLE: Final = 0.05
LOW_CLOCK: Final = 0.7
CAPPED_CLOCK: Final = 0.8
NEARLY_FULL: Final = 0.97
CROWDED: Final = 0.92
OOM_S: Final = 300.0
OOM_SOON_S: Final = 60.0
OOM_FROM: Final = 0.6
"""Used share below which a rise is a start, not a leak."""
FULL_CORE: Final = 0.9
"""Use of one core that leaves it no time to launch more: a thread that never rests was seen at 92 to 95 %."""
RESTING: Final = 0.7
"""Utilisation below which a device rests between kernels."""
MHZ: Final = 1e6
GIB: Final = 1 << 30


def throttled(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Heat or power keeps the clock down by the driver's reasons; a low one under load if it gives none."""
    words = [word for word in lane.throttle or () if _is_cause(word, lane)]
    clock = lane.clock if lane.throttle is None else lane.clock_top
    low = not lane.throttle and clock is not None and clock <= LOW_CLOCK and (lane.util or 0.0) >= BUSY
    if not words and not low:
        return None
    cause = "thermal" if any(_is_heat(word) for word in words) else "power" if words else "clock"
    now = "" if lane.clock_hz is None else f"{lane.clock_hz / MHZ:.0f}"
    most = "" if lane.clock_max_hz is None else f" of {lane.clock_max_hz / MHZ:.0f}"
    advice = {"thermal": "cool it", "power": "raise its power cap", "clock": "find what holds it down"}[cause]
    stated = f"{cause}: {now}{most} MHz; {advice}" if now else f"{cause}; {advice}"
    hint, mark = ("raise the fan curve or lower power cap", "!!") if cause == "thermal" else (advice, "!")
    found = (f"throttle {word}" for word in words)
    return _bound(lane, BoundState.THROTTLED, stated, hint, *found, mark=mark, sure=0.95 if words else 0.6)


def oom_risk(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Memory is nearly full, or will be soon if its peaks go on rising."""
    if lane.memory is None:
        return None
    trend = lane.trend if lane.memory >= OOM_FROM else None
    if trend is not None and trend.oom_s <= OOM_S:
        why = f"memory full in about {trend.oom_s:.0f}s at {trend.rate / GIB:+.2f}G/s"
        hint, rises = "look for what is kept; smaller batch", f"rises {trend.rate / GIB:.3f}G/s"
        mark = "!!" if trend.oom_s < OOM_SOON_S else "!"
        return _bound(lane, BoundState.OOM_RISK, why, hint, rises, mark=mark, sure=trend.confidence)
    if lane.memory < NEARLY_FULL:
        return None
    why = f"memory {lane.memory:.0%} full"
    return _bound(lane, BoundState.OOM_RISK, why, "smaller batch", mark="!", sure=0.6)


def compute_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Busy, and doing real work by its power or by its processors: as it should be."""
    if lane.util is None or lane.util < FULL_UTIL:
        return None
    works = [f"at {lane.power:.0%} power"] if lane.power is not None and lane.power >= HARD_WORK else []
    if lane.sm is not None and lane.sm >= ACTIVE:
        works.append(f"{lane.sm:.0%} of its processors have work")
    if not works:
        return None
    slow = f"; memory full in {duration(lane.trend.oom_s)}" if lane.trend is not None else ""
    return _bound(lane, BoundState.COMPUTE, "busy at full power" + slow, "", *works, sure=0.9)


def memory_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Its memory is taken, so that a larger batch does not fit, and it is not busy."""
    if lane.memory is None or lane.util is None or lane.memory < CROWDED or lane.util < IDLE:
        return None
    why = f"memory {lane.memory:.0%} full, util {lane.util:.0%}"
    return _bound(lane, BoundState.MEMORY, why, "mixed precision or smaller activations make room", sure=0.6)


def host_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Kernels run all the time and draw little, or it rests while one core is full: the host is late."""
    if lane.util is None or lane.util < IDLE:
        return None
    full = lane.core is not None and lane.core >= FULL_CORE
    core = () if lane.core is None else (f"busiest core {lane.core:.0%}",)
    small = lane.util >= FULL_UTIL and lane.power is not None and lane.power < HARD_WORK
    if not small and not (full and lane.util < RESTING):
        return None
    stated = (
        f"util {lane.util:.0%} at {lane.power or 0.0:.0%} of its power: small kernels"
        if small
        else f"util {lane.util:.0%} while one core is at {lane.core or 0.0:.0%}: the host is late"
    )
    sure = 0.8 if small and full else 0.5
    return _bound(lane, BoundState.HOST, stated, "graphs, compile, or a bigger batch", *core, sure=sure)


def idle(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Nothing runs on it."""
    if lane.util is None or lane.util >= IDLE:
        return None
    return _bound(lane, BoundState.IDLE, "nothing runs here", sure=0.9)


def unknown(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """No rule can decide; it names what is missing."""
    if not lane.is_fresh:
        why = f"stale {lane.age_s:.0f}s"
        return Bound(state=BoundState.UNKNOWN.value, mark="?", why=why, confidence=0.0)
    known = (("utilisation", lane.util), ("power limit", lane.power), ("memory", lane.memory))
    missing = [name for name, value in known if value is None]
    why = f"not received: {', '.join(missing)}"
    if not missing:
        why = f"util {lane.util or 0.0:.0%}; no signal shows why"
    return _bound(lane, BoundState.UNKNOWN, why, mark="?", sure=0.0)


def _is_heat(word: str) -> bool:
    return "thermal" in word or "temp" in word


def _is_cause(word: str, lane: LaneFacts) -> bool:
    """Whether a flag matters: a power cap is everyday under load, unless it costs much clock."""
    if _is_heat(word) or "slowdown" in word or "brake" in word:
        return True
    return "power" in word and (lane.clock is None or lane.clock <= CAPPED_CLOCK)


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
    owner = "" if what == "step" or lane.cycle is None else f" (rank {lane.cycle.rank})"
    mark, hint = (
        "!!" if pace >= MUCH * limits.slow_lane else "!",
        f"compare clock and PCIe width of {lane.name}",
    )
    found, why = (f"{what} {own}", f"{pace:.2f}x the others"), f"{what} {own} against {others}{owner}"
    return _bound(lane, BoundState.STRAGGLER, f"{why}; the others wait", hint, *found, mark=mark, sure=0.9)


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
    """It works and rests in turn, and no phase shows for what it rests."""
    if lane.saw is None:
        return None
    why, hint = (
        f"{lane.saw.stated}; it waits in each",
        "time the phases (env_wait, update, sync) to see for what it waits",
    )
    return _bound(lane, BoundState.SYNC, why, hint, lane.saw.stated, mark="!", sure=0.5)


def io_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """The data loader runs dry, or loading or saving takes long, while the lane has nothing to do."""
    if lane.util is not None and lane.util >= FULL_UTIL:
        return None
    loads, saves = lane.share(Phase.LOAD) or 0.0, lane.share(Phase.CHECKPOINT) or 0.0
    if lane.util is not None and lane.loader is not None and lane.loader <= HUNGRY:
        stated, hint = lane.loader_text, "more loader workers, or faster storage"
    elif loads >= 2 * WAIT_SHARE:
        stated, hint = f"{loads:.0%} of each update loads data", "more loader workers, or faster storage"
    elif saves >= WAIT_SHARE:
        stated, hint = f"{saves:.0%} of the time is spent saving", "save less often, or beside the training"
        if lane.is_fed:
            stated = f"{saves:.0%} of the time waits for checkpoints, which make room in replay"
            hint = "faster storage for checkpoints, or a larger table of replay"
        hint += f"; {lane.saves}" if lane.saves else ""
    else:
        return None
    return _of_shares(lane, BoundState.IO, stated, hint, "!", so="; it waits for data")


def _waited_for(lane: LaneFacts) -> str:
    if lane.slowest is not None:
        return lane.slowest
    slowest = None if lane.cycle is None else lane.cycle.slowest
    return "the others" if slowest is None else f"rank {slowest}"


def _sync(lane: LaneFacts, share: float, other: str, confidence: float) -> Bound:
    stated = f"{share:.0%} of each step waits for {other}"
    saw = () if lane.saw is None else (lane.saw.stated,)
    hint = f"find out why {other} is slow"
    return _bound(lane, BoundState.SYNC, stated, hint, stated, *saw, mark="!", sure=confidence)


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
    return _of_shares(
        lane, BoundState.WEIGHTS, f"{share:.0%} of each update brings weights to the actors",
        "send weights less often, in a smaller type, or over a faster way", "!",
    )  # fmt: skip


def starved(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """The learner waits for experience: its queue is dry, or it waits, and not more for saving."""
    waits = lane.share(Phase.QUEUE_WAIT)
    if waits is not None and waits >= max(WAIT_SHARE, lane.share(Phase.CHECKPOINT) or 0.0):
        stated = f"the learner waits {waits:.0%} of its time for experience"
    elif (
        waits is None
        # A reported wait is surer: a learner that keeps up with its actors has a dry queue.
        and not lane.is_coming(Phase.QUEUE_WAIT)
        and lane.queue is not None
        and lane.queue <= DRY
        and not _is_full_of_work(lane)
    ):
        stated = f"{lane.queue_text}: learning is faster than collecting"
    else:
        return None
    return _of_shares(lane, BoundState.STARVED, stated, "more actors or envs, or more epochs a batch", "!")


def env_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Most of the time goes into waiting for environments."""
    share = _most(lane, Phase.ENV_WAIT)
    if share is None:
        return None
    return _of_shares(
        lane, BoundState.ENV, f"{share:.0%} of the time waits for envs",
        "more envs a worker, asynchronous envs, more cores",
    )  # fmt: skip


def inference_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Most of the time goes into choosing actions."""
    share = _most(lane, Phase.INFERENCE)
    if share is None:
        return None
    return _of_shares(
        lane, BoundState.INFERENCE, f"{share:.0%} of the time chooses actions",
        "larger batches of observations, compile or graphs",
    )  # fmt: skip


def learner_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Most of the time goes into learning, or experience piles up before the learner."""
    if _is_full_of_work(lane):
        return None
    share = (lane.share(Phase.UPDATE) or 0.0) + (lane.share(Phase.ADVANTAGE) or 0.0)
    if share >= LEARNING:
        stated = f"{share:.0%} of the time learns"
    elif lane.queue is not None and lane.queue >= BRIMFUL:
        stated = f"{lane.queue_text}: collecting is faster than learning"
    else:
        return None
    return _of_shares(lane, BoundState.LEARNER, stated, "larger minibatches, fewer epochs, compile")


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
    reported = (one.share(Phase.ROLLOUT) for one in by_name.values() if one.of is Of.SERVICE)
    collects = [share for share in reported if share is not None]
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
