"""Machines: lanes with what holds them back, worst first, and the host."""

import re
from typing import Final

import msgspec

from overwatch.catalog import Scope, of_scope
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.bounds import Bound as Verdict
from overwatch.diagnose.bounds import badness
from overwatch.diagnose.lanes import rank_of
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Anomaly, Bound, Host, Lane, Process, System
from overwatch.state.machines import Gauge, processes
from overwatch.state.run import RunState

GAUGE_LIMIT_S: Final = 50.0
"""A machine reading older than this is absent: ten times the age at which it reads as old."""
_OF_LANES: Final = frozenset(row.short for row in of_scope(Scope.GPU)) - {"throttle"}
_OF_HOST: Final = frozenset(row.short for row in of_scope(Scope.HOST))
"""Rows whose values are fields of the same name."""


def system_view(state: RunState, judged: Judged) -> System:
    """Lanes that report, worst first, then in natural order; the host; the run's bound."""
    tick = judged.assessment.tick
    ordered = sorted(state.lanes, key=lambda name: (badness(judged.bounds.get(name)), _natural(name)))
    return System(
        gpus=tuple(_lane(state, name, judged) for name in ordered),
        host=_host(state.host, tick) if state.host else None,
        bound=None if judged.bound is None else bound_view(judged.bound),
        idle_gpu_s=judged.assessment.watched.waste.of_all(),
    )


def bound_view(bound: Verdict) -> Bound:
    """A verdict as a view may show it."""
    return Bound(
        state=bound.state,
        why=safe(bound.why) or None,
        hint=safe(bound.hint) or None,
        confidence=bound.confidence,
        evidence=tuple(safe(item) for item in bound.evidence),
        mark=bound.mark,
    )


def lane_anomaly(judged: Judged, name: str | None) -> Anomaly | None:
    """How far a lane is from the others; `None` for one that is not known."""
    found = None if name is None else judged.lanes.get(name)
    return found and msgspec.structs.replace(found, reasons=tuple(map(safe, found.reasons)))


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key in which gpu2 comes before gpu10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((len(part), part) if part.isdigit() else (0, part) for part in parts)


def _is_fresh(gauge: Gauge, tick: int) -> bool:
    return (tick - gauge.stamp) / 1e9 <= GAUGE_LIMIT_S


def _fresh(readings: dict[str, Gauge], names: frozenset[str], tick: int) -> dict[str, float | None]:
    """Those of the readings that have a field of their name, as long as they are not too old."""
    found = ((name, gauge) for name, gauge in readings.items() if name in names)
    return {name: gauge.value for name, gauge in found if _is_fresh(gauge, tick)}


def _age_s(readings: dict[str, Gauge], tick: int) -> float | None:
    if not readings:
        return None
    return max(0.0, (tick - max(gauge.stamp for gauge in readings.values())) / 1e9)


def _history(readings: dict[str, Gauge], name: str) -> tuple[float | None, ...]:
    return tuple(readings[name].history.items) if name in readings else ()


def _lane(state: RunState, name: str, judged: Judged) -> Lane:
    tick, slow, rollups = (
        judged.assessment.tick,
        judged.assessment.watched.slow,
        judged.assessment.second.rollups,
    )
    readings, throttle = state.lanes[name], state.throttles.get(name)
    facts, rank = slow.facts.get(name), rank_of(state, name)
    is_known = throttle is not None and (tick - throttle.stamp) / 1e9 <= GAUGE_LIMIT_S
    lane = Lane(
        gpu_id=safe(name),
        uuid=safe_or_none(state.lane_ids.ids.get(name)),
        node=safe_or_none(state.lane_ids.nodes.get(name)),
        rank=state.lane_ranks.get(name),
        utilization_history=_history(readings, "utilization"),
        throttle=tuple(safe(reason) for reason in throttle.reasons) if throttle and is_known else (),
        oom_s=None if facts is None or facts.trend is None else facts.trend.oom_s,
        step_s=rollups.steps.get(name),
        update_s=None if rank is None else rollups.updates.get(rank),
        age_s=_age_s(readings, tick),
        bound=bound_view(judged.bounds[name]) if name in judged.bounds else None,
        anomaly=lane_anomaly(judged, name),
    )
    return msgspec.structs.replace(lane, **_fresh(readings, _OF_LANES, tick))


def _host(readings: dict[str, Gauge], tick: int) -> Host:
    host = Host(
        cpu_history=_history(readings, "cpu_utilization"),
        processes=tuple(
            Process(pid=one.pid, name=safe(one.name), cpu=one.cpu, ram_bytes=one.ram_bytes)
            for one, gauge in processes(readings)
            if _is_fresh(gauge, tick)
        ),
        age_s=_age_s(readings, tick),
    )
    return msgspec.structs.replace(host, **_fresh(readings, _OF_HOST, tick))
