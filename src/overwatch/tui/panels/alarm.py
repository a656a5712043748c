"""What the drawer says of one finding: message, next step, evidence, and what it is about."""

from overwatch.catalog.durations import duration
from overwatch.catalog.runbooks import runbook
from overwatch.snapshot import Bound, Finding, Lane, Reading, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import severity, sparkline
from overwatch.tui.panels.alarms import subject
from overwatch.tui.text import Line, Role, Span, clean, fit, left, wrapped

_LABEL = 9


def heading(finding: Finding) -> str:
    """The drawer's title."""
    return f"{severity(finding.severity).text} · {subject(finding.subject)} · {clean(finding.code)}"


def content(snapshot: Snapshot, finding: Finding, width: int, ctx: Context) -> list[Line]:
    """Lines of `width` cells; long texts are wrapped at blanks."""
    since = max(0.0, snapshot.time + ctx.waited_s - finding.since)
    ago = f"{duration(since)} ago" if since >= 1 else "just now"
    if finding.cleared_at is not None:
        ago = f"cleared after {duration(max(0.0, finding.cleared_at - finding.since))}"
    elif finding.ended_at is not None:
        ago = f"open for {duration(max(0.0, finding.ended_at - finding.since))} when the run ended"
    parts = [
        ("what", clean(finding.message)),
        ("when", ago),
        ("next", clean(finding.hint)),
        ("because", " · ".join(map(clean, finding.factors))),
        ("also", f"{finding.symptoms:,} symptoms counted under it" if finding.symptoms else ""),
        ("runbook", clean(finding.runbook_url or "")),
        *(("", text) for text in _book(finding)),
    ]
    lines = [line for label, text in parts if text for line in _wrapped(label, text, width)]
    about = finding.subject
    lane = next(
        (lane for lane in snapshot.system.gpus if about.scope == "gpu" and lane.gpu_id == about.id), None
    )
    if lane is not None:
        lines += lane_text(lane, width)
    reading = snapshot.policy.get(about.id or "") if about.scope == "policy" else None
    if reading is not None:
        lines += _reading(reading, width)
    return lines


def _book(finding: Finding) -> tuple[str, ...]:
    """What the finding means, how to see that it is so, and what to do."""
    known = runbook(finding.code)
    return () if known is None else (known.means, f"Confirm: {known.confirm}", f"Do: {known.act}")


def lane_text(lane: Lane, width: int) -> list[Line]:
    """What holds a lane back, and how its utilisation went."""
    lines = [] if lane.bound is None else _bound(lane.bound, width)
    if lane.utilization_history:
        bars = sparkline(lane.utilization_history, 10, (0.0, 1.0))
        now = "" if lane.utilization is None else f"{lane.utilization:.0%}  "
        lines.append(fit([Span(left("util", _LABEL + 1), Role.MUTED), Span(now), *bars], width))
    if lane.throttle:
        lines += _wrapped("throttle", ", ".join(map(clean, lane.throttle)), width)
    return lines


def _bound(bound: Bound, width: int) -> list[Line]:
    sure = "" if bound.confidence is None else f", confidence {bound.confidence:.2f}"
    parts = [
        ("bound", f"{clean(bound.state)} {clean(bound.mark)}".rstrip() + sure),
        ("why", clean(bound.why or "")),
        ("hint", clean(bound.hint or "")),
        ("evidence", " · ".join(map(clean, bound.evidence))),
    ]
    return [line for label, text in parts if text for line in _wrapped(label, text, width)]


def _reading(reading: Reading, width: int) -> list[Line]:
    limit = "" if reading.limit is None else f"   limit {clean(reading.limit.text)}"
    value = [Span(left("value", _LABEL + 1), Role.MUTED), Span(f"{clean(reading.text)}{limit}")]
    bars = sparkline(reading.history, 10, reading.scale)
    trend = [Span(left("trend", _LABEL + 1), Role.MUTED), *bars, Span("  last 10 updates", Role.MUTED)]
    return [fit(value, width), fit(trend, width)]


def _wrapped(label: str, text: str, width: int) -> list[Line]:
    return [
        fit([Span(left(label if place == 0 else "", _LABEL) + " ", Role.MUTED), Span(row)], width)
        for place, row in enumerate(wrapped(text, max(8, width - _LABEL - 1)))
    ]
