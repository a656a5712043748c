"""The drawer: a box at the right of the board, or the full screen, around the detail of what is open.

Owns what it shows of a finding, a lane, a slot's seed, the host and one line of the feed; of an env `detail`
does. What is not known has no line; long texts are wrapped at blanks.
"""

from typing import assert_never

from overwatch.catalog import Stage
from overwatch.catalog.durations import duration
from overwatch.snapshot import FeedLine, Finding, Lane, Snapshot, Spread
from overwatch.tui.context import COMPACT_BELOW, Context, Frame, HostOf, Inspected, LaneOf, SlotOf
from overwatch.tui.grammar import (
    ChipSize,
    chip,
    clock,
    date,
    lane_word,
    operation,
    severity,
    short,
    sparkline,
    status,
    status_counts,
    zoned,
)
from overwatch.tui.panels import detail, growth
from overwatch.tui.panels.alarms import advice, subject
from overwatch.tui.text import (
    Line,
    Role,
    Span,
    blank,
    cells,
    clean,
    cut,
    fit,
    labelled,
    left,
    plain,
    rule,
    wrapped,
)

_WIDTH = 62
_LABEL = 10
_WORST = 8
"""Envs of a lane that its detail names."""
_GIB = 1 << 30
Parts = list[tuple[str, str]]


def width(ctx: Context) -> int:
    """Cells of the box; wider terminals share what they gain between board and box."""
    return _WIDTH + (ctx.width - COMPACT_BELOW) // 2


