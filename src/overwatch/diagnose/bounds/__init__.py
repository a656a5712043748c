"""What holds each lane back: small rules in an explicit list, the first that applies speaks.

A rule says what, why, what to do, how sure it is and from which evidence. Where the signals that a verdict
needs are missing the lane is `unknown`, and says which. Pure; must not know how a bound is held over time.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from overwatch.diagnose.lanes import FRESH_S, LaneFacts
from overwatch.diagnose.limits import AnomalyLimits

BUSY: Final = 0.6
"""Utilisation from which a low clock means something."""
FULL_UTIL: Final = 0.9
HARD_WORK: Final = 0.6
"""Share of the power limit from which a busy GPU is truly computing."""
IDLE: Final = 0.05
LOW_CLOCK: Final = 0.7
CAPPED_CLOCK: Final = 0.8
HUNGRY: Final = 0.25
"""Filled share of the loader's queue at and below which it starves the lanes."""
WAITING_UTIL: Final = 0.85
NEARLY_FULL: Final = 0.97
CROWDED: Final = 0.92
OOM_S: Final = 300.0
OOM_SOON_S: Final = 60.0
OOM_FROM: Final = 0.6
"""Used share below which a rise is a start, not a leak."""
WAIT_SHARE: Final = 0.15
SAWTOOTH: Final = 0.4
MHZ: Final = 1e6
GIB: Final = 1 << 30


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict about one lane, or about all."""

    state: str
    mark: str = ""
    """`!!` critical, `!` warning, `?` abstains, none = as it should be."""
    why: str = ""
    hint: str = ""
    confidence: float
    evidence: tuple[str, ...] = ()


Rule: TypeAlias = Callable[[LaneFacts, AnomalyLimits], Bound | None]


def throttled(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Heat or power keeps the clock down: by its flags, or by a low clock under load."""
    words = [word for word in lane.throttle or () if _is_cause(word, lane)]
    low = lane.clock is not None and lane.clock <= LOW_CLOCK and (lane.util or 0.0) >= BUSY
    if not words and not low:
        return None
    cause = "thermal" if any(_is_heat(word) for word in words) else "power" if words else "clock"
    clock = "" if lane.clock_hz is None else f"{lane.clock_hz / MHZ:.0f}"
    most = "" if lane.clock_max_hz is None else f" of {lane.clock_max_hz / MHZ:.0f}"
    advice = {"thermal": "cool it", "power": "raise its power cap", "clock": "find what holds it down"}[cause]
    said = f"{cause}: {clock}{most} MHz; {advice}" if clock else f"{cause}; {advice}"
    return Bound(
        state="THROTTLED",
        mark="!!" if cause == "thermal" else "!",
        why=said,
        hint="raise the fan curve or lower power cap" if cause == "thermal" else advice,
        confidence=0.95 if words else 0.6,
        evidence=_evidence(lane, *(f"throttle {word}" for word in words)),
    )


