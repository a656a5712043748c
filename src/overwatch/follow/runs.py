"""A followed run: its files, its story, and its end.

Rules: rows are taken in the order of the files. What a program left of its own end goes before what the end
of following states. Must not know where events go.
"""

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from overwatch.events import Origin
from overwatch.follow.base import Logged, Source
from overwatch.follow.files import File, Place, newest
from overwatch.follow.memory import Remembered, reached
from overwatch.follow.story import Declared, Story
from overwatch.simulate import Moment
from overwatch.simulate.delivery import Packer, Reported

SERVICE: Final = "overwatch-follow"
"""`service.name` of what follows files."""


class Run:
    """One run."""

    def __init__(self, run_id: str, files: Sequence[Source], declared: Declared) -> None:
        self.run_id = run_id
        self.files = list(files)
        self.story = Story(declared)
        self.is_over = False
        self._was_over = False
        """Whether its end was delivered before following began."""
        self._packer: Packer | None = None

    def add(self, place: Place) -> None:
        """Files that appeared since."""
        known = {file.path for file in self.files}
        self.files += [File(path, place.kind.make) for path in place.files if path not in known]

    def recall(self, found: Remembered, now: int) -> None:
        """Take as read what was delivered before; a run that was not over goes on in another life."""
        places = {one.path: one.position for one in found.files}
        known = [file for file in self.files if isinstance(file, File) and str(file.path) in places]
        rows = [row for file in known for row in file.past(places[str(file.path)])]
        deque(self.story.moments(rows, self.config, min(self.changed_ns or now, now)), maxlen=0)
        self.story.is_away = self.story.started is not None
        self._was_over = found.is_over

    def reached(self) -> Remembered:
        """How far its files were read."""
        files = [reached(file.path, file.position) for file in self.files if isinstance(file, File)]
        return Remembered(tuple(one for one in files if one is not None), is_over=self.is_over)

    @property
    def place(self) -> tuple[int, ...]:
        """Grows as its files are read, and with its end."""
        return (*(file.position for file in self.files if isinstance(file, File)), self.is_over)

    def read(self, now: int) -> list[Reported]:
        """What was written since the last look, as requests."""
        rows = [row for file in self.files for row in file.rows()]
        # Of what was there before following began the file's own time is the newest.
        at = now if self.story.rows else min(self.changed_ns or now, now)
        return self._packed(self.story.moments(rows, self.config, at))

    def read_whole(self) -> Iterator[Reported]:
        """Every row, and the end of the run."""
        rows: list[Logged] = [row for file in self.files for row in file.all()]
        yield from self._packed(self.story.moments(rows, self.config, self.changed_ns))
        yield from self.finish(self.story.last_at, "completed", f"end of {self.files[-1].path.name}")

    def alive(self, now: int) -> list[Reported]:
        """Signs of life up to now."""
        if self.story.is_away and not self._was_over:
            return self._packed(self.story.begin_again(now))
        return self._packed(self.story.alive(now))

    def finish(self, at: int, outcome: str, reason: str | None) -> list[Reported]:
        """The end: as the program left it, else as given."""
        self.is_over = True
        for file in self.files:
            file.end()
            if file.reader is not None and file.reader.known.ending is not None:
                outcome, reason = file.reader.known.ending
        return self._packed(self.story.finish(at, outcome, reason))

    @property
    def paths(self) -> list[Path]:
        """Where its files lie."""
        return [file.path for file in self.files if isinstance(file, File)]

    @property
    def config(self) -> dict[str, str]:
        """The settings that the files have."""
        return {
            name: word
            for file in self.files
            if file.reader
            for name, word in file.reader.known.config.items()
        }

    @property
    def wrote_its_end(self) -> bool:
        """Whether the program wrote that it ended."""
        return any(file.reader is not None and file.reader.known.is_over for file in self.files)

    @property
    def changed_ns(self) -> int:
        """When one of the files was written to; 0 where none is there."""
        return newest(file.path for file in self.files)

    def known(self) -> str:
        """Whose names it has, in a line."""
        library, kinds = self.story.columns.library, {file.path.name for file in self.files}
        names = f"{self.story.columns.hits} names known"
        by = "no library" if library is None else library.value
        return f"run {self.run_id} ({', '.join(sorted(kinds)[:3])}): {by}, {names}"

    def outline(self) -> str:
        """What was read, in a line."""
        return f"{self.known()}; {self.story.rows:,} rows, {self.story.updates:,} updates"

    def remarks(self) -> Iterator[str]:
        """What a reader must know, a line each."""
        for file in self.files:
            yield from file.remarks()
        if self.story.is_spaced:
            yield f"run {self.run_id}: rows without a time are a second apart; name their column with --time"
        for reason, count in self.story.refused.items():
            yield f"run {self.run_id}: {count:,} times: {reason}"

    def _packed(self, moments: Iterator[Moment]) -> list[Reported]:
        found = list(moments)
        started = self.story.started
        if not found or started is None:
            return []
        if self._packer is None:
            epoch = str(uuid.uuid4())
            origin = Origin(run_id=self.run_id, epoch=epoch, ours=True, task=started.task, algo=started.algo)
            self._packer = Packer(origin, SERVICE)
        return list(self._packer.report(found))
