"""What is read of a recording: its snapshots, and what producers told, whatever kind of recording it is.

What cannot be read is passed over and counted by whoever reads it. Must not know what is made of it.
"""

from collections.abc import Iterator
from pathlib import Path

from overwatch.events import Record
from overwatch.feeds.inputs import Input, open_input
from overwatch.feeds.recording import Recording, RecordingError, unshown
from overwatch.snapshot import Snapshot
from overwatch.state.joins import Joins
from overwatch.tracked import Tracked


class AnalyseError(ValueError):
    """What was asked cannot be answered from what was given; the message says what to give instead."""


class Source:
    """Runs that can be read more than once."""

    def __init__(self, path: Path, recorded: Input) -> None:
        self.path = path
        self.recorded = recorded

    @property
    def tells(self) -> bool:
        """Whether it holds what producers told, not only snapshots made of it."""
        return isinstance(self.recorded, Recording)

    def snapshots(self, run_id: str | None = None) -> Iterator[Snapshot]:
        """One a second of each run, or of one that is named, in order of time."""
        if run_id is None:
            return self.recorded.recorded()
        recorded = self.recorded
        told = recorded.recorded(run_id) if isinstance(recorded, Recording) else recorded.recorded()
        return (snapshot for snapshot in told if snapshot.run.run_id == run_id)

    def tracked(self, run_id: str) -> Tracked | None:
        """A run as it was folded up to the newest of `snapshots`; `None` where nothing is folded."""
        fold = self.recorded.reached if isinstance(self.recorded, Recording) else None
        return None if fold is None else fold.tracked(run_id)

    def records(self) -> Iterator[Record]:
        """All that producers told, in order; of ranks that waited for their run's id, under that id."""
        if not isinstance(self.recorded, Recording):
            return
        joins = Joins()
        for stamp, told in self.recorded.told():
            for record in told.records:
                resolved = joins.resolve(record, stamp)
                yield from (waited for waited, _ in resolved.released)
                yield resolved.record

    def reasons(self) -> tuple[str, ...]:
        """Why there is no run in it."""
        return unshown(self.recorded) if isinstance(self.recorded, Recording) else ()

    def remarks(self) -> tuple[str, ...]:
        """What must be said of what could not be read so far."""
        return self.recorded.remarks()


def open_source(path: Path) -> Source:
    """What lies at a path; raises `AnalyseError` where nothing can be replayed."""
    try:
        return Source(path, open_input(path))
    except RecordingError as error:
        raise AnalyseError(str(error)) from error
    except OSError as error:
        raise AnalyseError(f"{path} cannot be read: {error.strerror or error}") from error
