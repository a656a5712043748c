"""What the drawer says of a lane, of a slot's seed, and of one line of the feed: everything that is known.

What is not known has no line. Must not know the box around it.
"""

from typing import assert_never

from overwatch.catalog import Stage
from overwatch.catalog.durations import duration
from overwatch.snapshot import Anomaly, Env, FeedLine, Lane, Snapshot, Spread
from overwatch.tui.context import Context, HostOf, Inspected, LaneOf, SlotOf
from overwatch.tui.grammar import (
    ChipSize,
    chip,
    clock,
    date,
    lane_word,
    operation,
    severity,
    short,
    status,
    status_counts,
)
from overwatch.tui.panels import alarm, detail
from overwatch.tui.text import Line, Role, Span, clean, fit, left, wrapped

_LABEL = 10
_WORST = 8
"""Envs of a lane that its detail names."""
_GIB = 1 << 30
Parts = list[tuple[str, str]]


def heading(of: Inspected) -> str:
    """The drawer's title."""
    match of:
        case LaneOf():
            return f"lane {clean(of.gpu_id)}"
        case SlotOf():
            return f"env {of.env_id} · {clean(of.slot)}"
        case HostOf():
            return "host"
        case FeedLine():
            return f"line · {severity(of.severity).text} · {clean(of.subsystem)}"
        case _:
            assert_never(of)


def content(snapshot: Snapshot, of: Inspected, width: int, ctx: Context) -> list[Line]:
    """Lines of `width` cells; long texts are wrapped at blanks."""
    match of:
        case LaneOf():
            return _lane(snapshot, of.gpu_id, width)
        case SlotOf():
            return _slot(snapshot, of, width, ctx)
        case HostOf():
            return _host(snapshot, width)
        case FeedLine():
            return _lines(_line(of, ctx), width)
        case _:
            assert_never(of)


def _lines(parts: Parts, width: int) -> list[Line]:
    lines: list[Line] = []
    for label, text in parts:
        for place, row in enumerate(wrapped(text, max(8, width - _LABEL)) if text else []):
            word = Span(left(label if place == 0 else "", _LABEL), Role.MUTED)
            lines.append(fit([word, Span(row)], width))
    return lines


def _host(snapshot: Snapshot, width: int) -> list[Line]:
    """CPU and memory, and the processes that take most of them."""
    host = snapshot.system.host
    if host is None:
        return [fit([Span("no readings of the host yet", Role.MUTED)], width)]
    used, total = host.ram_used_bytes, host.ram_total_bytes
    parts: Parts = []
    if host.cpu_utilization is not None:
        busiest = "" if host.cpu_busiest is None else f", busiest core {host.cpu_busiest:.0%}"
        parts.append(("cpu", f"{host.cpu_utilization:.0%}{busiest}"))
    if used is not None:
        parts.append(("ram", f"{used / _GIB:.1f}G" + ("" if total is None else f" of {total / _GIB:.1f}G")))
    lines = [*_lines(parts, width), fit([], width)]
    if not host.processes:
        text = "no process was seen: the trainer's exporter lists the busiest every 10 s"
        return [*lines, *(fit([Span(part, Role.MUTED)], width) for part in wrapped(text, width))]
    lines.append(fit([Span(f"{'pid':>8}  {'cpu':>6}  {'ram':>7}  busiest processes", Role.MUTED)], width))
    for one in host.processes:
        numbers = f"{one.pid:>8}  {one.cpu:>6.0%}  {one.ram_bytes / _GIB:>6.1f}G  "
        lines.append(fit([Span(numbers), Span(clean(one.name))], width))
    return lines


def _lane(snapshot: Snapshot, gpu_id: str, width: int) -> list[Line]:
    lane = next((one for one in snapshot.system.gpus if one.gpu_id == gpu_id), None)
    group = next((one for one in snapshot.board.groups if one.gpu_id == gpu_id), None)
    parts: Parts = []
    anomaly = lane.anomaly if lane is not None else None if group is None else group.anomaly
    if anomaly is not None:
        parts.append(("anomaly", _scored(anomaly)))
    if group is not None:
        parts.append(("envs", f"{group.n_envs:,}: {status_counts(group.counts)}"))
        parts.append(("return", _between(group.median_return, group.p10_return, group.p90_return)))
    if lane is None:
        readings = _lines([*parts, ("", "this lane has told no readings")], width)
    else:
        readings = [*_lines([*parts, *_readings(lane)], width), *alarm.lane_text(lane, width)]
    return [*readings, *_lines(_lives(snapshot, gpu_id), width)]


def _lives(snapshot: Snapshot, gpu_id: str) -> Parts:
    """What grows and is done on a lane, and its worst envs."""
    rolled = next((one for one in snapshot.aggregates.lanes if one.gpu_id == gpu_id), None)
    parts: Parts = []
    if rolled is not None and snapshot.run.slots_enabled:
        seeds = [f"{stage.glyph} {short(rolled.seed_census[stage.value])}" for stage in Stage
                 if stage.value in rolled.seed_census]  # fmt: skip
        parts.append(("seeds", "  ".join(seeds)))
    if rolled is not None:
        done = [f"{operation(name)} {share:.0%}" for name, share in rolled.actions.items()]
        parts.append(("actions", "  ".join(map(clean, done))))
    own = [env for env in snapshot.envs if env.gpu_id == gpu_id and env.status != "ok"]
    return [*parts, *(("worst" if place == 0 else "", _poor(env)) for place, env in enumerate(own[:_WORST]))]


