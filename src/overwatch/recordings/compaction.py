"""Keeping a recording small: what is to be done next, and rewriting neighbouring pieces as one.

Planning is pure, from what lies in the folder. What was rotated is packed; numbers are thinned by age, whole
pieces at a time; where a run or the folder is beyond its budget, the oldest numbers are thinned before their
time, and where even facts are too many, the oldest go. Where batches come faster than all this is done, the
oldest pieces go first of all, and whole. Neighbours that are alike become one piece, so that there are never
many.

Rewriting: the new data files and then the new index are whole and on disk before the index gets its name,
which is the moment at which the new piece is there and the old ones are left over; killed at any moment,
either they or it count, and the next clean-up removes the rest. What cannot be read is left out and
counted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from overwatch.journal import Batch, Signal
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from overwatch.otlp.thin import Loss, RetentionLevel, Span, Thinning, thin
from overwatch.otlp.wire import MalformedBody
from overwatch.platform import sync_folder
from overwatch.recordings.files import RecordingFiles, piece_lines
from overwatch.recordings.index import (
    Ended,
    Gone,
    Header,
    Located,
    Raised,
    Share,
    Started,
    new_header,
    read_entry,
)
from overwatch.recordings.packed import LineWriter
from overwatch.recordings.pieces import INDEX, Piece

_RUN: Final = re.compile(rb'"key":"rl\.run\.id","value":\{"stringValue":("(?:[^"\\]|\\.)*")')
_UNREADABLE: Final = "?"

_Reported: TypeAlias = Located | Started | Ended
_MINUTE_NS: Final = 60_000_000_000
_HOUR_NS: Final = 60 * _MINUTE_NS
_DAY_NS: Final = 24 * _HOUR_NS
_MIB: Final = 1 << 20
_ALIKE: Final = 8
"""Pieces that become one."""
_BEHIND: Final = 2
"""Full pieces that come while one clean-up is at work: it is slower than what is written."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, and for how long."""

    packs: bool = True
    """Whether rotated pieces are packed."""
    thins: bool = True
    """Whether numbers are thinned by age."""
    whole_minutes: float = 10
    """For so long all numbers are kept."""
    second_hours: float = 6
    """For so long one a second is; after that one a minute."""
    max_days: float | None = None
    """What is older goes."""
    piece_mib: float = 64
    """Most MiB of a piece that is made of several."""
    run_mib: float = 2048
    folder_mib: float = 10240

    def by_age(self, age_ns: int) -> RetentionLevel:
        """What is kept of a piece whose newest batch is so old."""
        if self.max_days is not None and age_ns > self.max_days * _DAY_NS:
            return RetentionLevel.GONE
        if not self.thins or age_ns <= self.whole_minutes * _MINUTE_NS:
            return RetentionLevel.WHOLE
        return RetentionLevel.SECOND if age_ns <= self.second_hours * _HOUR_NS else RetentionLevel.MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A piece and what is known of it."""

    piece: Piece
    size: int
    """Bytes on disk."""
    last: int
    """Stamp of its newest batch, 0 where that is not known."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """By run id; none of a piece that was not rewritten yet."""

    def size_of(self, run_id: str) -> float:
        """Bytes on disk that are a run's."""
        whole = sum(share.bytes for share in self.shares.values())
        share = self.shares.get(run_id)
        return self.size * share.bytes / whole if share is not None and whole else 0.0

    @property
    def retentions(self) -> dict[str, RetentionLevel]:
        """What is left of each run."""
        return {run_id: share.retention for run_id, share in self.shares.items()}

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of anything."""
        return bool(self.shares) and all(
            retention is RetentionLevel.GONE for retention in self.retentions.values()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Neighbouring pieces that are to become one."""

    pieces: tuple[Held, ...]
    floor: RetentionLevel = RetentionLevel.WHOLE
    """Every run is to be this coarse at least."""
    retentions: Mapping[str, RetentionLevel] = field(default_factory=dict)
    """Runs that are to be coarser."""


def next_job(
    held: Sequence[Held], rules: Rules, now: int, other_bytes: int, fresh_bytes: int = 0
) -> Job | None:
    """The next thing to do, `None` where all is well.

    `held` is in order; `other_bytes` is what the folder holds besides, e.g. what is written to, and
    `fresh_bytes` those of them that were rotated since this clean-up began.
    """
    return (
        _catching_up(held, rules, other_bytes, fresh_bytes)
        or _packing(held, rules, now)
        or _thinning(held, rules, now)
        or _making_room(held, rules, now, other_bytes)
        or _joining(held, rules)
    )


