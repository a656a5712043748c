"""Alarm rail: open findings, causes first, each with its age and the next step."""

from collections.abc import Sequence
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.catalog.runbooks import runbook
from overwatch.projection.verdict import titled
from overwatch.snapshot import Finding, Snapshot, Subject
from overwatch.tui.context import COMPACT_BELOW, WIDE_FROM, AlarmAt, Context, Frame
from overwatch.tui.grammar import severity
from overwatch.tui.text import Line, Role, Span, cells, clean, cut_middle, fit, left, right, rule, width_of

_HINT_AT = 79
"""Column of the next step at 120 cells; wider terminals share what they gain between the two texts."""
_START: Final = 23
"""Cells before the message in the standard layout."""
_AGE: Final = 5
"""Cells of an age."""
_UNITS_S: Final = (1, 60, 3600, 86_400)
_NAME_LINES: Final = 3
"""Lines of names at the most."""
_MARKS: Final = {"critical": "!! ", "warning": "! "}

_NO_ALARMS: Final = frozenset({"collector-away"})
"""What the verdict line has in whole, and needs no action."""


def on_rail(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Findings that are on the rail: alarms that are not acknowledged."""
    return tuple(
        finding
        for finding in snapshot.findings
        if not finding.acknowledged and finding.code not in _NO_ALARMS
    )


def render(snapshot: Snapshot, ctx: Context, most: int) -> Frame:
    """Title, then at most `most` lines of one finding each, then the names of all that have no line."""
    findings = on_rail(snapshot)
    now = snapshot.time + ctx.waited_s
    shown = findings[:most]
    at = _hint_at(shown, ctx.width)
    rows = [_row(place, finding, now, at, ctx.width) for place, finding in enumerate(shown, start=1)]
    names = _names(findings[most:], most + 1, ctx.width)
    targets = (None, *(AlarmAt(number) for number in range(1, len(rows) + 1)), *[None] * len(names))
    return Frame(lines=[_title(findings, ctx), *rows, *names], targets=targets)


def _names(findings: Sequence[Finding], first: int, width: int) -> list[Line]:
    """By number and name, several on a line; what does not fit on the last line is counted."""
    lines: list[list[Span]] = []
    for place, finding in enumerate(findings):
        gap = [] if not lines else [Span(" · ", Role.MUTED)]
        number = first + place
        words = [
            Span(f"{number} " if number <= 9 else ""),
            Span(_MARKS.get(finding.severity, ""), severity(finding.severity).role),
            Span(clean(titled(finding)), Role.TEXT if finding.cleared_at is None else Role.MUTED),
        ]
        rest = len(findings) - place - 1
        room = width - 1 - (len(f"  +{rest}") if rest and len(lines) == _NAME_LINES else 0)
        if lines and width_of([*lines[-1], *gap, *words]) <= room:
            lines[-1] += [*gap, *words]
        elif len(lines) < _NAME_LINES:
            lines.append(words)
        else:
            lines[-1].append(Span(f"  +{rest + 1}", Role.MUTED))
            break
    return [fit(_ellipsis(line, width - 1), width) for line in lines]


def _hint_at(findings: Sequence[Finding], width: int) -> int:
    """The column of the next step: after the longest message, as long as the longest step fits behind it.

    Below the wide layout it never moves.
    """
    if width < WIDE_FROM:
        return _HINT_AT + (width - COMPACT_BELOW) // 2
    messages = max((cells(clean(one.message)) for one in findings), default=0)
    hints = max((cells(clean(one.hint)) for one in findings), default=0)
    return max(_HINT_AT, min(_START + messages + 2, width - hints - 4))


def _since(seconds: float) -> str:
    """As exact as there is room for: `9m59s`, `29m`, `10h`, `400d`."""
    if seconds < 1:
        return "0s"
    shown = [duration(seconds // unit * unit) for unit in _UNITS_S if seconds >= unit]
    return next((one for one in shown if len(one) <= _AGE), shown[-1])


def _title(findings: Sequence[Finding], ctx: Context) -> Line:
    num_open = sum(finding.cleared_at is None for finding in findings)
    if ctx.compact:
        most = min(9, len(findings))
        opens = [Span("key 1 opens" if most == 1 else f"keys 1-{most} open", Role.MUTED)] if most else []
        return rule(f"ALARMS {num_open}" if num_open else "ALARMS none", opens, ctx.width)
    note = "causes first, symptoms counted" if findings else "none"
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


def advice(of: Finding) -> list[tuple[str, str]]:
    """What to do about a finding, its evidence and its runbook: labels with texts, empty where unknown."""
    rows = [
        ("next", of.hint),
        ("because", " · ".join(of.factors)),
        ("also", f"{of.symptoms:,} symptoms counted under it" if of.symptoms else ""),
    ]
    known = runbook(of.code)
    if known is not None:
        rows += [("means", known.means), ("confirm", known.confirm), ("do", known.act)]
    return [(label, clean(text)) for label, text in rows]


def _row(place: int, finding: Finding, now: float, hint_at: int, width: int) -> Line:
    """One finding: how old it is, since when its cause is gone, and what to do, in that column."""
    ago = _since((finding.ended_at or now) - finding.since)
    word = severity(finding.severity)
    about = subject(finding.subject)
    message = clean(finding.message)
    number = str(place) if place <= 9 else " "
    if width < COMPACT_BELOW:
        start = [Span(f"{number} "), word, Span(f" {left(cut_middle(about, 7), 8)}{right(ago, _AGE)} ")]
        texts = [Span(message)]
    else:
        start = [Span(f"{number} "), word, Span(f" {left(cut_middle(about, 8), 9)}{left(ago, _AGE)}  ")]
        room = hint_at - width_of(start)
        hint = [Span("› ", Role.INFO), Span(clean(finding.hint))] if finding.hint else []
        texts = [Span(left(message, room - 1) + " "), *hint] if hint else [Span(message)]
    line = [*start, *texts]
    ending = []
    if finding.cleared_at is not None:
        ending = [Span(f"cleared {_since(now - finding.cleared_at)}", Role.MUTED)]
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
