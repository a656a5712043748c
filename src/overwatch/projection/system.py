"""Machines: lanes with what holds them back, worst first, and the host."""

import re
from typing import Final

from overwatch.diagnose.assess import Judged
from overwatch.diagnose.bounds import Bound as Verdict
from overwatch.diagnose.bounds import badness
from overwatch.diagnose.lane_signals import Spread
from overwatch.diagnose.lanes import rank_of
from overwatch.projection.rows import lane_anomaly
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Bound, Host, Lane, Process, System
from overwatch.snapshot import Spread as SpreadView
from overwatch.state.machines import Gauge, processes
from overwatch.state.run import RunState

GAUGE_LIMIT_S: Final = 50.0
"""A machine reading older than this is absent: ten times the age at which it reads as old."""


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


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key in which gpu2 comes before gpu10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((len(part), part) if part.isdigit() else (0, part) for part in parts)


def _processes(readings: dict[str, Gauge], tick: int) -> tuple[Process, ...]:
    """The busiest, as long as they are not too old."""
    return tuple(
        Process(pid=one.pid, name=safe(one.name), cpu=one.cpu, ram_bytes=one.ram_bytes)
        for one, gauge in processes(readings)
        if (tick - gauge.stamp) / 1e9 <= GAUGE_LIMIT_S
    )


def _fresh(readings: dict[str, Gauge], name: str, tick: int) -> float | None:
    gauge = readings.get(name)
    if gauge is None or (tick - gauge.stamp) / 1e9 > GAUGE_LIMIT_S:
        return None
    return gauge.value


def _age_s(readings: dict[str, Gauge], tick: int) -> float | None:
    if not readings:
        return None
    return max(0.0, (tick - max(gauge.stamp for gauge in readings.values())) / 1e9)


def _history(readings: dict[str, Gauge], name: str) -> tuple[float | None, ...]:
    return tuple(readings[name].history.items) if name in readings else ()


def _lane(state: RunState, name: str, judged: Judged) -> Lane:
    tick, slow = judged.assessment.tick, judged.assessment.watched.slow
    readings, throttle = state.lanes[name], state.throttles.get(name)
    trend, rank = slow.past.memory.get(name), rank_of(state, name)
    is_known = throttle is not None and (tick - throttle.stamp) / 1e9 <= GAUGE_LIMIT_S
    return Lane(
        gpu_id=safe(name),
        uuid=safe_or_none(state.lane_ids.ids.get(name)),
        node=safe_or_none(state.lane_ids.nodes.get(name)),
        rank=state.lane_ranks.get(name),
        utilization=_fresh(readings, "utilization", tick),
        sm_activity=_fresh(readings, "sm_activity", tick),
        dip_share=_fresh(readings, "dip_share", tick),
        dip_p95_s=_fresh(readings, "dip_p95_s", tick),
        utilization_history=_history(readings, "utilization"),
        memory_used_bytes=_fresh(readings, "memory_used_bytes", tick),
        memory_total_bytes=_fresh(readings, "memory_total_bytes", tick),
        temperature_c=_fresh(readings, "temperature_c", tick),
        power_w=_fresh(readings, "power_w", tick),
        power_limit_w=_fresh(readings, "power_limit_w", tick),
        clock_hz=_fresh(readings, "clock_hz", tick),
        clock_max_hz=_fresh(readings, "clock_max_hz", tick),
        throttle=tuple(safe(reason) for reason in throttle.reasons) if throttle and is_known else (),
        process_memory_bytes=_fresh(readings, "process_memory_bytes", tick),
        pcie_receive_bytes_per_s=_fresh(readings, "pcie_receive_bytes_per_s", tick),
        pcie_transmit_bytes_per_s=_fresh(readings, "pcie_transmit_bytes_per_s", tick),
        nvlink_receive_bytes_per_s=_fresh(readings, "nvlink_receive_bytes_per_s", tick),
        nvlink_transmit_bytes_per_s=_fresh(readings, "nvlink_transmit_bytes_per_s", tick),
        ecc_uncorrected=_fresh(readings, "ecc_uncorrected", tick),
        oom_s=None if trend is None else trend.oom_s,
        step_s=_spread(slow.steps.get(name)),
        update_s=None if rank is None else _spread(slow.updates.get(rank)),
        age_s=_age_s(readings, tick),
        bound=bound_view(judged.bounds[name]) if name in judged.bounds else None,
        anomaly=lane_anomaly(judged, name),
    )


def _spread(spread: Spread | None) -> SpreadView | None:
    return None if spread is None else SpreadView(p50=spread.p50, p95=spread.p95)


def _host(readings: dict[str, Gauge], tick: int) -> Host:
    return Host(
        cpu_utilization=_fresh(readings, "cpu_utilization", tick),
        cpu_busiest=_fresh(readings, "cpu_busiest", tick),
        cpu_history=_history(readings, "cpu_utilization"),
        ram_used_bytes=_fresh(readings, "ram_used_bytes", tick),
        ram_total_bytes=_fresh(readings, "ram_total_bytes", tick),
        disk_used_bytes=_fresh(readings, "disk_used_bytes", tick),
        disk_total_bytes=_fresh(readings, "disk_total_bytes", tick),
        disk_read_bytes_per_s=_fresh(readings, "disk_read_bytes_per_s", tick),
        disk_write_bytes_per_s=_fresh(readings, "disk_write_bytes_per_s", tick),
        network_bytes_per_s=_fresh(readings, "network_bytes_per_s", tick),
        loader_depth=_fresh(readings, "loader_depth", tick),
        loader_capacity=_fresh(readings, "loader_capacity", tick),
        queue_depth=_fresh(readings, "queue_depth", tick),
        queue_capacity=_fresh(readings, "queue_capacity", tick),
        processes=_processes(readings, tick),
        age_s=_age_s(readings, tick),
    )
