"""Checkpoints of folds, so that every other tick is near one of them: three kinds, by where they lie.

`Checkpoints` of one player lie in a file, not in memory; it has no name and goes with the process.
`Lasting` ones outlive a replay, in the user's cache, as a recording may be read-only, or another's: each is
named by its tick and by a mark of all that it depends on (this build, the batches up to it, how they are
judged and thinned); one whose mark is another now is removed and never read. Of both every second one is
let go beyond a budget. `LeftBehind` are those of a collector beside its recording. Where all is there as it
came, one fits whose fold took the same batches at the same ticks: it is what a replay comes to by itself,
and only makes a place near. Where numbers were thinned or went, a replay cannot come to what was live by
itself: there every replay goes on from each of them that it passes, so that the same tick is the same frame
however it was reached.

Rules: one of another build never fits; what cannot be written or read only costs time. Must not know what a
fold holds.
"""

import contextlib
import hashlib
import os
import re
import shutil
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from overwatch.feeds.segments import Segment
from overwatch.fold import FAST_NS, SLOW_NS, Fold
from overwatch.recordings.checkpoints import Left, left_in, read_bounded, read_left, write_whole
from overwatch.recordings.stored import Scratch


class Checkpoints:
    """Bytes by tick. Not safe for several threads at once."""

    def __init__(self, every_ns: int, most_bytes: int) -> None:
        self.every_ns = every_ns
        """Recording time between two."""
        self._most_bytes = most_bytes
        self._ticks: list[int] = []
        self._places: dict[int, tuple[int, int]] = {}
        self._bytes = 0
        self._scratch = Scratch()

    def __len__(self) -> int:
        return len(self._ticks)

    def __contains__(self, tick: int) -> bool:
        return tick in self._places

    def is_due(self, tick: int) -> bool:
        """Whether one is wanted after this tick: just before each round time, so that that is near."""
        return (tick + FAST_NS) % self.every_ns == 0 and tick not in self._places

    def keep(self, tick: int, data: bytes) -> None:
        """Add one. Raises `OSError` when the disk is full."""
        self._places[tick] = self._scratch.append(data), len(data)
        insort(self._ticks, tick)
        self._bytes += len(data)
        while self._ticks and self._bytes > self._most_bytes:
            self._thin()

    def nearest(self, tick: int, floor: int) -> int | None:
        """The last one before a tick, from `floor` on."""
        place = bisect_left(self._ticks, tick) - 1
        return self._ticks[place] if place >= 0 and self._ticks[place] >= floor else None

    def read(self, tick: int) -> bytes:
        """One that is kept."""
        offset, length = self._places[tick]
        return os.pread(self._scratch.fd, length, offset)

    def forget(self, after: int = 0) -> None:
        """Let go of those after a tick."""
        del self._ticks[bisect_right(self._ticks, after) :]
        self._rewrite()

    def _thin(self) -> None:
        self.every_ns *= 2
        self._ticks = [tick for tick in self._ticks if (tick + FAST_NS) % self.every_ns == 0]
        self._rewrite()

    def _rewrite(self) -> None:
        old, before = self._scratch, self._places
        self._scratch, self._places, self._bytes = Scratch(), {}, 0
        for tick in self._ticks:
            offset, length = before[tick]
            self._places[tick] = self._scratch.append(os.pread(old.fd, length, offset)), length
            self._bytes += length


VARIABLE: Final = "OVERWATCH_REPLAY_CACHE"
"""Names the folder of the cache; `off` for none."""
EVERY_NS: Final = 30 * SLOW_NS
"""Recording time between two checkpoints."""
MOST_BYTES: Final = 256 << 20
"""Of one recording."""
MOST_RECORDINGS: Final = 16
_NAME: Final = re.compile(r"(\d{1,19})-([0-9a-f]{32})\.fold")


class LeftBehind:
    """Those that fit, by tick. Never writes."""

    def __init__(self, folder: Path, load: Callable[[bytes], Fold]) -> None:
        """`load` makes a fold of bytes; it may raise whatever it wants."""
        self._folder = folder
        self.load = load
        self._fitting: dict[int, Left] = {}
        self._adopted: set[int] = set()
        """The ticks at which every replay goes on from what was left."""

    def look(
        self, segments: Sequence[Segment], build: str, is_whole: Callable[[int], bool], after: int = 0
    ) -> None:
        """Learn which there are; what was folded up to `after` stays what it is."""
        firsts = [segment.first for segment in segments]
        for left in left_in(self._folder):
            place = bisect_right(firsts, left.tick) - 1
            if left.build != build or place < 0 or left.tick > segments[place].last:
                continue
            if is_whole(left.tick):
                if _took_the_same(segments[place], left):
                    self._fitting[left.tick] = left
            elif left.tick > after and _lies_between(segments[place], left):
                self._fitting[left.tick] = left
                self._adopted.add(left.tick)

    def __contains__(self, tick: int) -> bool:
        return tick in self._fitting

    def adopted(self, tick: int) -> list[int]:
        """The ticks up to one at which a replay goes on from what was left."""
        return sorted(one for one in self._adopted if one <= tick)

    def nearest(self, tick: int, floor: int) -> int | None:
        """The last one before a tick, from `floor` on."""
        return max((one for one in self._fitting if floor <= one < tick), default=None)

    def fold(self, tick: int) -> Fold | None:
        """That of one; `None`, and it is not known any more, where it cannot be read."""
        left = self._fitting.get(tick)
        data = None if left is None else read_left(self._folder, left)
        try:
            if data is not None:
                return self.load(data)
        except Exception:  # noqa: BLE001, S110 whatever is wrong with it, a replay does without
            pass
        self._fitting.pop(tick, None)
        self._adopted.discard(tick)
        return None

    def going_on(self, fold: Fold, taken: int) -> Fold:
        """The fold that takes the tick after `taken`."""
        if taken not in self._adopted:
            return fold
        return self.fold(taken) or fold


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
    """The checkpoints of one recording, those left behind too. Not safe for several threads at once."""

    def __init__(
        self,
        folder: Path | None,
        mark: Callable[[int], str],
        left: LeftBehind,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`mark` gives the mark of a tick, 32 hex digits."""
        self._folder = folder
        self._mark = mark
        self._left = left
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
        left = self._left.nearest(tick, floor)
        ticks = sorted((one for one in self._known if (left or floor) <= one < tick), reverse=True)
        return next((one for one in ticks if self._is_right(one)), left)

    def fold(self, tick: int) -> Fold | None:
        """That of one; `None`, and it is not known any more, where it cannot be read."""
        if tick in self._left:
            return self._left.fold(tick)
        data = self.read(tick)
        # Whatever is wrong with it, an earlier one or the begin will do.
        with contextlib.suppress(Exception):
            return None if data is None else self._left.load(data)
        self.forget(tick)
        return None

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


def _took_the_same(segment: Segment, left: Left) -> bool:
    """Whether a fold of this life takes the same batches at the same ticks."""
    counted = left.position - left.began, left.ticks
    return left.began == segment.root.began and segment.taken(left.tick) == counted


def _lies_between(segment: Segment, left: Left) -> bool:
    """Whether what came before it is before it here, and what comes later after it."""
    count, before = segment.last_up_to(left.tick, 1)
    after = segment.entries.sequences(count, count + 1)
    return all(one.sequence < left.position for one in before) and all(
        sequence >= left.position for sequence in after
    )
