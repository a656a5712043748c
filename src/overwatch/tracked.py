"""One run of the fold: its state, what it is judged as, and what is shown of it.

Owns the border around a run: where judging or showing it fails, a fault of ours that its numbers found,
nothing is shown of it at that tick, and its neighbours are unharmed. Owns when a run rests: it has been over
for long, only its age changes, and a collector may know hundreds of such. Pure. Must not know other runs.
"""

import traceback
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.assess import without_new
from overwatch.diagnose.judging import Judging
from overwatch.diagnose.liveness import OVER, judge_link
from overwatch.diagnose.problem import Open
from overwatch.projection import project_views
from overwatch.projection.history import history
from overwatch.snapshot import Baseline, Snapshot, View
from overwatch.snapshot.history import Ask, History
from overwatch.state import RunState
from overwatch.state.past import Mark, Past

LONG_NS: Final = 1_000_000_000
"""So much of a run is not folded without being looked at."""
TIRED_NS: Final = 600_000_000_000
"""So long after its last record a run that is over begins to rest: its findings have cleared or never do."""
REST_NS: Final = 10_000_000_000
"""A run that rests is judged once in so long."""
_DEFAULT: Final = View()
_OVER: Final = OVER | {"silent"}


class Tracked(msgspec.Struct):
    """A run with its judgement."""

    state: RunState
    assessment: Assessment
    logged_stamp: int = -1
    """`last_stamp` when the run's ended snapshot was last recorded."""
    judged: Judged | None = None
    """The newest judgement, if it could be judged; not part of a checkpoint."""
    looked_at: int = 0
    """Newest producer's time when it was last judged."""
    judged_stamp: int = -1
    """`last_stamp` then; not part of a checkpoint."""
    fault: str | None = None
    """Why it could not be judged or shown, when that was last tried."""
    shown: Snapshot | None = None
    """What the default view showed last; not part of a checkpoint."""
    past: Past = msgspec.field(default_factory=Past)
    """Its numbers over its whole length."""

    @property
    def is_long(self) -> bool:
        """Whether a second of it has come in since it was last judged."""
        return self.state.last_at - self.looked_at >= LONG_NS

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it, or nothing for long."""
        if self.judged is not None and self.state.last_stamp == self.judged_stamp:
            return self.judged.link.state in _OVER
        # What came since may be a new life. That of a checkpoint is as over as when it was judged last.
        judged_at = self.assessment.tick
        return judged_at > 0 and judge_link(self.state, judged_at).state in _OVER

    def rests(self, tick: int) -> bool:
        """Whether its memory stays as it is at `tick`; only what a checkpoint holds decides that."""
        heard = max(self.state.last_stamp, self.state.back_stamp)
        if tick - heard < TIRED_NS or tick // REST_NS != self.assessment.tick // REST_NS:
            return False
        return judge_link(self.state, tick).state in _OVER

    def shown_since(self, tick: int) -> Snapshot | None:
        """What the default view showed last, if that was at `tick` or later or it was not judged since."""
        judged = 0 if self.judged is None else self.judged.assessment.tick
        if self.shown is None or self.shown.time < min(tick, judged) / 1e9:
            return None
        return self.shown

    def judge(
        self, tick: int, how: Judging, baseline: Baseline | None, hushed: Collection[str] | None
    ) -> None:
        """Judge it at `tick`; where it is `hushed`, only the findings named there open.

        One that rests is judged for who looks at it now, and remembers nothing of it.
        """
        self.looked_at, self.judged_stamp, self.fault = self.state.last_at, self.state.last_stamp, None
        rests = self.rests(tick)
        try:
            judged = assess(self.state, self.assessment, tick, how, baseline)
            if hushed is not None:
                judged = without_new(judged, self.assessment, hushed)
        except Exception as error:  # noqa: BLE001 the border that is named above
            self.judged = self.shown = None
            self.fault = f"cannot be judged: {_said(error)}"
            return
        self.judged = judged
        if not rests:
            self.assessment = judged.assessment
            for item in judged.assessment.findings.values():
                self._mark(item)

    def _mark(self, item: Open) -> None:
        problem = item.problem
        mark = Mark(
            code=problem.code, severity=problem.severity, scope=problem.scope, subject=problem.subject,
            since=item.since, cleared_at=item.cleared_at, message=problem.message,
        )  # fmt: skip
        self.past.mark(problem.id, mark)

    def history(self, ask: Ask) -> History:
        """What was asked for of its past."""
        return history(self.state, self.past, ask)

    def project(self, views: Sequence[View]) -> dict[View, Snapshot]:
        """What views show of it; nothing where it was not judged."""
        if self.judged is None:
            return {}
        try:
            snapshots = project_views(self.state, self.judged, views)
        except Exception as error:  # noqa: BLE001 the border that is named above
            self.shown, self.fault = None, f"cannot be shown: {_said(error)}"
            return {}
        self.shown = snapshots.get(_DEFAULT, self.shown)
        return snapshots

    def is_recorded(self) -> bool:
        """Whether a snapshot log gets it now: living runs always, one that is over once more."""
        if self.judged is None or (self.is_over and self.logged_stamp == self.state.last_stamp):
            return False
        self.logged_stamp = self.state.last_stamp if self.is_over else -1
        return True


def _said(error: Exception) -> str:
    """The error and where it was raised, on one line."""
    raised = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({PurePath(raised.filename).name}:{raised.lineno})"