def _poor(env: Env) -> str:
    """An env that is not OK, in a line."""
    reason = "".join(f": {clean(one)}" for one in env.anomaly.reasons[:1])
    return f"env {env.env_id} {status(env.status, compact=False).text} {env.anomaly.score:.1f}{reason}"


def _scored(anomaly: Anomaly) -> str:
    reasons = " · ".join(map(clean, anomaly.reasons)) or "as the others"
    return f"{anomaly.score:.1f}: {reasons}"


def _between(median: float | None, p10: float | None, p90: float | None) -> str:
    if median is None or p10 is None or p90 is None:
        return ""
    return f"median {median:+.2f}, p10 {p10:+.2f} to p90 {p90:+.2f}"


def _readings(lane: Lane) -> Parts:
    rank = "" if lane.rank is None else f"rank {lane.rank}"
    return [
        ("where", ", ".join(clean(word) for word in (lane.node, lane.uuid, rank) if word)),
        ("memory", _of(lane.memory_used_bytes, lane.memory_total_bytes, 1 / _GIB, "GiB")),
        ("", _text(lane.process_memory_bytes, "of it {:.1f} GiB by the trainer", 1 / _GIB)),
        ("power", _of(lane.power_w, lane.power_limit_w, 1.0, "W")),
        ("clock", _of(lane.clock_hz, lane.clock_max_hz, 1e-6, "MHz")),
        ("dips", _dips(lane)),
        ("heat", _text(lane.temperature_c, "{:.0f}°C")),
        ("pcie", _both(lane.pcie_receive_bytes_per_s, lane.pcie_transmit_bytes_per_s)),
        ("nvlink", _both(lane.nvlink_receive_bytes_per_s, lane.nvlink_transmit_bytes_per_s)),
        ("ecc", _text(lane.ecc_uncorrected, "{:.0f} uncorrected errors")),
        ("full in", "" if lane.oom_s is None else f"{duration(lane.oom_s)}, as its memory rises now"),
        ("step", _spread(lane.step_s)),
        ("update", _spread(lane.update_s)),
        ("age", _text(lane.age_s, "{:.1f}s")),
    ]


def _dips(lane: Lane) -> str:
    """How much of the newest minute it was less than half used, and for how long at a time."""
    length = "" if lane.dip_p95_s is None else f", p95 {_seconds(lane.dip_p95_s)}"
    return _text(lane.dip_share, "below 50% for {:.0%} of a minute") + length


def _seconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"p50 {_seconds(spread.p50)}, p95 {_seconds(spread.p95)}"


def _text(value: float | None, form: str, scale: float = 1.0) -> str:
    return "" if value is None else form.format(value * scale)


def _of(value: float | None, most: float | None, scale: float, unit: str) -> str:
    if value is None:
        return ""
    whole = "" if most is None else f" of {most * scale:,.0f}"
    return f"{value * scale:,.0f}{whole} {unit}"


def _both(receive: float | None, transmit: float | None) -> str:
    if receive is None or transmit is None:
        return ""
    return f"in {receive / 1e6:,.0f} MB/s, out {transmit / 1e6:,.0f} MB/s"


def _slot(snapshot: Snapshot, of: SlotOf, width: int, ctx: Context) -> list[Line]:
    """The seed as it is, and what became of it and of those before it, newest first."""
    env, known = detail.env_of(snapshot, of.env_id), detail.detail_of(snapshot, of.env_id)
    slot = None if env is None else env.slots.get(of.slot)
    lines = [fit([chip(of.slot, slot, ChipSize.FULL, dict(snapshot.run.blueprints))], width)]
    if slot is not None:
        lines += _lines(
            [
                ("blueprint", clean(slot.blueprint or "")),
                ("alpha", _text(slot.alpha, "{:.2f}")),
                ("age", "" if slot.age is None else f"{slot.age:,} steps in this stage"),
                ("gate", clean(slot.gate or "")),
                ("gradient", _text(slot.grad, "health {:.2f}")),
            ],
            width,
        )
    seen = [one for one in known.seed_events if one.slot == of.slot]
    for place, event in enumerate(seen):
        at = clock(event.time, ctx.zone, millis=False)
        label = Span(left("events" if place == 0 else "", _LABEL), Role.MUTED)
        said = f"{at} {clean(event.text)}  {clean(event.why)}"
        lines.append(fit([label, Span(said)], width))
    return lines


def _line(line: FeedLine, ctx: Context) -> Parts:
    """Every field of a line, whole."""
    ids = [
        ("env", "" if line.env_id is None else str(line.env_id)),
        ("lane", "" if line.gpu_id is None else lane_word(line.gpu_id, compact=False)),
        ("slot", clean(line.slot or "")),
        ("seed", clean(line.seed_id or "")),
    ]
    when = f"{date(line.time, ctx.zone)} {clock(line.time, ctx.zone, millis=True)}"
    fields = [(clean(name), clean(value)) for name, value in line.fields.items()]
    return [("time", when), ("what", clean(line.kind)), ("message", clean(line.message)), *ids, *fields]
