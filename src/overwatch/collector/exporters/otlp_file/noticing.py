"""Which findings are open that were not noted yet, from the latest frame.

Rules: a finding is noted once for each time that it became true; it lingers for seconds after it cleared, so
that a look now and then misses none. Must not know what becomes of the notes.
"""

from collections.abc import Iterator
from typing import Any, Final

from overwatch.fold import DEFAULT_VIEW, Frame
from overwatch.serve.stream import Bell
from overwatch.snapshot import Finding

_MOST: Final = 1 << 16
"""Notes remembered; beyond it the oldest are forgotten."""


class Noticing:
    """Looks at frames; used from one thread."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._seen: Frame | None = None
        self._noted: dict[tuple[str, str, float], None] = {}

    def fresh(self) -> Iterator[dict[str, Any]]:
        """What was not told before, as the index tells it; noted once it was taken."""
        frame = self._bell.latest
        if frame is None or frame is self._seen:
            return
        for (run_id, view), snapshot in frame.snapshots.items():
            if view != DEFAULT_VIEW:
                continue
            for finding in snapshot.findings:
                key = run_id, finding.id, finding.since
                if key not in self._noted:
                    yield _entry(run_id, finding, frame.tick)
                    self._noted[key] = None
        while len(self._noted) > _MOST:
            del self._noted[next(iter(self._noted))]
        self._seen = frame


def _entry(run_id: str, finding: Finding, tick: int) -> dict[str, Any]:
    return {
        "finding": finding.id,
        "run": run_id,
        "tick": tick,
        "since": max(1, round(finding.since * 1e9)),
        "severity": finding.severity,
    }
