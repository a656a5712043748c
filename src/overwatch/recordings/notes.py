"""What a recording's index tells beside batches: findings, what went, and where numbers were thinned.

A finding can only be found anew where the numbers are whole: what stands around each is kept for that, and
elsewhere a gap between two numbers would look like trouble. Must not know how it is replayed.
"""

from bisect import bisect_right
from typing import Final

from overwatch.otlp.grain import Grain
from overwatch.recordings.index import Gone, Header, Located, Raised, Share, Started

_SETTLES_NS: Final = 5_000_000_000
"""Time after which numbers that are whole again show what is usual."""
_NOBODY: Final[frozenset[str]] = frozenset()


class Notes:
    """Filled in order of the index."""

    def __init__(self) -> None:
        self.findings: list[Raised] = []
        """Those that were seen open while it was recorded."""
        self.gone: list[Gone] = []
        """What went to make room."""
        self.thinned: dict[str, dict[Grain, int]] = {}
        """By run and grain, the stamp up to which numbers have it."""
        self._firsts: list[int] = []
        self._stretches: list[dict[str, Share]] = []
        """From each of these stamps on, the runs that are thinned."""
        self._is_whole = False
        """The piece that is read tells its first stamp by its first line."""

    def piece(self, header: Header) -> None:
        """A piece begins."""
        self._is_whole = header.first_stamp is None
        if header.first_stamp is None:
            return
        thinned = {}
        for run_id, share in header.runs.items():
            if share.grain not in (Grain.WHOLE, Grain.GONE):
                thinned[run_id] = share
                of_run = self.thinned.setdefault(run_id, {})
                of_run[share.grain] = max(of_run.get(share.grain, 0), header.last_stamp or 0)
        self._begin(header.first_stamp, thinned)

    def told(self, entry: Located | Started) -> None:
        """A batch or a start."""
        if self._is_whole:
            self._is_whole = False
            self._begin(entry.stamp, {})

    def hushed(self, tick: int) -> frozenset[str]:
        """The runs in which nothing can be found anew at a tick."""
        place = bisect_right(self._firsts, tick) - 1
        thinned = self._stretches[place] if place >= 0 else {}
        if not thinned:
            return _NOBODY
        return frozenset(run_id for run_id, share in thinned.items() if not _is_kept(share, tick))

    def _begin(self, first: int, thinned: dict[str, Share]) -> None:
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
            self._stretches.append(thinned)


def _is_kept(share: Share, tick: int) -> bool:
    place = bisect_right(share.kept, tick, key=lambda span: span[0]) - 1
    return place >= 0 and share.kept[place][0] + _SETTLES_NS <= tick <= share.kept[place][1]
