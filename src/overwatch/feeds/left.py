"""The checkpoints that a collector left beside its recording, as far as they fit what is replayed.

Rules: where all is there as it came, one fits whose fold took the same batches at the same ticks: it is what
a replay comes to by itself, and only makes a place near. Where numbers were thinned or went, a replay cannot
come to what was live by itself: there every replay goes on from each of them that it passes, so that the same
tick is the same frame however it was reached. One of another build never fits. Must not know what a fold
holds.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from overwatch.feeds.segments import Segment
from overwatch.fold import Fold
from overwatch.recordings.checkpoints import Left, left_in, read_left


class LeftBehind:
    """Those that fit, by tick. Never writes."""

    def __init__(self, folder: Path, load: Callable[[bytes], Fold]) -> None:
        """`load` makes a fold of bytes; it may raise whatever it wants."""
        self._folder = folder
        self._load = load
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

    def adopted(self, tick: int) -> list[int]:
        """The ticks up to one at which a replay goes on from what was left."""
        return sorted(one for one in self._adopted if one <= tick)

    def nearest(self, tick: int, floor: int) -> int | None:
        """The last one before a tick, from `floor` on."""
        return max(_between(self._fitting, floor, tick), default=None)

    def fold(self, tick: int) -> Fold | None:
        """That of one; `None`, and it is not known any more, where it cannot be read."""
        left = self._fitting.get(tick)
        data = None if left is None else read_left(self._folder, left)
        try:
            if data is not None:
                return self._load(data)
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


def _between(ticks: Iterable[int], floor: int, tick: int) -> Iterable[int]:
    return (one for one in ticks if floor <= one < tick)


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