def _catching_up(held: Sequence[Held], rules: Rules, other_bytes: int, fresh_bytes: int) -> Job | None:
    """Where the clean-up falls behind, and the folder is beyond its budget: the oldest piece goes at once."""
    if fresh_bytes < _BEHIND * rules.piece_mib * _MIB:
        return None
    return letting_go(held, rules, other_bytes)


def letting_go(held: Sequence[Held], rules: Rules, other_bytes: int) -> Job | None:
    """Where the folder is beyond its budget: the oldest piece of which anything is left goes whole."""
    if not _is_beyond(held, rules, other_bytes):
        return None
    for one in held:
        if one.piece.generation == 0 or any(
            retention is not RetentionLevel.GONE for retention in one.retentions.values()
        ):
            return Job(pieces=(one,), floor=RetentionLevel.GONE)
    return None


def _is_beyond(held: Sequence[Held], rules: Rules, other_bytes: int) -> bool:
    return other_bytes + sum(one.size for one in held) > rules.folder_mib * _MIB


def _packing(held: Sequence[Held], rules: Rules, now: int) -> Job | None:
    for one in held:
        if one.piece.generation == 0:
            return Job(pieces=(one,), floor=rules.by_age(now - one.last))
    return None


def _thinning(held: Sequence[Held], rules: Rules, now: int) -> Job | None:
    chosen: list[Held] = []
    floor = RetentionLevel.WHOLE
    for one in held:
        wanted = rules.by_age(now - one.last)
        due = any(retention < wanted for retention in one.retentions.values())
        if chosen and not (
            due and wanted is floor and _are_near(chosen[-1], one) and _fit([*chosen, one], rules)
        ):
            break
        if due:
            chosen.append(one)
            floor = wanted
        if len(chosen) == _ALIKE:
            break
    return Job(pieces=tuple(chosen), floor=floor) if chosen else None


def _making_room(held: Sequence[Held], rules: Rules, now: int, other_bytes: int) -> Job | None:
    runs = dict.fromkeys(run_id for one in held for run_id in one.shares)
    for run_id in runs:
        if sum(one.size_of(run_id) for one in held) > rules.run_mib * _MIB:
            found = _oldest(
                [(one, one.retentions[run_id]) for one in held if run_id in one.shares], rules, now
            )
            if found is not None:
                one, retention = found
                return Job(pieces=(one,), retentions={run_id: retention.coarser})
    if _is_beyond(held, rules, other_bytes):
        finest = [(one, min(one.retentions.values())) for one in held if one.shares]
        found = _oldest(finest, rules, now)
        if found is not None:
            one, retention = found
            return Job(pieces=(one,), floor=retention.coarser)
    return None


def _oldest(
    reported: Sequence[tuple[Held, RetentionLevel]], rules: Rules, now: int
) -> tuple[Held, RetentionLevel] | None:
    """The piece to make coarser, with its grain: what is new is spared, and nothing goes while any can be.

    One a second becomes one a minute everywhere before one a minute becomes less anywhere.
    """
    old = [
        (one, retention) for one, retention in reported if now - one.last > rules.whole_minutes * _MINUTE_NS
    ]
    for candidates in (old, reported):
        for finer_than in (RetentionLevel.MINUTE, RetentionLevel.SPARSE, RetentionLevel.GONE):
            for one, retention in candidates:
                if retention < finer_than:
                    return one, retention
    return None


def _joining(held: Sequence[Held], rules: Rules) -> Job | None:
    """Neighbours of which equally many numbers came, with the same left of every run that they share."""
    alike: list[Held] = []
    for one in held:
        if alike and not (_are_alike(alike, one) and _fit([*alike, one], rules)):
            alike = []
        alike.append(one)
        if len(alike) == _ALIKE:
            retentions = {
                run_id: retention for each in alike for run_id, retention in each.retentions.items()
            }
            return Job(pieces=tuple(alike), retentions=retentions)
    return None


def _are_alike(alike: Sequence[Held], one: Held) -> bool:
    return (
        _are_near(alike[-1], one)
        and _tier(one) == _tier(alike[0])
        and all(
            one.retentions.get(run_id, retention) is retention
            for each in alike
            for run_id, retention in each.retentions.items()
        )
    )


def _are_near(one: Held, following: Held) -> bool:
    """Whether nothing lies between: what is between two would be replaced with them."""
    return following.piece.first == one.piece.last + 1


def _tier(one: Held) -> int:
    numbers, tier = one.piece.last - one.piece.first + 1, 0
    while numbers >= _ALIKE:
        numbers //= _ALIKE
        tier += 1
    return tier


def _fit(pieces: Iterable[Held], rules: Rules) -> bool:
    return sum(one.size for one in pieces) <= rules.piece_mib * _MIB


