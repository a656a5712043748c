"""What the device itself says: heat, power, memory, work, rest. Pure."""

from typing import Final

from overwatch.catalog.bounds import BoundState
from overwatch.catalog.durations import duration
from overwatch.diagnose.bounds.bound import Bound, evidence
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.limits import AnomalyLimits

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
    """Heat or power keeps the clock down by the driver's reasons; a low clock tells where it gives none."""
    words = [word for word in lane.throttle or () if _is_cause(word, lane)]
    silent = lane.throttle is None
    low = silent and lane.clock is not None and lane.clock <= LOW_CLOCK and (lane.util or 0.0) >= BUSY
    if not words and not low:
        return None
    cause = "thermal" if any(_is_heat(word) for word in words) else "power" if words else "clock"
    clock = "" if lane.clock_hz is None else f"{lane.clock_hz / MHZ:.0f}"
    most = "" if lane.clock_max_hz is None else f" of {lane.clock_max_hz / MHZ:.0f}"
    advice = {"thermal": "cool it", "power": "raise its power cap", "clock": "find what holds it down"}[cause]
    said = f"{cause}: {clock}{most} MHz; {advice}" if clock else f"{cause}; {advice}"
    return Bound(
        state=BoundState.THROTTLED.value,
        mark="!!" if cause == "thermal" else "!",
        why=said,
        hint="raise the fan curve or lower power cap" if cause == "thermal" else advice,
        confidence=0.95 if words else 0.6,
        evidence=evidence(lane, *(f"throttle {word}" for word in words)),
    )


def oom_risk(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Memory is nearly full, or will be soon if its peaks go on rising."""
    if lane.memory is None:
        return None
    trend = lane.trend if lane.memory >= OOM_FROM else None
    if trend is not None and trend.oom_s <= OOM_S:
        return Bound(
            state=BoundState.OOM_RISK.value,
            mark="!!" if trend.oom_s < OOM_SOON_S else "!",
            why=f"memory full in about {trend.oom_s:.0f}s at {trend.rate / GIB:+.2f}G/s",
            hint="look for what is kept; smaller batch",
            confidence=trend.confidence,
            evidence=evidence(lane, f"rises {trend.rate / GIB:.3f}G/s"),
        )
    if lane.memory < NEARLY_FULL:
        return None
    return Bound(
        state=BoundState.OOM_RISK.value, mark="!", why=f"memory {lane.memory:.0%} full", hint="smaller batch",
        confidence=0.6, evidence=evidence(lane),
    )  # fmt: skip


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
    return Bound(
        state=BoundState.COMPUTE.value, why="busy at full power" + slow, confidence=0.9,
        evidence=evidence(lane, *works),
    )  # fmt: skip


def memory_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Its memory is taken, so that a larger batch does not fit, and it is not busy."""
    if lane.memory is None or lane.util is None or lane.memory < CROWDED or lane.util < IDLE:
        return None
    return Bound(
        state=BoundState.MEMORY.value, why=f"memory {lane.memory:.0%} full, util {lane.util:.0%}",
        hint="mixed precision or smaller activations make room", confidence=0.6, evidence=evidence(lane),
    )  # fmt: skip


def host_bound(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Kernels run all the time and draw little, or it rests while one core is full: the host is late."""
    if lane.util is None or lane.util < IDLE:
        return None
    full = lane.core is not None and lane.core >= FULL_CORE
    core = () if lane.core is None else (f"busiest core {lane.core:.0%}",)
    small = lane.util >= FULL_UTIL and lane.power is not None and lane.power < HARD_WORK
    if not small and not (full and lane.util < RESTING):
        return None
    said = (
        f"util {lane.util:.0%} at {lane.power or 0.0:.0%} of its power: small kernels"
        if small
        else f"util {lane.util:.0%} while one core is at {lane.core or 0.0:.0%}: the host is late"
    )
    return Bound(
        state=BoundState.HOST.value, why=said, hint="graphs, compile, or a bigger batch",
        confidence=0.8 if small and full else 0.5, evidence=evidence(lane, *core),
    )  # fmt: skip


def idle(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """Nothing runs on it."""
    if lane.util is None or lane.util >= IDLE:
        return None
    return Bound(
        state=BoundState.IDLE.value, why="nothing runs here", confidence=0.9, evidence=evidence(lane)
    )


def unknown(lane: LaneFacts, _limits: AnomalyLimits) -> Bound | None:
    """No rule can tell; it says what is missing."""
    state = BoundState.UNKNOWN.value
    if not lane.is_fresh:
        return Bound(state=state, mark="?", why=f"stale {lane.age_s:.0f}s", confidence=0.0)
    known = (("utilisation", lane.util), ("power limit", lane.power), ("memory", lane.memory))
    missing = [name for name, value in known if value is None]
    said = (
        f"not told: {', '.join(missing)}" if missing else f"util {lane.util or 0.0:.0%}; no signal says why"
    )
    return Bound(state=state, mark="?", why=said, confidence=0.0, evidence=evidence(lane))


def _is_heat(word: str) -> bool:
    return "thermal" in word or "temp" in word


def _is_cause(word: str, lane: LaneFacts) -> bool:
    """Whether a flag matters: a power cap is everyday under load, unless it costs much clock."""
    if _is_heat(word) or "slowdown" in word or "brake" in word:
        return True
    return "power" in word and (lane.clock is None or lane.clock <= CAPPED_CLOCK)
