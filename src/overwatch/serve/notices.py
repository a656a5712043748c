"""From frames to messages for people: one when a finding starts, one when it ends.

Rules: a finding that was there before the first frame is told as started; a flood is capped and what was
held back is said in one sentence; an end is told only of what was told to have started. Pure: the frame's
tick is the only clock. Must not know how messages travel.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from overwatch.fold import Frame
from overwatch.snapshot import Finding, Snapshot, View

Shape = Literal["json", "slack"]
Level = Literal["info", "warning", "critical"]

_RANK: Final = {"info": 0, "warning": 1, "critical": 2}
_MINUTE_NS: Final = 60_000_000_000
_MARK: Final = {"critical": ":red_circle:", "warning": ":large_yellow_circle:", "info": ":large_blue_circle:"}
_DEFAULT: Final = View()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeLimits:
    """What is told."""

    min_severity: Level = "warning"
    """The least severe finding that is told."""
    per_minute: int = 30
    """Messages in any minute; what comes on top is counted, not sent."""

    def __post_init__(self) -> None:
        if self.per_minute < 1:
            raise ValueError(f"at least one message a minute is sent, not {self.per_minute}")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    status: Literal["started", "ended"]
    run_id: str
    at: float
    """Unix seconds of the tick."""
    finding: Finding
    held_back: int = 0
    """Messages that were not sent since the last one, because there were too many."""

    def body(self, shape: Shape) -> bytes:
        """The request's body."""
        if shape == "slack":
            return msgspec.json.encode({"text": self._text()})
        return msgspec.json.encode({"version": 1, **msgspec.to_builtins(self)})

    def _text(self) -> str:
        finding = self.finding
        subject = finding.subject
        who = subject.scope if subject.id is None else f"{subject.scope} {subject.id}"
        mark = ":white_check_mark:" if self.status == "ended" else _MARK.get(finding.severity, "")
        lines = [f"{mark} *{finding.code}* {self.status} · run `{self.run_id}` · {who}", finding.message]
        if self.status == "started" and finding.hint:
            lines.append(f"→ {finding.hint}")
        if self.held_back:
            lines.append(f"({self.held_back} more messages were held back)")
        return "\n".join(lines)


class Notices:
    """Remembers what was told."""

    def __init__(self, limits: NoticeLimits | None = None) -> None:
        self._limits = limits or NoticeLimits()
        self._told: dict[tuple[str, str], Finding | None] = {}
        """Findings that stand, `None` for one that was held back."""
        self._sent: deque[int] = deque()
        self.held_back = 0
        """Messages that were not sent since the last one."""

    def of(self, frame: Frame) -> list[Notice]:
        """What is to be told of a frame."""
        found: list[Notice] = []
        runs = {run_id for run_id, _ in frame.snapshots}
        for run_id in sorted(runs):
            snapshot = frame.snapshots.get((run_id, _DEFAULT))
            if snapshot is not None:
                found += self._of_run(run_id, snapshot, frame.tick)
        for key in [key for key in self._told if key[0] not in runs]:
            del self._told[key]
        return found

    def _of_run(self, run_id: str, snapshot: Snapshot, tick: int) -> Iterator[Notice]:
        standing = {finding.id: finding for finding in snapshot.findings if finding.cleared_at is None}
        for finding in standing.values():
            key = run_id, finding.id
            is_loud = _RANK.get(finding.severity, 0) >= _RANK[self._limits.min_severity]
            if key in self._told or not is_loud:
                continue
            self._told[key] = finding if self._may(tick) else None
            if self._told[key] is not None:
                yield self._notice("started", run_id, finding, tick)
        for key in [key for key in self._told if key[0] == run_id and key[1] not in standing]:
            ended = self._told.pop(key)
            if ended is not None and self._may(tick):
                yield self._notice("ended", run_id, ended, tick)

    def _notice(
        self, status: Literal["started", "ended"], run_id: str, finding: Finding, tick: int
    ) -> Notice:
        held, self.held_back = self.held_back, 0
        return Notice(status=status, run_id=run_id, at=tick / 1e9, finding=finding, held_back=held)

    def _may(self, tick: int) -> bool:
        """Whether one more message fits into the last minute."""
        while self._sent and self._sent[0] <= tick - _MINUTE_NS:
            self._sent.popleft()
        if len(self._sent) >= self._limits.per_minute:
            self.held_back += 1
            return False
        self._sent.append(tick)
        return True