def box(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Exactly `rows` lines of the box's width."""
    wide = width(ctx)
    title, content = _opened(snapshot, wide - 3, ctx)
    shown, most = _window(content, rows - 2, ctx, wide - 3)
    name, edge = cut(title, wide - 5), Span("│", Role.MUTED)
    rest = Span(f" {'─' * (wide - 4 - cells(name))}┐", Role.MUTED)
    lines: list[Line] = [fit([Span("┌ ", Role.MUTED), Span(name, Role.TITLE), rest], wide)]
    lines += [(edge, Span(" "), *line, edge) for line in shown]
    lines.append((Span("└" + "─" * (wide - 2) + "┘", Role.MUTED),))
    return Frame(lines=lines, most_scroll=most)


def full(snapshot: Snapshot, ctx: Context, rows: int) -> Frame:
    """Title and exactly `rows - 1` lines, over the whole width."""
    title, content = _opened(snapshot, ctx.width, ctx, bound=True)
    shown, most = _window(content, rows - 1, ctx, ctx.width)
    return Frame(lines=[rule(title, [Span("Esc back", Role.MUTED)], ctx.width), *shown], most_scroll=most)


def written(snapshot: Snapshot, ctx: Context) -> str:
    """All of it as plain text, for the clipboard."""
    title, content = _opened(snapshot, max(_WIDTH, ctx.width), ctx)
    return "\n".join([title, *(plain(line).rstrip() for line in content)])


def _opened(snapshot: Snapshot, inner: int, ctx: Context, *, bound: bool = False) -> tuple[str, list[Line]]:
    """Title and lines of what is open; of an env how it was, where that is asked for."""
    ui, moment = ctx.ui, ctx.ui.past.shown
    if moment is not None:
        snapshot = moment.of(snapshot)
    if ui.inspected is not None:
        return _inspected(snapshot, ui.inspected, inner, ctx)
    if ui.alarm is not None:
        one = ui.alarm
        title = f"{severity(one.severity).text} · {subject(one.subject)} · {clean(one.code)}"
        return title, finding(snapshot, one, inner, ctx)
    if ui.env_id is None:
        return "", []
    make = detail.wide if inner == ctx.width else detail.narrow
    return _env_title(snapshot, ui.env_id, ctx, bound=bound), make(snapshot, ui.env_id, inner, ctx)


def _window(content: list[Line], rows: int, ctx: Context, inner: int) -> tuple[list[Line], int]:
    """The lines in sight; where some are not, the last one counts them."""
    over = len(content) - rows
    if over <= 0:
        return [*content, *[blank(inner)] * -over], 0
    most = over + 1
    at = min(ctx.ui.scroll, most)
    shown = content[at : at + rows - 1]
    below = len(content) - at - len(shown)
    key = "j" if inner == ctx.width else "PgDn"
    note = f"{below} more lines: {key}" if below else "the end"
    shown += [blank(inner)] * (rows - 1 - len(shown))
    return [*shown, fit([Span(f" {note}" if inner == ctx.width else note, Role.MUTED)], inner)], most


def _env_title(snapshot: Snapshot, env_id: int, ctx: Context, *, bound: bool) -> str:
    env, known = detail.env_of(snapshot, env_id), detail.detail_of(snapshot, env_id)
    words = [f"env {env_id}"]
    if (moment := ctx.ui.past.shown) is not None:
        ago = duration(max(0.0, snapshot.time - moment.time))
        words.append(f"{clock(moment.time, ctx.zone, millis=False)}, {ago} ago")
    if env is not None:
        lane = [] if env.gpu_id is None else [lane_word(env.gpu_id, compact=False)]
        if bound and lane and known.bound is not None:
            lane[0] += f" {clean(known.bound.state)}"
        words += [*lane, f"{status(env.status, compact=False).text} {env.anomaly.score:.1f}"]
    if known.rank is not None and known.num_envs is not None:
        tens, ones = known.rank % 100, known.rank % 10
        ending = "th" if tens in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(ones, "th")
        words.append(f"{known.rank:,}{ending} of {known.num_envs:,}")
    return " · ".join(words)


def finding(snapshot: Snapshot, finding: Finding, width: int, ctx: Context) -> list[Line]:
    """Lines of `width` cells; long texts are wrapped at blanks."""
    since = max(0.0, snapshot.time + ctx.waited_s - finding.since)
    ago = f"{duration(since)} ago" if since >= 1 else "just now"
    if finding.cleared_at is not None:
        ago = f"cleared after {duration(max(0.0, finding.cleared_at - finding.since))}"
    elif finding.ended_at is not None:
        ago = f"open for {duration(max(0.0, finding.ended_at - finding.since))} when the run ended"
    parts = [
        ("what", clean(finding.message)),
        ("when", f"{ago}, since {zoned(finding.since, ctx.zone)}"),
        *advice(finding),
    ]
    lines = labelled(parts, _LABEL, width)
    about = finding.subject
    lane = next(
        (lane for lane in snapshot.system.gpus if about.scope == "gpu" and lane.gpu_id == about.id), None
    )
    if lane is not None:
        lines += lane_text(lane, width)
    reading = snapshot.policy.get(about.id or "") if about.scope == "policy" else None
    if reading is not None:
        limit = "" if reading.limit is None else f"   limit {clean(reading.limit.text)}"
        bars = sparkline(reading.history, 10, reading.scale)
        value = [Span(left("value", _LABEL), Role.MUTED), Span(f"{clean(reading.text)}{limit}")]
        trend = [Span(left("trend", _LABEL), Role.MUTED), *bars, Span("  last 10 updates", Role.MUTED)]
        lines += [fit(value, width), fit(trend, width)]
    return lines


def lane_text(lane: Lane, width: int) -> list[Line]:
    """What holds a lane back, and how its utilisation went."""
    lines: list[Line] = []
    if (bound := lane.bound) is not None:
        sure = "" if not bound.confidence else f", confidence {bound.confidence:.2f}"
        parts = [
            ("bound", f"{clean(bound.state)} {clean(bound.mark)}".rstrip() + sure),
            ("why", clean(bound.why or "")),
            ("hint", clean(bound.hint or "")),
            ("evidence", " · ".join(map(clean, bound.evidence))),
        ]
        lines += labelled(parts, _LABEL, width)
    if lane.utilization_history:
        bars = sparkline(lane.utilization_history, 10, (0.0, 1.0))
        now = "" if lane.utilization is None else f"{lane.utilization:.0%}  "
        lines.append(fit([Span(left("util", _LABEL), Role.MUTED), Span(now), *bars], width))
    if lane.throttle:
        lines += labelled([("throttle", ", ".join(map(clean, lane.throttle)))], _LABEL, width)
    return lines


def _inspected(snapshot: Snapshot, of: Inspected, width: int, ctx: Context) -> tuple[str, list[Line]]:
    """Title, and lines of `width` cells; long texts are wrapped at blanks."""
    match of:
        case LaneOf():
            return f"lane {clean(of.gpu_id)}", _lane(snapshot, of.gpu_id, width)
        case SlotOf():
            return f"env {of.env_id} · {clean(of.slot)}", _slot(snapshot, of, width, ctx)
        case HostOf():
            return "host", _host(snapshot, width)
        case FeedLine():
            title = f"line · {severity(of.severity).text} · {clean(of.subsystem)}"
            return title, labelled(_line(of, ctx), _LABEL, width)
        case _:
            assert_never(of)


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
    lines = [*labelled(parts, _LABEL, width), fit([], width)]
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
        reasons = " · ".join(map(clean, anomaly.reasons)) or "as the others"
        parts.append(("anomaly", f"{anomaly.score:.1f}: {reasons}"))
    if group is not None:
        parts.append(("envs", f"{group.n_envs:,}: {status_counts(group.counts)}"))
        median, p10, p90 = group.median_return, group.p10_return, group.p90_return
        if median is not None and p10 is not None and p90 is not None:
            parts.append(("return", f"median {median:+.2f}, p10 {p10:+.2f} to p90 {p90:+.2f}"))
    if lane is None:
        readings = labelled([*parts, ("", "this lane has sent no readings")], _LABEL, width)
    else:
        readings = [*labelled([*parts, *_readings(lane)], _LABEL, width), *lane_text(lane, width)]
    return [*readings, *labelled(_lives(snapshot, gpu_id), _LABEL, width)]


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
    for place, env in enumerate(own[:_WORST]):
        reason = "".join(f": {clean(one)}" for one in env.anomaly.reasons[:1])
        text = f"env {env.env_id} {status(env.status, compact=False).text} {env.anomaly.score:.1f}{reason}"
        parts.append(("" if place else "worst", text))
    return parts


def _readings(lane: Lane) -> Parts:
    rank = "" if lane.rank is None else f"rank {lane.rank}"
    dips = "" if lane.dip_p95_s is None else f", p95 {_seconds(lane.dip_p95_s)}"
    return [
        ("where", ", ".join(clean(word) for word in (lane.node, lane.uuid, rank) if word)),
        ("memory", _of(lane.memory_used_bytes, lane.memory_total_bytes, 1 / _GIB, "GiB")),
        ("", _text(lane.process_memory_bytes, "of it {:.1f} GiB by the trainer", 1 / _GIB)),
        ("power", _of(lane.power_w, lane.power_limit_w, 1.0, "W")),
        ("clock", _of(lane.clock_hz, lane.clock_max_hz, 1e-6, "MHz")),
        ("dips", _text(lane.dip_share, "below 50% for {:.0%} of a minute") + dips),
        ("heat", _text(lane.temperature_c, "{:.0f}°C")),
        ("pcie", _both(lane.pcie_receive_bytes_per_s, lane.pcie_transmit_bytes_per_s)),
        ("nvlink", _both(lane.nvlink_receive_bytes_per_s, lane.nvlink_transmit_bytes_per_s)),
        ("ecc", _text(lane.ecc_uncorrected, "{:.0f} uncorrected errors")),
        ("full in", "" if lane.oom_s is None else f"{duration(lane.oom_s)}, as its memory rises now"),
        ("step", _spread(lane.step_s)),
        ("update", _spread(lane.update_s)),
        ("age", _text(lane.age_s, "{:.1f}s")),
    ]


def _seconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _spread(spread: Spread | None) -> str:
    return "" if spread is None else f"p50 {_seconds(spread.p50)}, p95 {_seconds(spread.p95)}"


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
        parts = [
            ("blueprint", clean(slot.blueprint or "")),
            ("alpha", _text(slot.alpha, "{:.2f}")),
            ("age", _text(slot.age, "{:,.0f} steps in this stage")),
            ("gate", clean(slot.gate or "")),
            ("gradient", _text(slot.grad, "health {:.2f}")),
            ("adds", growth.of_slot(known.slots.get(of.slot, {}))),
        ]
        lines += labelled(parts, _LABEL, width)
    seen = [one for one in known.seed_events if one.slot == of.slot]
    for place, event in enumerate(seen):
        at = clock(event.time, ctx.zone, millis=False)
        label = Span(left("events" if place == 0 else "", _LABEL), Role.MUTED)
        happened = f"{at} {clean(event.text)}  {clean(event.why)}"
        lines.append(fit([label, Span(happened)], width))
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