@dataclass(slots=True)
class _Content:
    """What a piece's index holds."""

    reported: list[tuple[_Reported, bytes]] = field(default_factory=list)
    """Batches, starts and ends in order, with their lines."""
    raised: list[bytes] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What stands around findings, as stamps from and to, by run id."""

    kept: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Where all numbers are left whole."""
    usual: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Where those that the run reports of itself are left once a second."""


class _Rewriting:
    """One job on the way."""

    def __init__(self, folder: Path, job: Job, around: Around, *, packs: bool) -> None:
        self._folder = folder
        self._job = job
        self._files = RecordingFiles(folder)
        retentions = {run_id: RetentionLevel.WHOLE for one in job.pieces for run_id in one.shares}
        for one in job.pieces:
            for run_id, retention in one.retentions.items():
                retentions[run_id] = max(retentions[run_id], retention)
        for run_id, retention in job.retentions.items():
            retentions[run_id] = max(retentions.get(run_id, retention), retention)
        self._thinning = Thinning(floor=job.floor, retentions=retentions, usual=around.usual)
        self._around = around.kept
        self._kept: dict[str, list[Span]] = {}
        self._is_copy = job.floor is RetentionLevel.WHOLE and all(
            retention is self._thinning.of(run_id)
            for one in job.pieces
            for run_id, retention in one.retentions.items()
        )
        self.piece = Piece(
            first=job.pieces[0].piece.first,
            last=job.pieces[-1].piece.last,
            generation=max(one.piece.generation for one in job.pieces) + 1,
            is_packed=packs,
        )
        self._data: dict[Signal, LineWriter] = {}
        self._index: list[bytes] = []
        self._bytes: dict[str, int] = {}
        self._losses: dict[str, Loss] = {}
        self._stamps: list[int] = []

    def write(self) -> None:
        """Make the new piece count. Raises `OSError`; then it is as if nothing had been done."""
        try:
            contents = [self._content(one) for one in self._job.pieces]
            for one, content in zip(self._job.pieces, contents, strict=True):
                self._take(one, content)
            for lines in self._data.values():
                lines.close()
        except BaseException:
            for lines in self._data.values():
                lines.abandon()
            raise
        self._commit(contents)

    def _content(self, one: Held) -> _Content:
        found = _Content()
        for line in piece_lines(self._folder, one.piece):
            try:
                entry = read_entry(line)
            except msgspec.DecodeError:
                continue
            match entry:
                case Located() | Started() | Ended():
                    found.reported.append((entry, line.rstrip(b"\n")))
                case Raised():
                    found.raised.append(line.rstrip(b"\n"))
                case Gone():
                    found.gone.append(entry)
                case Header(first_stamp=first, last_stamp=last):
                    self._stamps += [stamp for stamp in (first, last) if stamp]
        self._stamps += [entry.stamp for entry, _ in found.reported if not isinstance(entry, Ended)]
        return found

    def _take(self, one: Held, content: _Content) -> None:
        """Write what is left of one piece."""
        thinning = replace(self._thinning, kept=self._spans(one, content))
        for run_id, spans in thinning.kept.items():
            self._kept.setdefault(run_id, []).extend(spans)
        for is_batch, together in groupby(content.reported, key=lambda item: isinstance(item[0], Located)):
            if not is_batch:
                self._index += [line for _, line in together]
            elif self._is_copy:
                self._copy(one, (entry for entry, _ in together if isinstance(entry, Located)))
            else:
                reported = [entry for entry, _ in together if isinstance(entry, Located)]
                for batch in thin(self._batches(one, reported), thinning, self._losses):
                    self._write(batch, to_json(batch.signal, batch.body))

    def _spans(self, one: Held, content: _Content) -> dict[str, list[Span]]:
        """What is kept whole of a piece: what stands around findings, but for what is not whole any more."""
        stamps = [entry.stamp for entry, _ in content.reported if not isinstance(entry, Ended)]
        first, last = min(stamps, default=0), max(stamps, default=0)
        found = {}
        for run_id in {*self._around, *one.shares}:
            share = one.shares.get(run_id)
            spans = (
                self._around.get(run_id, ())
                if share is None or share.retention is RetentionLevel.WHOLE
                else share.kept
            )
            near = [span for span in spans if span[0] <= last and span[1] >= first]
            if near:
                found[run_id] = near
        return found

    def _copy(self, one: Held, entries: Iterable[Located]) -> None:
        for entry in entries:
            line = self._line(one, entry)
            if line is not None:
                batch = Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=b"")
                self._write(batch, line)

    def _batches(self, one: Held, entries: Iterable[Located]) -> Iterator[Batch]:
        for entry in entries:
            line = self._line(one, entry)
            if line is None:
                continue
            try:
                body = from_json(entry.signal, line)
            except MalformedJson:
                self._lose(entry)
                continue
            yield Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=body)

    def _line(self, one: Held, entry: Located) -> bytes | None:
        """The bytes of a batch; `None`, and counted, where the file does not hold them."""
        try:
            line = self._files.read(self._files.stored(one.piece, entry.file), entry.offset, entry.length)
        except OSError:
            line = b""
        if len(line) != entry.length or b"\n" in line:
            self._lose(entry)
            return None
        return line

    def _lose(self, entry: Located) -> None:
        self._losses.setdefault(_UNREADABLE, Loss()).add(0, entry.stamp)

    def _write(self, batch: Batch, line: bytes) -> None:
        lines = self._data.get(batch.signal)
        if lines is None:
            lines = self._data[batch.signal] = self._open(self.piece.name(batch.signal.value))
        entry = Located(
            sequence=batch.sequence, stamp=batch.stamp, signal=batch.signal,
            file=f"{batch.signal.value}.jsonl", offset=lines.append(line), length=len(line),
        )  # fmt: skip
        self._index.append(msgspec.json.encode(entry))
        runs = runs_in(line)
        for run_id in runs:
            self._bytes[run_id] = self._bytes.get(run_id, 0) + len(line) // len(runs)

    def _open(self, name: str) -> LineWriter:
        return LineWriter(self._folder / name, is_packed=self.piece.is_packed)

    def _commit(self, contents: Sequence[_Content]) -> None:
        shares = self._shares()
        is_gone = bool(shares) and all(share.retention is RetentionLevel.GONE for share in shares.values())
        raised = [] if is_gone else [line for content in contents for line in content.raised]
        gone = [msgspec.json.encode(each) for each in _summed(contents, self._losses)]
        temporary = self._folder / f"{INDEX}.new"
        lines = self._open(temporary.name)
        header = new_header(min(self._stamps, default=None), max(self._stamps, default=None), shares)
        try:
            for line in (msgspec.json.encode(header), *gone, *raised, *([] if is_gone else self._index)):
                lines.append(line)
            lines.close()
        except BaseException:
            lines.abandon()
            raise
        sync_folder(self._folder)
        temporary.rename(self._folder / self.piece.name(INDEX))
        sync_folder(self._folder)

    def _shares(self) -> dict[str, Share]:
        known = {*self._bytes, *(run_id for one in self._job.pieces for run_id in one.shares), *self._losses}
        known.discard(_UNREADABLE)
        return {
            run_id: Share(
                bytes=self._bytes.get(run_id, 0), retention=retention, kept=self._kept_of(run_id, retention)
            )
            for run_id in sorted(known)
            for retention in [self._thinning.of(run_id)]
        }

    def _kept_of(self, run_id: str, retention: RetentionLevel) -> tuple[Span, ...]:
        """The spans in which a thinned run is whole."""
        is_thinned = retention not in (RetentionLevel.WHOLE, RetentionLevel.GONE)
        return tuple(sorted(set(self._kept.get(run_id, ())))) if is_thinned else ()


def compact(folder: Path, job: Job, around: Around, *, packs: bool) -> Piece:
    """Do one job; returns the piece that is there now. Raises `OSError`, and then nothing has changed."""
    rewriting = _Rewriting(folder, job, around, packs=packs)
    try:
        rewriting.write()
    except MalformedBody as error:
        raise OSError(f"{folder}: a batch that was read cannot be written: {error}") from error
    return rewriting.piece


def runs_in(line: bytes) -> list[str]:
    """The runs that a line of OTLP JSON names, the empty id where it names none."""
    found: list[str] = []
    for word in dict.fromkeys(_RUN.findall(line)):
        try:
            found.append(msgspec.json.decode(word, type=str))
        except msgspec.DecodeError:
            continue
    return found or [""]


def _summed(contents: Sequence[_Content], losses: Mapping[str, Loss]) -> list[Gone]:
    """What went before and now, one line a run."""
    found: dict[str, Gone] = {}
    now = [
        Gone(gone=run_id, batches=loss.batches, records=loss.records, first=loss.first, last=loss.last)
        for run_id, loss in losses.items()
    ]
    for gone in (*(each for content in contents for each in content.gone), *now):
        known = found.get(gone.gone, gone)
        if known is not gone:
            gone = Gone(  # noqa: PLW2901 the sum of both
                gone=gone.gone,
                batches=known.batches + gone.batches,
                records=known.records + gone.records,
                first=min(known.first, gone.first),
                last=max(known.last, gone.last),
            )
        found[gone.gone] = gone
    return list(found.values())
