"""What holds each lane back: one list of verdicts in the order in which they are tried, the first applies.

A verdict is a state, why, what to do, how sure it is and from which evidence. Where the signals that it needs
are missing the lane is `unknown`, which names them. First what the device's own readings show to be wrong;
then for which lane it waits; then what its time goes to, by phases and by queues; then how its device works.

Why a learner waits for experience follows from what those who collect it spend their time on. Where actors
are slow, that is the cause. Where actors wait too, learner and actors take turns, as they were configured to,
and that is no fault. Where neither of them works, what lies between them is slow. Pure; must not know how a
bound is held over time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog.bounds import BY_STATE, BoundState
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
    finding: tuple[str, str] | None = None
    """Code and message, where it is a fault of the lane alone; what lanes share is in the catalogue."""


def _bound(
    lane: LaneFacts, state: BoundState, why: str, hint: str = "", *more: str, mark: str = "", sure: float
) -> Bound:
    """A verdict that rests on `more`, then on the lane's levels; what is a fault is a warning at least."""
    shares = (
        ("util", lane.util), ("memory", lane.memory), ("power", lane.power), ("clock", lane.clock),
        ("processors", lane.sm),
    )  # fmt: skip
    numbers = (*more, *(f"{name} {share:.0%}" for name, share in shares if share is not None))
    if lane.dips and lane.dip_s is not None:
        slow_end = _like(lane.dip_s, lane.dip_s)
        numbers = (*numbers, f"below 50% for {lane.dips:.0%} of a minute, p95 {slow_end}")
    mark = mark or "!" * BY_STATE[state].fault
    return Bound(state=state.value, mark=mark, why=why, hint=hint, confidence=sure, evidence=numbers)


def _fault(bound: Bound, code: str, message: str) -> Bound:
    """A verdict that is a finding about its lane alone."""
    return msgspec.structs.replace(bound, finding=(code, message))


def _like(value: float, like: float) -> str:
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


def _ill(lane: LaneFacts) -> Iterator[Bound]:
    """Heat or power keeps the clock down, by the driver's reasons or a low clock; memory runs out."""
    words = [word for word in lane.throttle or () if _is_cause(word, lane)]
    clock = lane.clock if lane.throttle is None else lane.clock_top
    low = not lane.throttle and clock is not None and clock <= LOW_CLOCK and (lane.util or 0.0) >= BUSY
    if words or low:
        cause = "thermal" if any(map(_is_heat, words)) else "power" if words else "clock"
        advice, hint, mark, code, name = _THROTTLED[cause]
        most = "" if lane.clock_max_hz is None else f" of {lane.clock_max_hz / MHZ:.0f}"
        now = "" if lane.clock_hz is None else f": {lane.clock_hz / MHZ:.0f}{most} MHz"
        at = "" if lane.clock is None else f", clock at {lane.clock:.0%} of max"
        found = (f"throttle {word}" for word in words)
        why, sure = f"{cause}{now}; {advice}", 0.95 if words else 0.6
        bound = _bound(lane, BoundState.THROTTLED, why, hint or advice, *found, mark=mark, sure=sure)
        yield _fault(bound, code, f"{name}{at}")
    used, trend, code = lane.memory or 0.0, lane.trend, "oom-forecast"
    if trend is not None and used >= OOM_FROM and trend.oom_s <= OOM_S:
        why = f"memory full in about {trend.oom_s:.0f}s at {trend.rate / GIB:+.2f}G/s"
        hint, rises = "look for what is kept; smaller batch", f"rises {trend.rate / GIB:.3f}G/s"
        mark = "!!" if trend.oom_s < OOM_SOON_S else ""
        bound = _bound(lane, BoundState.OOM_RISK, why, hint, rises, mark=mark, sure=trend.confidence)
        yield _fault(bound, code, why)
    if used >= NEARLY_FULL:
        why = f"memory {used:.0%} full"
        yield _fault(_bound(lane, BoundState.OOM_RISK, why, "smaller batch", sure=0.6), code, why)


_THROTTLED: Final = {
    "thermal": (
        "cool it", "raise the fan curve or lower power cap", "!!", "thermal-throttle", "thermal throttle",
    ),
    "power": ("raise its power cap", "", "", "power-throttle", "power throttle"),
    "clock": ("find what holds it down", "", "", "clock-low", "clock held down"),
}  # fmt: skip
"""Advice; hint and mark where these differ from it and from a warning; code and words of the finding."""


def _is_heat(word: str) -> bool:
    return "thermal" in word or "temp" in word


