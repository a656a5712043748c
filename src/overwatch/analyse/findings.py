"""Findings and verdicts over a run's life: when each began and ended, its worst, which belong together.

Owns severity over time: all commands that list the findings of a recording take them from here. Times are
seconds since the run began. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from overwatch.catalog import Scope, find
from overwatch.catalog.titles import title
from overwatch.snapshot import Finding, Snapshot

SEVERITIES: Final = ("debug", "info", "warning", "critical")
"""The mildest first."""
BRIEF_S: Final = 5.0
"""A finding that is not critical and was over sooner is no reason by itself."""


@dataclass(slots=True, kw_only=True)
class Found:
    """One finding over its life."""

    finding: Finding
    """As last seen."""
    since: float
    seen: float
    """First seen open."""
    until: float
    """Last seen open, or when it was cleared or the run ended."""
    update: int | None
    """The run's update when it was first seen."""
    open: bool = True
    """Still open at the end."""
    severity: str = "info"
    """The worst that it was."""

    @property
    def ending(self) -> str:
        """What to add to a finding that never cleared: it was the run, or its recording, that ended."""
        return ", open at the end" if self.open else ""


@dataclass(slots=True, kw_only=True)
class Findings:
    """The findings of one run."""

    by_key: dict[tuple[str, float], Found] = field(default_factory=dict)
    """By id and when it was true first; in order."""
    _open: set[tuple[str, float]] = field(default_factory=set)
    """Those of the last snapshot."""

    @property
    def in_order(self) -> list[Found]:
        """In the order in which they were true first."""
        return sorted(self.by_key.values(), key=lambda one: (one.since, one.finding.id))

    @property
    def standing(self) -> list[Found]:
        """What was open at the end, the worst first, then the oldest."""
        stood = [one for one in self.in_order if one.open]
        return sorted(stood, key=lambda one: -SEVERITIES.index(one.severity))

    def take(self, snapshot: Snapshot, began: float) -> None:
        """Go on with one snapshot of the run; `began` is its beginning in Unix seconds."""
        now, seen = snapshot.time - began, set[tuple[str, float]]()
        for finding in snapshot.findings:
            key = finding.id, finding.since
            seen.add(key)
            found = self.by_key.get(key)
            if found is None:
                found = self.by_key[key] = Found(
                    finding=finding, since=finding.since - began, seen=now, until=now,
                    update=snapshot.run.update,
                )  # fmt: skip
            found.finding = finding
            found.open = finding.cleared_at is None
            over = finding.cleared_at or finding.ended_at
            found.until = now if over is None else max(over - began, found.since)
            found.severity = max(found.severity, finding.severity, key=SEVERITIES.index)
        for key in self._open - seen:
            self.by_key[key].open = False
        self._open = seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Findings of one kind and scope, in order of time."""

    found: tuple[Found, ...]

    @property
    def first(self) -> Found:
        """The earliest."""
        return self.found[0]

    @property
    def code(self) -> str:
        """Their kind."""
        return self.first.finding.code

    @property
    def severity(self) -> str:
        """The worst of them."""
        return max((one.severity for one in self.found), key=SEVERITIES.index)

    @property
    def subject(self) -> str:
        """What they are about: `gpu1`, `env 3`, `env 3, 5 and 2 more`; empty for the run as a whole."""
        about = [word for one in self.found if (word := _named(one))]
        each = list(dict.fromkeys(about))
        more = f" and {len(each) - 3} more" if len(each) > 3 else ""
        return f"{_of_scope(self.first)}{', '.join(each[:3])}{more}" if each else ""

    @property
    def name(self) -> str:
        """Kind and subject in short, as a row of a figure is called."""
        about = self.first.finding.subject.id if len(self.found) == 1 else None
        kind = title(self.code)
        return f"{kind} · {about}" if about and self.first.finding.subject.scope != "policy" else kind

    @property
    def lasted(self) -> float:
        """Seconds in which one of them was open, overlaps counted once."""
        total, end = 0.0, float("-inf")
        for one in self.found:
            total += max(0.0, one.until - max(one.since, end))
            end = max(end, one.until)
        return total

    @property
    def open(self) -> bool:
        """Whether one of them was open at the end."""
        return any(one.open for one in self.found)


def subject_of(one: Found) -> str:
    """What one finding is about: `gpu1`, `env 3`, a row's label; empty for the run as a whole."""
    name = _named(one)
    return f"{_of_scope(one)}{name}" if name else ""


def _named(one: Found) -> str:
    """The id of a subject, of a row of the policy its label."""
    subject = one.finding.subject
    row = find(subject.id, Scope.POLICY) if subject.id and subject.scope == "policy" else None
    return (subject.id or "") if row is None else row.label


def _of_scope(one: Found) -> str:
    """What stands before the id: a lane and a row are called by their names alone."""
    scope = one.finding.subject.scope
    return "" if scope in ("gpu", "policy") else f"{scope} "


def groups(findings: Iterable[Found]) -> list[Group]:
    """All findings, grouped, in order of time."""
    table: dict[tuple[str, str, str | None], list[Found]] = {}
    for one in findings:
        about = one.finding.subject
        own = None if about.scope == "env" else about.id
        table.setdefault((one.finding.code, about.scope, own), []).append(one)
    return sorted(
        (Group(found=tuple(found)) for found in table.values()), key=lambda group: group.first.since
    )


def lasting(found: list[Group]) -> list[Group]:
    """Without what soon became part of something critical, or was over at once."""
    if all(group.severity != "critical" for group in found):
        return found
    return [group for group in found if group.severity == "critical" or group.lasted >= BRIEF_S]


def foremost(found: list[Group], most: int) -> list[Group]:
    """The worst and longest of them, in order of time; what is merely info comes last."""
    ranked = sorted(found, key=lambda group: (-SEVERITIES.index(group.severity), -group.lasted))
    return sorted(ranked[:most], key=lambda group: group.first.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A verdict from some moment on."""

    at: float
    """Seconds since the run began."""
    update: float
    severity: str
    text: str
