"""Alarm rail: open findings, causes first, each with its age and the next step."""

from collections.abc import Sequence
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Finding, Snapshot, Subject
from overwatch.tui.context import COMPACT_BELOW, Context
from overwatch.tui.grammar import severity
from overwatch.tui.kept import kept
from overwatch.tui.text import Line, Role, Span, cells, clean, cut_middle, fit, left, right, rule, width_of

_HINT_AT = 79
"""Column of the next step at 120 cells; wider terminals share what they gain between the two texts."""

_NO_ALARMS: Final = frozenset({"collector-away"})
"""What the verdict line says in whole, and nobody has to do anything about."""


def on_rail(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Findings that are on the rail: those that nobody acknowledged, and that are alarms."""
    return tuple(
        finding
        for finding in snapshot.findings
        if not finding.acknowledged and finding.code not in _NO_ALARMS
    )


def render(snapshot: Snapshot, ctx: Context, most: int) -> list[Line]:
    """Title, then at most `most` lines."""
    findings = on_rail(snapshot)
    lines = [_title(findings, ctx)]
    hidden = len(findings) - most
    for place, finding in enumerate(findings[:most], start=1):
        now = snapshot.time + ctx.waited_s
        gone = None if finding.cleared_at is None else _since(now - finding.cleared_at)
        more = hidden if place == most else 0
        open_s = (finding.ended_at or now) - finding.since
        lines.append(_row(place, finding, (_since(open_s), gone), more, ctx.width))
    return lines


def _since(seconds: float) -> str:
    return duration(max(0.0, seconds)) if seconds >= 1 else "0s"


def _title(findings: Sequence[Finding], ctx: Context) -> Line:
    num_open = len(findings)
    if ctx.compact:
        most = min(9, num_open)
        opens = [Span("1 opens" if most == 1 else f"1-{most} open", Role.MUTED)] if most else []
        return rule(f"ALARMS {num_open}" if num_open else "ALARMS none", opens, ctx.width)
    note = "causes first, symptoms counted" if num_open else "none"
    if any(finding.ended_at is not None for finding in findings):
        note = "as they stood at the end, with the time that each was open"
    return rule("ALARMS", [Span(note, Role.MUTED)], ctx.width)


def subject(of: Subject) -> str:
    """Who it is about: `gpu1`, `env 17`, `policy`."""
    scope = clean(of.scope)
    if of.id is None or scope in ("policy", "run"):
        return scope
    name = clean(of.id)
    return name if scope in ("gpu", "host") else f"{scope} {name}"


@kept
def _row(place: int, finding: Finding, ages: tuple[str, str | None], more: int, width: int) -> Line:
    """One finding: how old it is, and since when its cause is gone; `more` have no room on the rail."""
    ago, gone = ages
    word = severity(finding.severity)
    about = subject(finding.subject)
    message = clean(finding.message)
    number = str(place) if place <= 9 else " "
    if width < COMPACT_BELOW:
        start = [Span(f"{number} "), word, Span(f" {left(cut_middle(about, 7), 8)}{right(ago, 5)} ")]
        texts = [Span(message)]
    else:
        start = [Span(f"{number} "), word, Span(f" {left(cut_middle(about, 8), 9)}{left(ago, 5)}  ")]
        room = _HINT_AT + (width - 120) // 2 - width_of(start)
        hint = [Span("› ", Role.INFO), Span(clean(finding.hint))] if finding.hint else []
        texts = [Span(left(message, room - 1) + " "), *hint] if hint else [Span(message)]
    line = [*start, *texts]
    ending = [Span(f"+{more} more", Role.MUTED)] if more > 0 else []
    if gone is not None:
        cleared = f"cleared {gone}"
        ending = [Span(f"{cleared}  " if ending else cleared), *ending]
        line = [Span(span.text, Role.MUTED) for span in line]
    room = width - 1 - width_of(ending)
    return fit((*fit(_ellipsis(line, room - bool(ending)), room), *ending), width)


def _ellipsis(line: list[Span], room: int) -> list[Span]:
    """The spans, the last one cut with `…` where the line is too long."""
    over = width_of(line) - room
    if over <= 0 or not line:
        return line
    last = line[-1]
    return [*line[:-1], Span(left(last.text, max(0, cells(last.text) - over)), last.role)]
