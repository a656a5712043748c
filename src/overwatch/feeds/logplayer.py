"""Playing a log of snapshots: what was shown, at the ticks at which it was logged.

There is nothing to fold, so every place costs the same, and a view can only cut what was logged.
"""

from bisect import bisect_right
from dataclasses import dataclass

import msgspec

from overwatch.feeds.recording import RecordingError
from overwatch.feeds.snapshotlog import SnapshotLog
from overwatch.feeds.survey import Survey
from overwatch.feeds.timeline import Timeline
from overwatch.fold import DEFAULT_VIEW, SLOW_NS, Frame
from overwatch.projection.history import of_snapshot, remember
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import Ask, History
from overwatch.state.past import Past

_GAP_NS = 60 * SLOW_NS
_A_TICK = 10
"""Snapshots that take about as long to read as a tick takes to fold."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    first: int
    last: int


class LogPlayer(Timeline):
    """A place in a log. Raises `RecordingError` where there is nothing in it."""

    def __init__(self, log: SnapshotLog) -> None:
        self._ticks = log.ticks()
        if not self._ticks:
            raise RecordingError(f"{log.folder} holds no snapshot that can be shown")
        self._log = log
        self._looked = 0
        self._pasts: dict[str, Past] = {}
        """Of what was looked through so far, by run."""
        self.survey = Survey()
        super().__init__(_stretches(self._ticks))
        self.seek(self.first)

    @property
    def recording(self) -> SnapshotLog:
        """What is played."""
        return self._log

    @property
    def looked(self) -> float:
        """By what was read for the survey."""
        return self._looked / len(self._ticks)

    @property
    def known(self) -> float:
        """By what was read for the survey, which the past comes with."""
        return min(1.0, self._looked / max(1, bisect_right(self._ticks, self.position)))

    def look(self, run_id: str | None, view: View) -> Snapshot | None:
        """The snapshot of the current tick, with no more envs than the view wants; `None` without one."""
        frame = self.frame
        wanted = frame.newest if run_id is None else run_id
        found = None if wanted is None else frame.snapshots.get((wanted, DEFAULT_VIEW))
        return found and msgspec.structs.replace(found, envs=found.envs[: view.rows])

    def history(self, run_id: str | None, ask: Ask) -> History | None:
        """As far as the log was looked through, up to the current tick."""
        found = self.look(run_id, View())
        past = None if found is None else self._pasts.get(found.run.run_id)
        if found is None or past is None:
            return None
        until = found.time if ask.until is None else min(ask.until, found.time)
        return of_snapshot(found, past, msgspec.structs.replace(ask, until=until))

    def look_ahead(self, ticks: int) -> bool:
        """Read the next snapshots for the survey; `False` when all were."""
        for tick in self._ticks[self._looked : self._looked + ticks * _A_TICK]:
            for snapshot in self._log.at(tick):
                self.survey.take(snapshot)
                remember(self._pasts.setdefault(snapshot.run.run_id, Past()), snapshot)
            self._looked += 1
        return self._looked < len(self._ticks)

    def refresh(self) -> bool:
        """A log is read once; what is added later is not followed."""
        return False

    def _show(self, tick: int) -> Frame:
        self.folded += 1
        logged = self._ticks[max(0, bisect_right(self._ticks, tick) - 1)]
        frame = self._log.frame(logged)
        for snapshot in frame.recorded:
            self.survey.take(snapshot)
        return Frame(
            tick=tick, slow=frame.slow, newest=frame.newest, snapshots=frame.snapshots,
            recorded=frame.recorded, tower=frame.tower,
        )  # fmt: skip


def _stretches(ticks: list[int]) -> list[_Stretch]:
    """The log without its gaps of more than a minute."""
    found: list[_Stretch] = []
    for tick in ticks:
        if found and tick - found[-1].last <= _GAP_NS:
            found[-1] = _Stretch(found[-1].first, tick)
        else:
            found.append(_Stretch(tick, tick))
    return found
