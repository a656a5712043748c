"""Services: one line each under the machines, worst first, as many as there is room for.

Never takes a row from the panels that are always there. Must not know what the words mean.
"""

from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Service, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.text import Line, Role, Span, clean, cut_middle, fit, left

NAMES: Final = (10, 16)
"""Cells of the column of names, at least and at most."""
_UNKNOWN: Final = "unknown"
_ROLES: Final = {"critical": Role.CRIT, "warning": Role.WARN, "silent": Role.WARN}
_MARKS: Final = {"critical": "!! ", "warning": "! ", "silent": "! "}


def render(snapshot: Snapshot, ctx: Context, most: int) -> list[Line]:
    """At most `most` lines; those without one are counted in the last."""
    services = snapshot.processes
    shown = services[:most]
    hidden = services[len(shown) :]
    width = min(max(NAMES[0], *(len(one.name) + 1 for one in shown)), NAMES[1]) if shown else 0
    lines = []
    for number, service in enumerate(shown, start=1):
        more = f"  +{len(hidden)} more" if hidden and number == len(shown) else ""
        lines.append(_line(service, width, ctx, more))
    return lines


def _line(service: Service, width: int, ctx: Context, more: str) -> Line:
    role = Role.STALE if ctx.fresh.old else Role.TEXT
    mark = _MARKS.get(service.status, "")
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
