"""Findings over a run's life: when each began and ended, and the worst that it was.

Owns severity over time: all commands that list the findings of a recording take them from here.
Times are seconds since the run began. Pure.
"""

from dataclasses import dataclass, field
from typing import Final

from overwatch.snapshot import Finding, Snapshot

SEVERITIES: Final = ("debug", "info", "warning", "critical")
"""The mildest first."""


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
