"""System: one row a lane with what holds it back, the host, the telemetry's own lag; then services.

Services never take a row from the panels that are always there. Must not know what the words mean.
"""

from collections.abc import Sequence
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Bound, FeedLine, Host, Lane, Link, Service, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, number, short, sparkline
from overwatch.tui.text import Line, Role, Span, clean, cut_middle, fit, left, right, rule, spread, width_of

GIB = 1 << 30
_FULL = (0.0, 1.0)
_MARKS = {"!!": Role.CRIT, "!": Role.WARN, "?": Role.MUTED}
NAMES: Final = (10, 16)
"""Cells of the column of names, at least and at most."""
_UNKNOWN: Final = "unknown"
_ROLES: Final = {"critical": Role.CRIT, "warning": Role.WARN, "silent": Role.WARN}
_SERVICE_MARKS: Final = {"critical": "!! ", "warning": "! ", "silent": "! "}


def render(snapshot: Snapshot, ctx: Context, most_lanes: int) -> list[Line]:
    """Title (not in compact), at most `most_lanes` lane rows, the host."""
    system = snapshot.system
    lines = [] if ctx.compact else [rule("SYSTEM", _global(system.bound, ctx), ctx.width)]
    if not system.gpus:
        lines.append(fit([Span(f"gpu   {_no_gpu(snapshot.feed)}", Role.MUTED)], ctx.width))
    elif not ctx.compact and 4 <= len(system.gpus) <= 2 * most_lanes:
        halves = [fit(_half_lane(lane, ctx), ctx.width // 2) for lane in system.gpus]
        pairs = ([s for one in halves[i : i + 2] for s in one] for i in range(0, len(halves), 2))
        lines += [fit(pair, ctx.width) for pair in pairs]
    else:
        lines += _rows(system.gpus, ctx, most_lanes)
    lines.append(_host(snapshot, ctx))
    return lines


def _no_gpu(feed: Sequence[FeedLine]) -> str:
    """Why there are no rows, where the machine has sent that; a line about a lane is about another thing."""
    of_machine = (line for line in reversed(feed) if line.subsystem == "gpu" and "lane" not in line.fields)
    line = next(of_machine, None)
    return "no readings; overwatch doctor shows why" if line is None else clean(line.message)


def _rows(gpus: tuple[Lane, ...], ctx: Context, most: int) -> list[Line]:
    shown = gpus if len(gpus) <= most else gpus[: most - 1]
    one = _short_lane if ctx.compact else _lane
    lines = [one(lane, ctx) for lane in shown]
    hidden = gpus[len(shown) :]
    if hidden:
        states = {clean(lane.bound.state) if lane.bound else "unknown" for lane in hidden}
        text = f"+{len(hidden)} lanes {states.pop() if len(states) == 1 else 'in several states'}"
        lines.append(fit([Span(text, Role.MUTED)], ctx.width))
    return lines


def _global(bound: Bound | None, ctx: Context) -> list[Span]:
    if bound is None:
        return []
    if ctx.fresh.old:
        return [Span("global unknown ?", Role.MUTED)]
    sure = "" if not bound.confidence else f" confidence {bound.confidence:.2f}"
    return [Span("global ", Role.MUTED), *_bound(bound), Span(sure, Role.MUTED)]


def _bound(bound: Bound) -> list[Span]:
    role = _MARKS.get(bound.mark, Role.TEXT)
    return [Span(f"{clean(bound.state)} {clean(bound.mark)}".rstrip(), role)]


def _held(lane: Lane, width: int, ctx: Context) -> list[Span]:
    """What holds a lane back, `width` cells, then why."""
    if ctx.fresh.old and lane.bound is not None:
        last = f"last verdict {clean(lane.bound.state)}, {duration(ctx.fresh.age_s or 0.0)} ago"
        return [Span(left("unknown ?", width), Role.MUTED), Span(last, Role.STALE)]
    if lane.bound is None:
        return []
    state = _bound(lane.bound)
    fill = " " * max(1, width - width_of(state))
    return [*state, Span(fill), Span(clean(lane.bound.why or lane.bound.hint or ""))]


def _history(values: Sequence[float | None], width: int, *, old: bool) -> list[Span]:
    """Samples of a share; old ones begin with the mark of what is old."""
    if not old or not values:
        return sparkline(values, width, _FULL)
    return [Span("~", Role.STALE), *sparkline(values, width - 1, _FULL)]


def _lane(lane: Lane, ctx: Context) -> Line:
    old = ctx.fresh.old
    memory = _memory(lane.memory_used_bytes, lane.memory_total_bytes, digits=1)
    mhz = None if lane.clock_hz is None else lane.clock_hz / 1e6
    return fit(
        [
            Span(left(cut_middle(clean(lane.gpu_id), 5), 6)),
            Span("util ", Role.MUTED),
            _reading(lane.utilization, "{:.0%}", 4, old=old),
            Span(" "),
            *_history(lane.utilization_history, 10, old=old),
            Span("  mem ", Role.MUTED),
            Span(right(memory, max(10, len(memory)))),
            _reading(lane.temperature_c, "{:.0f}°C", max(5, 17 - max(10, len(memory))), old=old),
            _reading(lane.power_w, "{:.0f}W", 6, old=old),
            _reading(mhz, "{:.0f}M" if old else "{:.0f}MHz", 8, old=old),
            Span("  "),
            *_held(lane, 15, ctx),
        ],
        ctx.width,
    )


def _short_lane(lane: Lane, ctx: Context) -> Line:
    old = ctx.fresh.old
    memory = _memory(lane.memory_used_bytes, lane.memory_total_bytes, digits=0)
    return fit(
        [
            Span(left(cut_middle(clean(lane.gpu_id), 4), 5)),
            _reading(lane.utilization, "{:.0%}", 4, old=old),
            Span(" " + right(memory, max(6, len(memory)))),
            _reading(lane.temperature_c, "{:.0f}°C", 5, old=old),
            _reading(lane.power_w, "{:.0f}W", 5, old=old),
            Span("  "),
            *_held(lane, 14, ctx),
        ],
        ctx.width,
    )


def _half_lane(lane: Lane, ctx: Context) -> list[Span]:
    old = ctx.fresh.old
    rank = "" if lane.rank is None else f" r{lane.rank}"
    memory = _memory(lane.memory_used_bytes, lane.memory_total_bytes, digits=0)
    held = [Span("unknown ?", Role.MUTED)] if lane.bound is None or old else _bound(lane.bound)
    return [
        Span(left(f"{cut_middle(clean(lane.gpu_id), 5)}{rank}", 8)),
        _reading(lane.utilization, "{:.0%}", 5, old=old),
        Span(" "),
        *_history(lane.utilization_history, 8, old=old),
        Span(" " + right(memory, 7)),
        _reading(lane.temperature_c, "{:.0f}°C", 5, old=old),
        _reading(lane.power_w, "{:.0f}W", 5, old=old),
        Span("  "),
        *([] if ctx.fresh.state == "ended" else held),
    ]


def _reading(value: float | None, form: str, width: int, *, old: bool) -> Span:
    if value is None:
        return Span(right(ABSENT, width), Role.MUTED)
    text = form.format(value)
    text = text if len(text) <= width else number(value, ".0f", width)
    mark = "~" if old and len(text) < width else ""
    return Span(right(f"{mark}{text}", width), Role.STALE if old else Role.TEXT)


def _memory(used: float | None, total: float | None, *, digits: int) -> str:
    if used is None:
        return ABSENT
    share = f"{used / GIB:.{digits}f}"
    return f"{share}G" if total is None else f"{share}/{total / GIB:.{digits}f}G"


def _host(snapshot: Snapshot, ctx: Context) -> Line:
    host = snapshot.system.host
    if host is None:
        start = [Span("host  no readings yet", Role.MUTED)]
        return spread(start, [] if ctx.compact else _telemetry(snapshot.link), ctx.width)
    if ctx.compact:
        return _short_host(host, snapshot.system.bound, ctx)
    memory = right(_memory(host.ram_used_bytes, host.ram_total_bytes, digits=0), 10)
    start = [
        Span(left("host", 6)),
        Span("cpu  ", Role.MUTED),
        _reading(host.cpu_utilization, "{:.0%}", 4, old=ctx.fresh.old),
        Span(" "),
        *_history(host.cpu_history, 10, old=ctx.fresh.old),
        Span("  ram ", Role.MUTED),
        Span(memory),
    ]
    ending = _telemetry(snapshot.link)
    room = ctx.width - 2 - width_of(ending)
    return spread(_whole(start, _traffic(host), room), ending, ctx.width)


def _whole(start: list[Span], words: list[str], room: int) -> list[Span]:
    """`start` and as many of the words as fit, each whole."""
    spans = list(start)
    for word in words:
        more = Span(f"  {word}")
        if width_of([*spans, more]) > room:
            break
        spans.append(more)
    return spans


def _traffic(host: Host) -> list[str]:
    words = []
    if host.disk_read_bytes_per_s is not None and host.disk_write_bytes_per_s is not None:
        words.append(f"disk r {_mb(host.disk_read_bytes_per_s)} w {_mb(host.disk_write_bytes_per_s)} MB/s")
    if host.network_bytes_per_s is not None:
        words.append(f"net {_mb(host.network_bytes_per_s)} MB/s")
    return [*words, *_loader(host)]


def _loader(host: Host) -> list[str]:
    if host.loader_depth is None:
        return []
    capacity = "" if host.loader_capacity is None else f"/{host.loader_capacity:.0f}"
    return [f"loader {host.loader_depth:.0f}{capacity}"]


def _short_host(host: Host, bound: Bound | None, ctx: Context) -> Line:
    start = [
        Span(left("host", 5)),
        _reading(host.cpu_utilization, "{:.0%}", 4, old=ctx.fresh.old),
        Span("   ram ", Role.MUTED),
        Span(_memory(host.ram_used_bytes, host.ram_total_bytes, digits=0)),
    ]
    words = []
    if host.disk_read_bytes_per_s is not None and host.disk_write_bytes_per_s is not None:
        words.append(f"disk {_mb(host.disk_read_bytes_per_s)}+{_mb(host.disk_write_bytes_per_s)}MB/s")
    if host.network_bytes_per_s is not None:
        words.append(f"net {_mb(host.network_bytes_per_s)}MB/s")
    word = "unknown" if ctx.fresh.old or bound is None else clean(bound.state)
    ending = [] if bound is None else [Span("global ", Role.MUTED), Span(word)]
    room = ctx.width - 2 - width_of(ending)
    return spread(_whole(start, [*words, *_loader(host)], room), ending, ctx.width)


def _mb(rate: float) -> str:
    return f"{rate / 1e6:.0f}"


def _telemetry(link: Link) -> list[Span]:
    words = [] if link.lag_s is None else [f"telemetry lag {link.lag_s:.1f}s"]
    role = Role.MUTED
    if link.dropped is not None:
        words.append(f"dropped {short(link.dropped)}")
        role = Role.WARN if link.dropped else Role.MUTED
    ahead = [source.clock_ahead_s for source in link.sources if source.clock_ahead_s is not None]
    if ahead:
        words.append(f"clock {max(ahead):.0f}s ahead")
        role = Role.WARN
    return [Span("  ".join(words), role)] if words else []


def services(snapshot: Snapshot, ctx: Context, most: int) -> list[Line]:
    """At most `most` lines; those without one are counted in the last."""
    services = snapshot.processes
    shown = services[:most]
    hidden = services[len(shown) :]
    width = min(max(NAMES[0], *(len(one.name) + 1 for one in shown)), NAMES[1]) if shown else 0
    lines = []
    for place, service in enumerate(shown, start=1):
        more = f"  +{len(hidden)} more" if hidden and place == len(shown) else ""
        lines.append(_service(service, width, ctx, more))
    return lines


def _service(service: Service, width: int, ctx: Context, more: str) -> Line:
    role = Role.STALE if ctx.fresh.old else Role.TEXT
    mark = _SERVICE_MARKS.get(service.status, "")
    parts = [f"silent {duration(service.age_s, coarse=True)}"] if service.status == "silent" else []
    if service.bound is not None and service.bound.state != _UNKNOWN and not parts:
        parts.append(f"{clean(service.bound.state)} {clean(service.bound.why or '')}".rstrip())
    parts += map(clean, service.parts)
    spans = [
        Span(left(cut_middle(clean(service.name), width - 1), width)),
        Span(mark, _ROLES.get(service.status, Role.TEXT)),
    ]
    room = ctx.width - width - len(mark) - len(more)
    shown = ""
    for part in parts:
        longer = f"{shown}  {part}" if shown else part
        if len(longer) > room:
            break
        shown = longer
    return fit([*spans, Span(shown, role), Span(more, Role.MUTED)], ctx.width)
