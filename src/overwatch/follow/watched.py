"""The runs of a path as they appear: of a file its own, of a folder those that are written to.

Rules: a path that is not there yet is waited for. Of a folder only what was written to lately, or is the
newest, is followed at once; an older run is, from its beginning, once it is written to. Must not know what
becomes of rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from overwatch.follow.base import Reader
from overwatch.follow.files import File, find, newest, run_id_of_file
from overwatch.follow.readers import Format, by_name
from overwatch.follow.runs import Run
from overwatch.follow.story import Declared

RECENT_NS: Final = 600_000_000_000
"""What was written to within this time is followed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be read, and how."""

    path: Path
    declared: Declared = field(default_factory=Declared)
    make: Callable[[], Reader] | None = None
    """The reader of a single file; `None` where its name or its bytes decide."""
    kind: str | None = None
    """The only format that is read of a folder."""
    run_id: str | None = None
    is_all: bool = True
    """Old runs of a folder, too."""


class Watched:
    """What is below one path."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.runs: dict[str, Run] = {}
        self.left = 0
        """Old runs that are not followed."""
        self._since: int | None = None
        self._kinds: dict[str, Format] = {}
        """What is read of each run of a folder."""
        self._run_of: dict[Path, str] = {}

    def scan(self, now: int) -> None:
        """Take up what appeared. Raises `ValueError` where one run was named and there are several."""
        wanted = self._wanted
        if wanted.path.is_dir():
            self._scan_folder(now)
        elif not self.runs and wanted.path.exists():
            kind = by_name(wanted.path.name)
            run_id = wanted.run_id or run_id_of_file(wanted.path, kind)
            make = wanted.make or (kind.make if kind is not None and wanted.path.suffix else None)
            self.runs[run_id] = Run(run_id, [File(wanted.path, make)], wanted.declared)

    def _scan_folder(self, now: int) -> None:
        wanted = self._wanted
        places = find(wanted.path, wanted.kind)
        if wanted.run_id is not None and len(places) > 1:
            raise ValueError(
                f"--run names one run, and {wanted.path} has {len(places)}; name the folder of one"
            )
        written = {place.run_id: newest(place.files) for place in places}
        if self._since is None:
            self._since = min(now - RECENT_NS, max(written.values(), default=now) - 1)
            if wanted.is_all:
                self._since = -1
        self.left = 0
        for place in places:
            run_id = wanted.run_id or place.run_id
            known = next((self._run_of[path] for path in place.files if path in self._run_of), run_id)
            if known in self.runs:
                # A file that came beside a run's own may give both another name, or have a surer format.
                if known == run_id and place.kind is self._kinds[known]:
                    self.runs[known].add(place)
                    self._run_of.update(dict.fromkeys(place.files, known))
            elif written[place.run_id] > self._since:
                self._kinds[run_id] = place.kind
                self._run_of.update(dict.fromkeys(place.files, run_id))
                files = [place.open(path) for path in place.files]
                self.runs[run_id] = Run(run_id, files, wanted.declared)
            else:
                self.left += 1
