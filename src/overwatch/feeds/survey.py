"""What a recording holds over its whole length: findings, updates and events by time.

Owns what is remembered of snapshots that passed: enough for a timeline and for going to something by name.
Pure; must not know where snapshots come from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from overwatch.recordings.index import Raised
from overwatch.snapshot import FeedLine, Snapshot

ALARMS: Final = ("warning", "critical")
_NS: Final = 1_000_000_000
_MOST_EVENTS: Final = 200_000
_QUIET: Final = frozenset({"measured", "phase_began", "phase_ended"})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mark:
    """An alarm on the timeline; times in Unix seconds."""

    time: float
    severity: str
    code: str = ""
    """What was found, with what it was about; its id where only the index has it."""
    seen: float | None = None
    """When it was first shown, which may be later than when it became true."""
    finding: str = ""
    """Its id within the run."""
    message: str = ""

    @property
    def place(self) -> float:
        """Where it can be looked at."""
        return self.time if self.seen is None else self.seen


@dataclass(slots=True)
class _OfRun:
    marks: dict[tuple[str, int], Mark] = field(default_factory=dict)
    """By finding and second."""
    updates: dict[int, float] = field(default_factory=dict)
    """When each was seen first."""
    events: dict[tuple[float, str], None] = field(default_factory=dict)


class Survey:
    """Filled in any order, by whatever passes; the same twice is once."""

    def __init__(self) -> None:
        self._runs: dict[str, _OfRun] = {}

    def raised(self, findings: Iterable[Raised]) -> None:
        """What an index holds of findings, before anything is folded."""
        for one in findings:
            if one.severity in ALARMS:
                marks = self._runs.setdefault(one.run, _OfRun()).marks
                since, seen = one.since / _NS, one.tick / _NS
                mark = Mark(
                    time=since, severity=one.severity, code=one.finding, seen=seen, finding=one.finding
                )
                marks.setdefault((one.finding, one.since // _NS), mark)

    def take(self, snapshot: Snapshot) -> None:
        """A snapshot of a run."""
        reported = self._runs.setdefault(snapshot.run.run_id, _OfRun())
        for finding in snapshot.findings:
            if finding.severity in ALARMS:
                key = finding.id, int(finding.since)
                known = reported.marks.get(key)
                seen = snapshot.time if known is None else min(snapshot.time, known.place)
                about = "" if finding.subject.id is None else f" {finding.subject.id}"
                code = f"{finding.code}{about} {finding.id}"
                reported.marks[key] = Mark(
                    time=finding.since, severity=finding.severity, code=code, seen=seen,
                    finding=finding.id, message=finding.message,
                )  # fmt: skip
        update = snapshot.run.update
        if update is not None:
            reported.updates[update] = min(snapshot.time, reported.updates.get(update, snapshot.time))
        if len(reported.events) < _MOST_EVENTS:
            reported.events.update(
                ((line.time, _stated(line)), None) for line in snapshot.feed if line.kind not in _QUIET
            )

    @property
    def runs(self) -> tuple[str, ...]:
        """By id, in the order in which they were met."""
        return tuple(self._runs)

    def marks(self, run_id: str | None) -> tuple[Mark, ...]:
        """The alarms of a run, in the order of time."""
        reported = self._runs.get(run_id or "")
        return () if reported is None else tuple(sorted(reported.marks.values()))

    def update(self, run_id: str | None, number: int) -> float | None:
        """When an update, or the first after it, was seen; `None` where none was so far."""
        reported = self._runs.get(run_id or "")
        known = {} if reported is None else reported.updates
        return known.get(min((one for one in tuple(known) if one >= number), default=-1))

    def finding(self, run_id: str | None, word: str, after: float) -> float | None:
        """When the first finding whose code has a word was shown after a time, else the first of all."""
        times = [mark.place for mark in self.marks(run_id) if word.lower() in mark.code.lower()]
        return _next(times, after)

    def event(self, run_id: str | None, words: str, after: float) -> float | None:
        """When the first line of the feed with all of these words was after a time, else the first of all."""
        reported, wanted = self._runs.get(run_id or ""), words.lower().split()
        events = () if reported is None else sorted(reported.events)
        return _next([at for at, stated in events if all(word in stated for word in wanted)], after)


def _next(times: list[float], after: float) -> float | None:
    return next((at for at in times if at > after), times[0] if times else None)


def _stated(line: FeedLine) -> str:
    env = "" if line.env_id is None else f" env={line.env_id}"
    return f"{line.kind} {line.subsystem} {line.message}{env}".lower()
