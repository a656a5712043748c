"""Checkpoints of a replay that outlive it: another one seeks from the nearest of them.

They lie in the user's cache, as a recording may be read-only, or another's. Rules: each is named by its tick
and by a mark of all that it depends on (this build, the batches up to it, how they are judged and thinned);
one whose mark is another now is removed and never read. What cannot be written or read only costs time.
Beyond a budget every second one is let go of, and of several recordings the one used longest ago. Must not
know what a fold is.
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.recordings.checkpoints import read_bounded, write_whole

VARIABLE: Final = "OVERWATCH_REPLAY_CACHE"
"""Names the folder of the cache; `off` for none."""
EVERY_NS: Final = 30 * SLOW_NS
"""Recording time between two checkpoints."""
MOST_BYTES: Final = 256 << 20
"""Of one recording."""
MOST_RECORDINGS: Final = 16
_NAME: Final = re.compile(r"(\d{1,19})-([0-9a-f]{32})\.fold")


def cache_folder(path: Path, env: Mapping[str, str] = os.environ) -> Path | None:
    """Where checkpoints of the recording at a path lie; `None` where none are kept."""
    given, home = env.get(VARIABLE, ""), env.get("XDG_CACHE_HOME", "")
    if given == "off":
        return None
    if not given and not home.startswith("/"):
        home = os.path.expanduser("~/.cache")  # noqa: PTH111 never raises, as Path.home does
    root = Path(given) if given else Path(home) / "overwatch" / "replay"
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=16).hexdigest()
    return root / name if root.is_absolute() else None


class Lasting:
    """The checkpoints of one recording. Not safe for several threads at once."""

    def __init__(self, folder: Path | None, mark: Callable[[int], str], most_bytes: int = MOST_BYTES) -> None:
        """`mark` gives the mark of a tick, 32 hex digits."""
        self._folder = folder
        self._mark = mark
        self._most_bytes = most_bytes
        self._every_ns = EVERY_NS
        self._known: dict[int, str] = {}
        """Marks by tick, as files are named..."""
        self._right: set[int] = set()
        """...and the ticks of those that are right."""
        self._bytes = 0
        with contextlib.suppress(OSError):
            for one in [] if folder is None else list(os.scandir(folder)):
                found = _NAME.fullmatch(one.name)
                if found is not None:
                    self._known[int(found[1])] = found[2]
                    self._bytes += one.stat().st_size

    def is_due(self, tick: int) -> bool:
        """Whether one is wanted after this tick: just before each round time, so that that is near."""
        is_round = (tick + FAST_NS) % self._every_ns == 0
        return is_round and self._folder is not None and not self._is_right(tick)

    def keep(self, tick: int, data: bytes) -> None:
        """Add one; where that fails none is added any more."""
        folder = self._folder
        if folder is None:
            return
        mark = self._mark(tick)
        try:
            if not self._known:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _tidy(folder)
            write_whole(self._path(tick, mark), data)
        except OSError:
            self._folder = None
            return
        self._known[tick] = mark
        self._right.add(tick)
        self._bytes += len(data)
        if self._bytes > self._most_bytes:
            self._thin()

    def nearest(self, tick: int, floor: int) -> int | None:
        """The last one before a tick, from `floor` on."""
        ticks = sorted((one for one in self._known if floor <= one < tick), reverse=True)
        return next((one for one in ticks if self._is_right(one)), None)

    def read(self, tick: int) -> bytes | None:
        """One that is kept; `None`, and it is no more, where it cannot be read."""
        try:
            return read_bounded(self._path(tick, self._known[tick]))
        except OSError:
            self.forget(tick)
            return None

    def forget(self, tick: int) -> None:
        """Let go of one."""
        mark = self._known.pop(tick, None)
        if mark is None:
            return
        path = self._path(tick, mark)
        self._right.discard(tick)
        with contextlib.suppress(OSError):
            self._bytes -= path.stat().st_size
            path.unlink()

    def _is_right(self, tick: int) -> bool:
        if tick in self._known and tick not in self._right:
            if self._known[tick] == self._mark(tick):
                self._right.add(tick)
            else:
                self.forget(tick)
        return tick in self._known

    def _thin(self) -> None:
        self._every_ns *= 2
        for tick in [one for one in self._known if (one + FAST_NS) % self._every_ns]:
            self.forget(tick)

    def _path(self, tick: int, mark: str) -> Path:
        return (self._folder or Path()) / f"{tick}-{mark}.fold"


def _tidy(folder: Path) -> None:
    """Let go of recordings that were used longest ago; raises `OSError`."""
    others = [Path(one.path) for one in os.scandir(folder.parent) if one.is_dir() and one.path != str(folder)]
    others.sort(key=lambda one: one.stat().st_mtime_ns)
    for old in others[: max(0, len(others) + 1 - MOST_RECORDINGS)]:
        shutil.rmtree(old, ignore_errors=True)
