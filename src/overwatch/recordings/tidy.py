"""Keeping a recording small: one clean-up of its folder, from what is left over to the last due job.

Runs as a process of its own (`python -m overwatch.recordings.tidy`), with low priority, so that whoever
records is not slowed down, and may be killed at any moment. Rules: one clean-up of a folder at a time, by
lock; a piece that cannot be rewritten is left as it is and reported, but where the disk is full the oldest
piece goes. Must not know who started it.
"""

import errno
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from overwatch.background import give_way
from overwatch.file_lock import locked
from overwatch.journal import Signal
from overwatch.otlp.thin import Span
from overwatch.recordings.checkpoints import bytes_left, forget_up_to
from overwatch.recordings.compaction import Around, Held, Job, Rules, compact, letting_go, next_job
from overwatch.recordings.files import live_lines, piece_lines
from overwatch.recordings.index import Entry, Gone, Header, Located, Raised, Started, read_entry
from overwatch.recordings.pieces import INDEX, Piece, inventory

LOCK: Final = "tidy.lock"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_MOST_NAMED: Final = 64
"""Removals that a report names, so that it fits into a pipe, and..."""
_LONGEST: Final = 500
"""...characters of each."""
_USUAL_NS: Final = 3600 * 10**9
"""Before a finding, what is usual shows in so much of what the run reports of itself."""
_KINDS: Final = (INDEX, *(signal.value for signal in Signal if signal is not Signal.START))


class CompactionJob(msgspec.Struct, frozen=True, kw_only=True):
    """One clean-up that is requested."""

    folder: str
    now: int
    """The newest stamp that was written."""
    through: int
    """The newest number that may be touched: what is beyond may still be cut by a restart."""
    rules: Rules = Rules()
    before_s: float = 120.0
    """Around a finding all numbers are kept: from so long before it was true..."""
    after_s: float = 30.0
    """...to so long after it opened."""
    parent: int | None = None
    """The process that waits for this one; once it has gone one job at most is done. `None`: none waits."""


