"""One run of the fold: its state, what it is judged as, and what is shown of it.

Owns the border around a run: where judging or showing it fails, a fault of ours that its numbers found,
nothing is shown of it at that tick, and its neighbours are unharmed. Pure. Must not know other runs.
"""

import traceback
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.hush import without_new
from overwatch.diagnose.judging import Judging
from overwatch.projection import project_views
from overwatch.snapshot import Baseline, Snapshot, View
from overwatch.state import RunState

LONG_NS: Final = 1_000_000_000
"""So much of a run is not folded without being looked at."""


class Tracked(msgspec.Struct):
    """A run with its judgement."""

    state: RunState
    assessment: Assessment
    logged_stamp: int = -1
    """`last_stamp` when the run's ended snapshot was last recorded."""
    judged: Judged | None = None
    """This tick's judgement, if it could be judged; not part of a checkpoint."""
    looked_at: int = 0
    """Newest producer's time when it was last judged."""
    fault: str | None = None
    """Why it could not be judged or shown, when that was last tried."""

    @property
    def is_long(self) -> bool:
        """Whether a second of it has come in since it was last judged."""
        return self.state.last_at - self.looked_at >= LONG_NS

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it."""
        return self.judged is not None and self.judged.link.state in ("ended", "lost")

    def judge(
        self, tick: int, how: Judging, baseline: Baseline | None, hushed: Collection[str] | None
    ) -> None:
        """Judge it at `tick`; where it is `hushed`, only the findings named there open."""
        self.looked_at, self.fault = self.state.last_at, None
        try:
            judged = assess(self.state, self.assessment, tick, how, baseline)
            if hushed is not None:
                judged = without_new(judged, self.assessment, hushed)
        except Exception as error:  # noqa: BLE001 the border that is said above
            self.judged, self.fault = None, f"cannot be judged: {_said(error)}"
            return
        self.assessment, self.judged = judged.assessment, judged

    def project(self, views: Sequence[View]) -> dict[View, Snapshot]:
        """What views show of it; nothing where it was not judged."""
        if self.judged is None:
            return {}
        try:
            return project_views(self.state, self.judged, views)
        except Exception as error:  # noqa: BLE001 the border that is said above
            self.fault = f"cannot be shown: {_said(error)}"
            return {}

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
