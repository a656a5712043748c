"""Checkpoints of the fold beside a recording: written by the collector that records, sought from by a replay.

Rules: a file is written whole and never changed. Its name holds all that decides whether it fits, so that
only one that fits is read. Older ones are fewer: the time to the next is at most a small part of their age.
Must not know what a fold holds, nor who seeks.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import overwatch
from overwatch.aggregator import Checkpoint
from overwatch.fold import SLOW_NS
from overwatch.regular import read_regular

FOLDER: Final = "checkpoints"
"""Below the recording's folder."""
EVERY_NS: Final = 120 * SLOW_NS
"""Recording time between two."""
OF_AGE: Final = 64
"""Two may be as far apart as this part of their age."""
OF_BUDGET: Final = 64
"""All of them may have this part of the recording's budget."""
MOST_BYTES: Final = 1 << 30
"""Of one that is read."""
_UNFINISHED: Final = ".part-"
_NAME: Final = re.compile(r"(\d{1,19})-(\d{1,19})-(\d{1,19})-(\d{1,19})-([0-9a-f]{32})\.fold")


@dataclass(frozen=True, slots=True, order=True)
class Left:
    """One checkpoint, by its name."""

    tick: int
    """The last tick in the fold, Unix nanoseconds."""
    began: int
    """Sequence of the first batch in the fold: the start record of the life in which it began empty."""
    position: int
    """Sequence of the first batch that is not in the fold."""
    ticks: int
    """How many the fold took."""
    build: str
    """Of the Overwatch that folded."""

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.tick}-{self.began}-{self.position}-{self.ticks}-{self.build}.fold"


@cache
def build() -> str:
    """What identifies a build, as another may fold differently: version and source, wherever it lies."""
    root = Path(overwatch.__file__).parent
    mark = hashlib.blake2b(overwatch.__version__.encode(), digest_size=16)
    for path in sorted(root.rglob("*.py")):
        mark.update(path.relative_to(root).as_posix().encode())
        mark.update(hashlib.blake2b(path.read_bytes()).digest())
    return mark.hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, under its name once it is whole. Raises `OSError`."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_UNFINISHED, delete=False) as part:
        try:
            part.write(data)
            part.flush()
            os.replace(part.name, path)  # noqa: PTH105 a name, not a path
        except OSError:
            os.unlink(part.name)  # noqa: PTH108 as above
            raise


def read_bounded(path: Path) -> bytes:
    """A whole file; raises `OSError`, for one that is too large too, before it is read."""
    return read_regular(path, MOST_BYTES)


def left_in(recording: Path) -> list[Left]:
    """The checkpoints beside a recording, in order of their ticks; none where they cannot be listed."""
    try:
        names = os.listdir(recording / FOLDER)  # noqa: PTH208 names are all that is needed
    except OSError:
        return []
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(
        Left(tick=int(one[1]), began=int(one[2]), position=int(one[3]), ticks=int(one[4]), build=one[5])
        for one in found
        if one is not None
    )


def read_left(recording: Path, left: Left) -> bytes | None:
    """The fold of one; `None` where it cannot be read."""
    try:
        return read_bounded(recording / FOLDER / left.name)
    except OSError:
        return None


def forget_up_to(recording: Path, stamp: int) -> None:
    """Remove those of a part of the recording that is no longer there. Raises `OSError`."""
    for left in left_in(recording):
        if left.tick <= stamp:
            (recording / FOLDER / left.name).unlink(missing_ok=True)


def bytes_left(recording: Path) -> int:
    """What all of them have on disk."""
    return sum(_size(recording / FOLDER / left.name) for left in left_in(recording))


def thinned(lefts: Sequence[Left], now: int, factor: int = 1) -> list[Left]:
    """Those that stay: each that is needed for the time between two to be short for their age."""
    kept: list[Left] = []
    for left, following in zip(lefts, (*lefts[1:], None), strict=True):
        apart = factor * max(EVERY_NS, (now - left.tick) // OF_AGE)
        if not kept or following is None or following.tick - kept[-1].tick > apart:
            kept.append(left)
    return kept


class Leaving:
    """Leaves some of a collector's own checkpoints beside its recording. Used from one thread."""

    def __init__(self, recording: Path, budget_bytes: int) -> None:
        """`budget_bytes` is what the whole recording may have."""
        self._recording = recording
        self._most_bytes = budget_bytes // OF_BUDGET
        self._newest: int | None = None

    def take(self, checkpoint: Checkpoint) -> bool:
        """Leave one when it is time for it; whether it was. Raises `OSError`."""
        if self._newest is None:
            self._newest = max((left.tick for left in left_in(self._recording)), default=0)
        if 0 <= checkpoint.tick - self._newest < EVERY_NS:
            return False
        left = Left(
            tick=checkpoint.tick, began=checkpoint.position - checkpoint.batches,
            position=checkpoint.position, ticks=checkpoint.ticks, build=build(),
        )  # fmt: skip
        folder = self._recording / FOLDER
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        write_whole(folder / left.name, checkpoint.fold)
        self._newest = left.tick
        self._clean(folder, left.tick)
        return True

    def _clean(self, folder: Path, now: int) -> None:
        """Remove those that are too many, and what a life that was killed had not finished."""
        lefts = left_in(self._recording)
        sizes = {left: _size(folder / left.name) for left in lefts}
        factor, kept = 1, thinned(lefts, now)
        while sum(sizes[left] for left in kept) > self._most_bytes:
            factor *= 2
            kept = thinned(kept, now, factor) if len(kept) > 2 else []
        for left in set(lefts).difference(kept):
            (folder / left.name).unlink(missing_ok=True)
        for part in folder.glob(f"{_UNFINISHED}*"):
            part.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