def oom_risk(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Memory is nearly full, or will be soon if it goes on rising."""
    if lane.memory is None:
        return None
    left_s = lane.oom_s if lane.memory >= OOM_FROM else None
    if left_s is not None and left_s <= OOM_S:
        soon = left_s < OOM_SOON_S
        return Bound(
            state="OOM-RISK",
            mark="!!" if soon else "!",
            why=f"memory full in about {left_s:.0f}s at {(lane.memory_rate or 0.0) / GIB:+.2f}G/s",
            hint="look for what is kept; smaller batch",
            confidence=0.8,
            evidence=_evidence(lane),
        )
    if lane.memory < NEARLY_FULL:
        return None
    return Bound(
        state="OOM-RISK", mark="!", why=f"memory {lane.memory:.0%} full", hint="smaller batch",
        confidence=0.6, evidence=_evidence(lane),
    )  # fmt: skip


def straggler(lane: LaneFacts, limits: AnomalyLimits) -> Bound | None:
    """Its steps take well longer than those of the other lanes of its kind."""
    if lane.pace is None or lane.pace < limits.slow_lane or lane.step_s is None:
        return None
    own, others = (_duration(value, lane.step_s) for value in (lane.step_s, lane.step_s / lane.pace))
    return Bound(
        state="STRAGGLER",
        mark="!!" if lane.pace >= 1.1 * limits.slow_lane else "!",
        why=f"step {own} against {others}; the others wait",
        hint=f"compare clock and PCIe width of {lane.name}",
        confidence=0.9,
        evidence=_evidence(lane, f"step {own}"),
    )


def sync_bound(lane: LaneFacts, limits: AnomalyLimits) -> Bound | None:
    """It waits for a slower lane, or for the others at a barrier."""
    if lane.sync_phase is not None and lane.sync_phase >= WAIT_SHARE:
        return _sync(lane, lane.sync_phase, "the others" if lane.slowest is None else lane.slowest, 0.9)
    idle_enough = lane.util is not None and lane.util <= WAITING_UTIL
    if not idle_enough or lane.step_s is None or lane.slowest is None or lane.slowest_s is None:
        return None
    if lane.slowest_s < limits.slow_lane * lane.step_s:
        return None
    sawtooth = lane.swing is not None and lane.swing >= SAWTOOTH
    return _sync(lane, 1 - lane.step_s / lane.slowest_s, lane.slowest, 0.9 if sawtooth else 0.86)


def io_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """The data loader runs dry, or its phase takes long, while the lane has nothing to do."""
    if lane.util is None or lane.util >= FULL_UTIL:
        return None
    dry = lane.loader is not None and lane.loader <= HUNGRY
    waits = lane.io_phase is not None and lane.io_phase >= 2 * WAIT_SHARE
    if not dry and not waits:
        return None
    said = lane.loader_text if dry else f"{lane.io_phase or 0.0:.0%} of each update loads data"
    return Bound(
        state="IO-BOUND", mark="!", why=f"{said}, util {lane.util:.0%}; it waits for data",
        hint="more loader workers, or faster storage", confidence=0.85, evidence=_evidence(lane, said),
    )  # fmt: skip


def compute_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Busy, and drawing the power of real work: as it should be."""
    if lane.util is None or lane.power is None or lane.util < FULL_UTIL or lane.power < HARD_WORK:
        return None
    return Bound(state="COMPUTE-BOUND", why="busy at full power", confidence=0.9, evidence=_evidence(lane))


def memory_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Its memory is taken, so that a larger batch does not fit, and it is not busy."""
    if lane.memory is None or lane.util is None or lane.memory < CROWDED or lane.util < IDLE:
        return None
    return Bound(
        state="MEMORY-BOUND", why=f"memory {lane.memory:.0%} full, util {lane.util:.0%}",
        hint="mixed precision or smaller activations make room", confidence=0.6, evidence=_evidence(lane),
    )  # fmt: skip


def host_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Kernels run all the time and draw little: they are small, and the host launches them one by one."""
    if lane.util is None or lane.power is None or lane.util < FULL_UTIL or lane.power >= HARD_WORK:
        return None
    return Bound(
        state="HOST-BOUND", why=f"util {lane.util:.0%} at {lane.power:.0%} of its power: small kernels",
        hint="graphs, compile, or a bigger batch", confidence=0.5, evidence=_evidence(lane),
    )  # fmt: skip


def idle(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Nothing runs on it."""
    if lane.util is None or lane.util >= IDLE:
        return None
    return Bound(state="idle", why="nothing runs here", confidence=0.9, evidence=_evidence(lane))


def unknown(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """No rule can tell; it says what is missing."""
    if lane.age_s > FRESH_S:
        return Bound(state="unknown", mark="?", why=f"stale {lane.age_s:.0f}s", confidence=0.0)
    missing = [
        name
        for name, value in (("utilisation", lane.util), ("power limit", lane.power), ("memory", lane.memory))
        if value is None
    ]
    said = (
        f"not told: {', '.join(missing)}" if missing else f"util {lane.util or 0.0:.0%}; no signal says why"
    )
    return Bound(state="unknown", mark="?", why=said, confidence=0.0, evidence=_evidence(lane))


RULES: Final[tuple[Rule, ...]] = (
    throttled, oom_risk, straggler, sync_bound, io_bound, compute_bound, memory_bound, host_bound, idle,
    unknown,
)  # fmt: skip


def judge_lanes(lanes: Iterable[LaneFacts], limits: AnomalyLimits) -> dict[str, Bound]:
    """The verdict of the first rule that applies, by lane; lanes that went silent abstain."""
    return {lane.name: _judge(lane, limits) for lane in lanes}


def _judge(lane: LaneFacts, limits: AnomalyLimits) -> Bound:
    rules = (unknown,) if lane.age_s > FRESH_S else RULES
    found = (rule(lane, limits) for rule in rules)
    return next(bound for bound in found if bound is not None)


def judge_run(bounds: dict[str, Bound]) -> Bound | None:
    """What holds the run as a whole back: the wait at the barrier if there is one, else the worst lane."""
    if not bounds:
        return None
    waiting = [name for name in bounds if bounds[name].state == "SYNC-BOUND"]
    if waiting:
        return bounds[waiting[0]]
    worst = min(bounds, key=lambda name: badness(bounds[name]))
    same = sum(bound.state == bounds[worst].state for bound in bounds.values())
    why = f"{worst}: {bounds[worst].why}" if len(bounds) == 1 else f"{same} of {len(bounds)} lanes"
    return msgspec.structs.replace(bounds[worst], why=why)


def badness(bound: Bound) -> int:
    """Place in the order of lanes; smaller is worse. A lane that went silent comes before mere warnings."""
    if bound.mark == "?":
        return 1 if bound.why.startswith("stale") else 4
    return {"!!": 0, "!": 2}.get(bound.mark, 3)


def _duration(value: float, like: float) -> str:
    """A duration as shown, in the unit that suits `like`."""
    return f"{value:.2f}s" if like >= 1 else f"{value * 1000:.3g}ms"


def _sync(lane: LaneFacts, share: float, other: str, confidence: float) -> Bound:
    return Bound(
        state="SYNC-BOUND", mark="!", why=f"{share:.0%} of each step waits for {other}",
        hint=f"find out why {other} is slow", confidence=confidence, evidence=_evidence(lane),
    )  # fmt: skip


def _is_heat(word: str) -> bool:
    return "thermal" in word or "temp" in word


def _is_cause(word: str, lane: LaneFacts) -> bool:
    """Whether a flag matters: a power cap is everyday under load, unless it costs much clock."""
    if _is_heat(word) or "slowdown" in word or "brake" in word:
        return True
    return "power" in word and (lane.clock is None or lane.clock <= CAPPED_CLOCK)


def _evidence(lane: LaneFacts, *more: str) -> tuple[str, ...]:
    shares = (("util", lane.util), ("memory", lane.memory), ("power", lane.power), ("clock", lane.clock))
    return (*more, *(f"{name} {share:.0%}" for name, share in shares if share is not None))