def _is_cause(word: str, lane: LaneFacts) -> bool:
    """Whether a flag matters: a power cap is everyday under load, unless it costs much clock."""
    if _is_heat(word) or "slowdown" in word or "brake" in word:
        return True
    return "power" in word and (lane.clock is None or lane.clock <= CAPPED_CLOCK)


WAIT_SHARE: Final = 0.15
"""Share of the time from which a wait is what holds it back."""
WAITING_UTIL: Final = 0.85
MUCH: Final = 1.1
"""A straggler by this many times the limit is critical."""


def _among_peers(lane: LaneFacts, limits: AnomalyLimits) -> Iterator[Bound]:
    """Its steps, or its rank's work, take well longer than its peers'; or it waits for a slower one."""
    cycle, step_s = lane.cycle, lane.step_s
    is_slow = lane.pace is not None and step_s is not None and lane.pace >= limits.slow_lane
    what, pace, own_s, owner = "step", lane.pace, step_s, ""
    if not is_slow:
        what, pace, own_s, owner = "update", cycle.pace, cycle.work_s, f" (rank {cycle.rank})"
    if pace is not None and own_s is not None and (is_slow or _is_waited_for(cycle, limits)):
        own, others = _like(own_s, own_s), _like(own_s / pace, own_s)
        why = f"{what} {own} against {others}{owner}"
        hint, found = (
            f"compare clock and PCIe width of {lane.name}",
            (f"{what} {own}", f"{pace:.2f}x the others"),
        )
        mark, waited = "!!" if pace >= MUCH * limits.slow_lane else "", f"{why}; the others wait"
        bound = _bound(lane, BoundState.STRAGGLER, waited, hint, *found, mark=mark, sure=0.9)
        yield _fault(bound, "straggler", f"straggler: {why}")
    waits, saw = cycle.share(Phase.SYNC), (lane.saw,) if lane.saw else ()
    other = "the others" if cycle.slowest is None else f"rank {cycle.slowest}"
    if waits is not None and waits >= WAIT_SHARE:
        sure = 0.9
    elif lane.util is None or lane.util > WAITING_UTIL or step_s is None or lane.slowest_s is None:
        return
    else:
        waits, sure = 1 - step_s / lane.slowest_s, 0.9 if saw else 0.86
        if lane.slowest_s < limits.slow_lane * step_s:
            return
    other = lane.slowest or other
    stated, hint = f"{waits:.0%} of each step waits for {other}", f"find out why {other} is slow"
    yield _bound(lane, BoundState.SYNC, stated, hint, stated, *saw, mark="!", sure=sure)


def _is_waited_for(cycle: Cycle, limits: AnomalyLimits) -> bool:
    """Whether the others wait for this rank: it works longer than they do, and hardly waits itself.

    What an exchange costs is in the waiting of each: who waits half as long as the others is waited for.
    """
    waits = cycle.share(Phase.SYNC)
    if cycle.pace is None or cycle.pace < limits.slow_lane or waits is None:
        return False
    # Its work is what is left of an update without its waits; the others' is less by the pace.
    return waits < max(WAIT_SHARE, (1 - (1 - waits) / cycle.pace) / 2)


HUNGRY: Final = 0.25
"""Filled share of the loader's queue at and below which it starves the lanes."""
MOST: Final = 0.5
"""Share of the time from which envs or inference are what the run waits for."""
LEARNING: Final = 0.6
"""The same of learning, which is what the time should go to."""
DRY: Final = 0.1
"""Filled share of the learner's queue at and below which it starves."""
BRIMFUL: Final = 0.9
"""And from which on the learner is what is slow."""
MORE_ACTORS: Final = "more actors or envs, or more epochs a batch"
MORE_LOADERS: Final = "more loader workers, or faster storage"