_job: Final = msgspec.json.Decoder(CompactionJob).decode


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder holds after a clean-up."""

    bytes: int = 0
    """On disk, in pieces."""
    pieces: int = 0
    runs: dict[str, int] = {}
    """Bytes of each run in the pieces."""
    gone: dict[str, int] = {}
    """Records that went to make room, by run id, since the recording began."""
    jobs: int = 0
    """What was done."""
    removed: list[tuple[str, int]] = []
    """What went to make room now, in words, and the bytes that it had."""
    error: str | None = None
    """What could not be done."""


def tidy(wanted: CompactionJob) -> Report:
    """Do everything that is due. Raises `OSError` when the folder cannot be used."""
    folder = Path(wanted.folder)
    with locked(folder / LOCK, 0o640):
        return _Tidying(folder, wanted).run()


class _Tidying:
    """One clean-up."""

    def __init__(self, folder: Path, wanted: CompactionJob) -> None:
        self._folder = folder
        self._wanted = wanted
        self._held: dict[Piece, Held] = {}
        self._raised: dict[Piece | None, list[Raised]] = {}
        self._gone: dict[Piece, list[Gone]] = {}
        self._bad: set[Piece] = set()
        self._error: str | None = None
        self._removed: list[tuple[str, int]] = []

    def run(self) -> Report:
        """Jobs until none is due, or none waits for them any more."""
        jobs, is_full = 0, False
        self._raised[None] = [e for e in _entries(self._folder, None) if isinstance(e, Raised)]
        while True:
            held = self._look()
            if jobs and self._wanted.parent not in (None, os.getppid()):
                break
            fresh = sum(one.size for one in self._held.values() if one.piece.last > self._wanted.through)
            other = self._live_bytes() + fresh
            rules = self._wanted.rules
            # Without room to rewrite anything, something has to go first.
            job = (
                letting_go(held, rules, other)
                if is_full
                else next_job(held, rules, self._wanted.now, other, fresh)
            )
            if job is None:
                break
            try:
                piece = compact(self._folder, job, self._around(), packs=rules.packs)
                jobs, is_full = jobs + 1, False
                self._name_removed(job, piece)
            except OSError as error:
                self._error = f"{job.pieces[0].piece.name(INDEX)}: {error}"
                if is_full:
                    break
                is_full = error.errno in _FULL
                if not is_full:
                    self._bad.update(one.piece for one in job.pieces)
        # Nothing is left of the pieces at the beginning.
        forget_up_to(
            self._folder, max((one.last for one in takewhile(lambda one: one.is_gone, held)), default=0)
        )
        return self._report(held, jobs)

    def _look(self) -> list[Held]:
        """What there is to do something about; what is left over is removed."""
        found = inventory(os.listdir(self._folder))  # noqa: PTH208 names are all that is needed
        for name in found.leftovers:
            (self._folder / name).unlink(missing_ok=True)
        (self._folder / f"{INDEX}.new").unlink(missing_ok=True)
        for piece in found.pieces:
            if piece not in self._held and piece not in self._bad:
                try:
                    self._held[piece] = self._read(piece)
                except OSError as error:
                    self._bad.add(piece)
                    self._error = f"{piece.name(INDEX)}: {error}"
        for gone in self._held.keys() - set(found.pieces):
            del self._held[gone], self._raised[gone], self._gone[gone]
        return [
            self._held[piece]
            for piece in found.pieces
            if piece in self._held and piece not in self._bad and piece.last <= self._wanted.through
        ]

    def _read(self, piece: Piece) -> Held:
        size = self._size(piece)
        self._raised[piece], self._gone[piece] = [], []
        header: Header | None = None
        last = 0
        for entry in _entries(self._folder, piece):
            match entry:
                case Raised():
                    self._raised[piece].append(entry)
                case Gone():
                    self._gone[piece].append(entry)
                case Located(stamp=stamp) | Started(stamp=stamp) if header is None:
                    last = max(last, stamp)
                case Header() if piece.generation:
                    header, last = entry, entry.last_stamp or 0
                case _ if header is not None:
                    break
                case _:
                    pass
        if piece.generation and header is None:
            raise OSError(f"{self._folder / piece.name(INDEX)} has no header")
        return Held(piece=piece, size=size, last=last, shares={} if header is None else header.runs)

    def _name_removed(self, job: Job, piece: Piece) -> None:
        """Note what a job let go of, by run: what its pieces had lost before is not named again."""
        lost = Counter[str]()
        for each in (each for one in job.pieces for each in self._gone[one.piece]):
            lost[each.gone] += each.records or each.batches
        words = [
            f"{count:,} records of run {each.gone!r} up to {_time(each.last)}"
            for each in _entries(self._folder, piece)
            if isinstance(each, Gone) and (count := (each.records or each.batches) - lost[each.gone]) > 0
        ]
        if words and len(self._removed) < _MOST_NAMED:
            size = sum(one.size for one in job.pieces) - self._size(piece)
            self._removed.append(("; ".join(words)[:_LONGEST], max(0, size)))

    def _size(self, piece: Piece) -> int:
        paths = (self._folder / piece.name(kind) for kind in _KINDS)
        return sum(path.stat().st_size for path in paths if path.exists())

    def _around(self) -> Around:
        reported = [raised for many in self._raised.values() for raised in many]
        before, after = round(self._wanted.before_s * 1e9), round(self._wanted.after_s * 1e9)
        return Around(
            kept=_spans(reported, before, after), usual=_spans(reported, max(before, _USUAL_NS), after)
        )

    def _live_bytes(self) -> int:
        paths = (self._folder / f"{kind}.jsonl" for kind in _KINDS)
        return bytes_left(self._folder) + sum(path.stat().st_size for path in paths if path.exists())

    def _report(self, held: list[Held], jobs: int) -> Report:
        runs = {run_id: 0.0 for one in held for run_id in one.shares}
        for run_id in runs:
            runs[run_id] = sum(one.size_of(run_id) for one in held)
        gone: dict[str, int] = {}
        for each in (each for many in self._gone.values() for each in many):
            gone[each.gone] = gone.get(each.gone, 0) + (each.records or each.batches)
        return Report(
            bytes=sum(one.size for one in held),
            pieces=len(held),
            runs={run_id: round(size) for run_id, size in runs.items() if size},
            gone=gone,
            jobs=jobs,
            removed=self._removed,
            error=self._error,
        )


def _time(stamp: int) -> str:
    return datetime.fromtimestamp(stamp / 1e9, UTC).isoformat(timespec="seconds")


def _entries(folder: Path, piece: Piece | None) -> Iterator[Entry]:
    """What an index holds, `None` being the one that is written to, as far as it can be read."""
    for line in live_lines(folder) if piece is None else piece_lines(folder, piece):
        try:
            yield read_entry(line)
        except msgspec.DecodeError:
            continue


def _spans(reported: Sequence[Raised], before_ns: int, after_ns: int) -> dict[str, list[Span]]:
    """From so long before to so long after each finding, by run, those that overlap as one."""
    found: dict[str, list[Span]] = {}
    for raised in sorted(reported, key=lambda raised: raised.around(before_ns, after_ns)):
        start, end = raised.around(before_ns, after_ns)
        spans = found.setdefault(raised.run, [])
        if spans and start <= spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return found


def main() -> int:
    """A job as JSON on the command line, its report as JSON on stdout; 1 where the folder cannot be used."""
    give_way()
    wanted = _job(sys.argv[1])
    try:
        report = tidy(wanted)
    except OSError as error:
        report = Report(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0 if report.error is None else 1


if __name__ == "__main__":
    sys.exit(main())
