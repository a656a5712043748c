"""What a recording's index tells beside batches: findings, what went, and where numbers were thinned.

Where numbers were thinned, a gap between two of them looks like trouble: there only those findings are found
anew that were seen open then, for what stands around them was kept. Must not know how it is replayed.
"""

from bisect import bisect_right
from typing import Final

from overwatch.otlp.thin import RetentionLevel
from overwatch.recordings.index import BACK_NS, Gone, Header, Located, Raised, Started

_AROUND_NS: Final = 5_000_000_000
"""A finding may be found so long before it was true, by clocks that differ, and after it was seen open."""
_LONGEST_NS: Final = BACK_NS + 2 * _AROUND_NS
_NOBODY: Final[dict[str, frozenset[str]]] = {}


class Notes:
    """Filled in order of the index."""

    def __init__(self) -> None:
        self.findings: list[Raised] = []
        """Those that were seen open while it was recorded."""
        self.gone: list[Gone] = []
        """What went to make room."""
        self.thinned: dict[str, dict[RetentionLevel, int]] = {}
        """By run and grain, the stamp up to which numbers have it."""
        self._firsts: list[int] = []
        self._spans: dict[str, list[tuple[int, int, str]]] | None = None
        """When each finding may be found, by run; made once all findings are known."""
        self._stretches: list[frozenset[str]] = []
        """From each of these stamps on, the runs that are thinned."""
        self._is_whole = False
        """The piece that is read tells its first stamp by its first line."""
        self._pieces: list[tuple[int, frozenset[str] | None]] = []
        """First stamp of each piece, and the runs in it, the empty id for what names none; `None`: any."""

    def piece(self, header: Header) -> None:
        """A piece begins."""
        self._is_whole = header.first_stamp is None
        if header.first_stamp is None:
            return
        self._pieces.append((header.first_stamp, frozenset(header.runs)))
        thinned = set()
        for run_id, share in header.runs.items():
            if share.grain not in (RetentionLevel.WHOLE, RetentionLevel.GONE):
                thinned.add(run_id)
                of_run = self.thinned.setdefault(run_id, {})
                of_run[share.grain] = max(of_run.get(share.grain, 0), header.last_stamp or 0)
        self._begin(header.first_stamp, frozenset(thinned))

    def told(self, entry: Located | Started) -> None:
        """A batch or a start."""
        if self._is_whole:
            self._is_whole = False
            self._pieces.append((entry.stamp, None))
            self._begin(entry.stamp, frozenset())

    def first_of(self, run_id: str) -> int | None:
        """No batch of a run is in a piece that begins before this stamp; `None` where none can be of it."""
        wanted = {run_id, ""}
        return min((first for first, runs in self._pieces if runs is None or wanted & runs), default=None)

    def hushed(self, tick: int) -> dict[str, frozenset[str]]:
        """By run whose numbers are thinned at a tick: the findings that may be found there."""
        place = bisect_right(self._firsts, tick) - 1
        thinned = self._stretches[place] if place >= 0 else None
        return {run_id: self._found(run_id, tick) for run_id in thinned} if thinned else _NOBODY

    def is_whole(self, tick: int) -> bool:
        """Whether all that came up to a tick is there as it came."""
        is_thinned = any(
            runs for first, runs in zip(self._firsts, self._stretches, strict=True) if first <= tick
        )
        return not is_thinned and all(gone.first > tick for gone in self.gone)

    @property
    def told_of_thinning(self) -> tuple[object, ...]:
        """All that `hushed` goes by; empty where nothing was thinned."""
        if not any(self._stretches):
            return ()
        stretches = [sorted(runs) for runs in self._stretches]
        return self.thinned, self._firsts, stretches, self.findings

    def _found(self, run_id: str, tick: int) -> frozenset[str]:
        """The findings that were open first around a tick."""
        if self._spans is None:
            self._spans = {}
            for raised in self.findings:
                self._spans.setdefault(raised.run, []).append(
                    (*raised.around(_AROUND_NS, _AROUND_NS), raised.finding)
                )
            for spans in self._spans.values():
                spans.sort()
        spans = self._spans.get(run_id, [])
        place = bisect_right(spans, tick, key=lambda span: span[0])
        found = set()
        while place > 0 and spans[place - 1][0] > tick - _LONGEST_NS:
            place -= 1
            if tick <= spans[place][1]:
                found.add(spans[place][2])
        return frozenset(found)

    def _begin(self, first: int, thinned: frozenset[str]) -> None:
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
            self._stretches.append(thinned)