def _by_time(lane: LaneFacts) -> Iterator[Bound]:
    """What its time goes to, by phases, and what its queues show; a service learns nothing."""
    shares, learns = lane.cycle.shares, lane.of is not Of.SERVICE
    weights, waits, saves, loads, envs, acts, updates, estimates = (
        shares.get(kind.value, 0.0)
        for kind in (
            Phase.WEIGHTS, Phase.QUEUE_WAIT, Phase.CHECKPOINT, Phase.LOAD, Phase.ENV_WAIT, Phase.INFERENCE,
            Phase.UPDATE, Phase.ADVANTAGE,
        )
    )  # fmt: skip
    if weights >= WAIT_SHARE:
        hint = "send weights less often, in a smaller type, or over a faster way"
        yield _spends(
            lane, BoundState.WEIGHTS, f"{weights:.0%} of each update brings weights to the actors", hint
        )
    if learns and waits >= max(WAIT_SHARE, saves):
        stated = f"the learner waits {waits:.0%} of its time for experience"
        yield _spends(lane, BoundState.STARVED, stated, MORE_ACTORS)
    if lane.util is not None and lane.util >= FULL_UTIL:
        return
    # A reported wait is surer: a learner that keeps up with its actors has a dry queue.
    is_reported = Phase.QUEUE_WAIT.value in (*shares, *lane.cycle.coming)
    if lane.queue is not None and lane.queue <= DRY and not is_reported:
        stated = f"{lane.queue_text}: learning is faster than collecting"
        yield _spends(lane, BoundState.STARVED, stated, MORE_ACTORS)
    if lane.util is not None and lane.loader is not None and lane.loader <= HUNGRY:
        yield _spends(lane, BoundState.IO, lane.loader_text, MORE_LOADERS)
    if loads >= 2 * WAIT_SHARE:
        yield _spends(lane, BoundState.IO, f"{loads:.0%} of each update loads data", MORE_LOADERS)
    if saves >= WAIT_SHARE:
        stated, hint = f"{saves:.0%} of the time is spent saving", "save less often, or beside the training"
        if lane.is_fed:
            stated = f"{saves:.0%} of the time waits for checkpoints, which make room in replay"
            hint = "faster storage for checkpoints, or a larger table of replay"
        yield _spends(lane, BoundState.IO, stated, "; ".join(filter(None, (hint, lane.saves))))
    if envs >= MOST:
        hint = "more envs a worker, asynchronous envs, more cores"
        yield _spends(lane, BoundState.ENV, f"{envs:.0%} of the time waits for envs", hint)
    if acts >= MOST:
        hint = "larger batches of observations, compile or graphs"
        yield _spends(lane, BoundState.INFERENCE, f"{acts:.0%} of the time chooses actions", hint)
    learned = learns * (updates + estimates)
    if learned >= LEARNING or (lane.queue is not None and lane.queue >= BRIMFUL):
        stated = f"{lane.queue_text}: collecting is faster than learning"
        if learned >= LEARNING:
            stated = f"{learned:.0%} of the time learns"
        yield _spends(lane, BoundState.LEARNER, stated, "larger minibatches, fewer epochs, compile")


def _spends(lane: LaneFacts, state: BoundState, stated: str, hint: str) -> Bound:
    """A verdict by what the time goes to, surer where the device rests meanwhile."""
    rests, sure = ("", 0.7) if lane.util is None else (f", util {lane.util:.0%}", 0.85)
    so = "; it waits for data" if state is BoundState.IO else ""
    return _bound(lane, state, f"{stated}{rests}{so}", hint, stated, sure=sure)


def _by_device(lane: LaneFacts) -> Iterator[Bound]:
    """How busy the device is, with its power, its processors, its memory and the host's cores."""
    util, power, memory, core = lane.util, lane.power or 0.0, lane.memory or 0.0, lane.core or 0.0
    if util is None:
        return
    full, works = util >= FULL_UTIL, [f"at {power:.0%} power"] if power >= HARD_WORK else []
    if lane.sm is not None and lane.sm >= ACTIVE:
        works.append(f"{lane.sm:.0%} of its processors have work")
    if full and works:
        soon = f"; memory full in {duration(lane.trend.oom_s)}" if lane.trend is not None else ""
        yield _bound(lane, BoundState.COMPUTE, f"busy at full power{soon}", "", *works, sure=0.9)
    if util < IDLE:
        yield _bound(lane, BoundState.IDLE, "nothing runs here", sure=0.9)
        return
    if memory >= CROWDED:
        why, hint = (
            f"memory {memory:.0%} full, util {util:.0%}",
            "mixed precision or smaller activations make room",
        )
        yield _bound(lane, BoundState.MEMORY, why, hint, sure=0.6)
    small, late = full and lane.power is not None and power < HARD_WORK, core >= FULL_CORE
    if small or (late and util < RESTING):
        stated = f"util {util:.0%} while one core is at {core:.0%}: the host is late"
        if small:
            stated = f"util {util:.0%} at {power:.0%} of its power: small kernels"
        busiest, sure = (
            () if lane.core is None else (f"busiest core {core:.0%}",),
            0.8 if small and late else 0.5,
        )
        yield _bound(lane, BoundState.HOST, stated, "graphs, compile, or a bigger batch", *busiest, sure=sure)
    if lane.saw:
        hint, saw = "time the phases (env_wait, update, sync) to see for what it waits", lane.saw
        yield _bound(lane, BoundState.SYNC, f"{saw}; it waits in each", hint, saw, mark="!", sure=0.5)


