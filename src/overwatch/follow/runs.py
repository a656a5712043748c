"""A followed run: its files, its story, and its end.

Rules: rows of several files are taken in the order of their times. What a program left of its own end goes
before what the end of following states. Must not know where events go.
"""

import heapq
import math
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.events import FOLLOWER, Origin
from overwatch.follow.base import Logged, Source
from overwatch.follow.files import File, Place, Reached, newest
from overwatch.follow.memory import Remembered
from overwatch.follow.story import AWAY_NS, SECOND, Declared, Story
from overwatch.simulate import Moment
from overwatch.simulate.delivery import GROUP_NS, Packer, Reported

MOST_ROWS: Final = 1000
"""Taken at one look."""
MOST_NAMED: Final = 3
"""Names in one line."""
TOGETHER_NS: Final = 1 << 62
"""What is sent may be as far apart as it is: the collector gives it the stamp at which it comes."""


class Run:
    """One run."""

    def __init__(self, run_id: str, files: Sequence[Source], declared: Declared) -> None:
        self.run_id = run_id
        self.files = list(files)
        self.is_over = False
        self._declared = declared
        self.story = self._surveyed()
        self._was_over = False
        """Whether its end was delivered, by this `follow` or one before, and nothing was written since."""
        self._packer: Packer | None = None
        self._keys: dict[Path, tuple[Logged, float]] = {}
        """By file, the row that comes next and where it is in time."""

    def _surveyed(self) -> Story:
        """A story that knows what the files hold by now: names, how many rows, and since when."""
        story = Story(self._declared)
        for one in self.files:
            if isinstance(one, File):
                file = File(one.path, one.make)
                while file.look():
                    story.survey(file.waiting.popleft())
                file.end()
        story.begins(self.changed_ns)
        return story

    def add(self, place: Place) -> None:
        """Files that appeared since."""
        known = {file.path for file in self.files}
        self.files += [place.open(path) for path in place.files if path not in known]

    def recall(self, found: Remembered, now: int) -> bool:
        """Take as read what was delivered before; whether the files still have it, but for their oldest rows.

        A run that was not over goes on in another life; updates are numbered on in any case.
        """
        places = {one.path: one for one in found.files}
        known = [place for place, file in enumerate(self.files) if str(file.path) in places]
        parts = [self._past(place, places[str(self.files[place].path)]) for place in known]
        if len(known) < len(places) or None in parts:
            self.files = [File(one.path, one.make) if isinstance(one, File) else one for one in self.files]
            self.story = self._surveyed()
            self.story.updates = found.updates
            return False
        rows = heapq.merge(*(part for part in parts if part), key=lambda row: self.story.when(row) or 0.0)
        at = min(self.changed_ns or now, now)
        deque(self.story.moments(list(rows), self.config, at), maxlen=0)
        self.story.updates = max(self.story.updates, found.updates)
        self.story.is_away = self.story.started is not None
        self._was_over = found.is_over
        return True

    def _past(self, place: int, reached: Reached) -> list[Logged] | None:
        """Take the rows of a file up to where it was reached; `None` where it is another file."""
        file = self.files[place]
        if not isinstance(file, File):
            return None
        rows = file.past(reached)
        behind = File(file.path, file.make).find(reached.newest) if rows is None else None
        if behind is None:
            return rows
        file.end()
        self.files[place] = file = File(file.path, file.make)
        return file.past(behind)

    def remembered(self) -> Remembered:
        """How far its files were read."""
        files = tuple(file.reached() for file in self.files if isinstance(file, File))
        return Remembered(files, self.is_over or self._was_over, self.story.updates)

    def read(self, now: int) -> list[Reported]:
        """What was written since the last look, or part of much, as requests."""
        rows = self._rows()
        # Of what was there before following began the file's own time is the newest.
        at = now if self.story.rows else min(self.changed_ns or now, now)
        self._was_over = self._was_over and not rows
        return self._packed(self.story.moments(rows, self.config, at))

    def _rows(self) -> list[Logged]:
        """Rows that wait in any file, in order of their times."""
        if len(self.files) == 1:
            file, rows = self.files[0], list[Logged]()
            file.look()
            while file.waiting and len(rows) < MOST_ROWS:
                rows.append(file.take())
            return rows
        return list(islice(self._merged(), MOST_ROWS))

    def _merged(self) -> Iterator[Logged]:
        drained: set[Path] = set()
        while True:
            for file in self.files:
                if file.path not in drained and not file.look():
                    drained.add(file.path)
            ready = [file for file in self.files if file.waiting]
            if not ready:
                return
            yield min(ready, key=self._when).take()

    def _when(self, file: Source) -> float:
        row, known = file.waiting[0], self._keys.get(file.path)
        if known is None or known[0] is not row:
            at = self.story.when(row)
            before = -math.inf if known is None else known[1]
            known = self._keys[file.path] = (row, before if at is None else at)
        return known[1]

    def read_whole(self) -> Iterator[Reported]:
        """Every row, and the end of the run; memory holds a part of them."""
        while rows := self._rows():
            for file in self.files:
                if isinstance(file, File):
                    file.rest()
            yield from self._packed(self.story.moments(rows, self.config, self.changed_ns), GROUP_NS)
        yield from self.finish(0, "ended", f"the end of {self.files[-1].path.name} shows no outcome")

    def alive(self, now: int) -> list[Reported]:
        """Signs of life up to now; the end, where nothing was written for long."""
        if self.story.is_away and not self._was_over:
            return self._packed(self.story.begin_again(now))
        if not self.paths or now - self.changed_ns <= AWAY_NS or self._was_over:
            return self._packed(self.story.alive(now))
        ending = self._ending() or ("ended", f"nothing was written for {duration(AWAY_NS / SECOND)}")
        requests = self._packed(self.story.finish(self.story.last_at, *ending))
        self.story.is_away = self.story.started is not None
        self._was_over = True
        return requests

    def finish(self, at: int, outcome: str, reason: str | None) -> list[Reported]:
        """The rows that waited for more, and the end: as the program left it, else as given."""
        self.is_over = True
        for file in self.files:
            file.end()
        moments: list[Moment] = []
        while rows := [file.take() for file in self.files if file.waiting]:
            moments += self.story.moments(rows, self.config, max(at, self.changed_ns))
        moments += self.story.finish(at, *(self._ending() or (outcome, reason)))
        return self._packed(iter(moments))

    def _ending(self) -> tuple[str, str | None] | None:
        """Outcome and reason, where the program left them."""
        endings = [file.reader.known.ending for file in self.files if file.reader is not None]
        return next((ending for ending in reversed(endings) if ending is not None), None)

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
        if texts := self.story.texts:
            named = [
                f"{' '.join(name.split())} ({count:,} times)" for name, count in texts.most_common(MOST_NAMED)
            ]
            more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
            yield f"run {self.run_id}: values that are no number, and are not shown: {', '.join(named)}{more}"
        for reason, count in self.story.refused.items():
            yield f"run {self.run_id}: {count:,} times: {reason}"

    def _packed(self, moments: Iterator[Moment], apart_ns: int = TOGETHER_NS) -> list[Reported]:
        found = list(moments)
        started = self.story.started
        if not found or started is None:
            return []
        if self._packer is None:
            epoch = str(uuid.uuid4())
            origin = Origin(run_id=self.run_id, epoch=epoch, ours=True, task=started.task, algo=started.algo)
            self._packer = Packer(origin, FOLLOWER)
        return list(self._packer.report(found, apart_ns))