def _undecided(lane: LaneFacts) -> Bound | None:
    """What is missing for a verdict: a device's signals, or a rank's phases; `None` where it sent none."""
    known = (("utilisation", lane.util), ("power limit", lane.power), ("memory", lane.memory))
    shares, hint = lane.cycle.shares, ""
    unseen = [kind.value for kind in (Phase.ENV_WAIT, Phase.INFERENCE) if kind.value not in shares]
    collects = shares.get(Phase.ROLLOUT.value, 0.0)
    if not lane.is_fresh:
        why = f"stale {lane.age_s:.0f}s"
    elif lane.of is Of.DEVICE:
        missing = [name for name, value in known if value is None]
        why = f"util {lane.util or 0.0:.0%}; no signal shows why"
        if missing:
            why = f"not received: {', '.join(missing)}"
    elif not shares:
        return None
    elif collects >= MOST and unseen:
        why = f"{collects:.0%} of the time collects; not reported: {', '.join(unseen)}"
        hint = f"time {' and '.join(unseen)} within the collecting phase"
    else:
        most = sorted(shares, key=lambda name: (-shares[name], name))[:2]
        why = "no phase takes most of the time: " + ", ".join(f"{name} {shares[name]:.0%}" for name in most)
        hint = "time what happens between the phases" if sum(shares.values()) < MOST else ""
    return _bound(lane, BoundState.UNKNOWN, why, hint, mark="?", sure=0.0)


def judge(lanes: Iterable[LaneFacts], limits: AnomalyLimits) -> dict[str, Bound]:
    """The first verdict that applies, by name; lanes that went silent abstain, ranks may have none."""
    found = {lane.name: next(_verdicts(lane, limits), None) for lane in lanes}
    return {name: bound for name, bound in found.items() if bound is not None}


def _verdicts(lane: LaneFacts, limits: AnomalyLimits) -> Iterator[Bound | None]:
    if lane.is_fresh:
        yield from _ill(lane)
        yield from _among_peers(lane, limits) if lane.of is not Of.SERVICE else ()
        yield from _by_time(lane)
        yield from _by_device(lane)
    yield _undecided(lane)


AT_WORK: Final = 0.8
"""Shares of the time in which learner and actors work, added up, below which what lies between them is slow:
who takes turns works all the time, together."""
_COLLECTING: Final = (BoundState.WEIGHTS.value, BoundState.ENV.value, BoundState.INFERENCE.value)
"""What makes those who collect slow."""


def explained(bounds: Mapping[str, Bound], facts: Mapping[str, LaneFacts]) -> dict[str, Bound]:
    """The same, where experience is missing with why, by what services beside the trainer do."""
    beside = {name: lane for name, lane in facts.items() if lane.of is Of.SERVICE}
    reported = (lane.cycle.share(Phase.ROLLOUT) for lane in beside.values())
    collects = [share for share in reported if share is not None]
    slow = next((name for name in beside if name in bounds and bounds[name].state in _COLLECTING), None)
    found = dict(bounds)
    for name, bound in bounds.items():
        waits = facts[name].cycle.share(Phase.QUEUE_WAIT)
        if bound.state != BoundState.STARVED.value:
            continue
        if slow is not None:
            hint = f"{slow} is {bounds[slow].state}: {bounds[slow].hint}"
            found[name] = msgspec.structs.replace(bound, hint=hint)
        elif collects and waits is not None:
            found[name] = _by_turns(bound, waits, collects)
    return found


def _by_turns(bound: Bound, waits: float, collects: list[float]) -> Bound:
    mean = sum(collects) / len(collects)
    each = f"actors collect {mean:.0%} of their time"
    if 1 - waits + sum(collects) < AT_WORK:
        hint = f"{each}: replay or the way to it is slow, or batches are small"
    elif mean >= 1 - WAIT_SHARE:
        hint = f"{each}: {bound.hint}"
    else:
        why = f"learner and actors take turns: it waits {waits:.0%} of its time, {each}"
        hint = "let actors collect further ahead (batch.ahead), or leave it so for fresh experience"
        return msgspec.structs.replace(bound, state=BoundState.SYNC.value, mark="", why=why, hint=hint)
    return msgspec.structs.replace(bound, hint=hint)


def judge_run(bounds: dict[str, Bound]) -> Bound | None:
    """What holds the run as a whole back: the wait at the barrier if there is one, else the worst lane."""
    waiting = [bound for bound in bounds.values() if bound.state == BoundState.SYNC.value]
    if waiting or not bounds:
        return waiting[0] if waiting else None
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
