"""Rewriting neighbouring pieces as one, with fewer numbers in it or merely packed.

Rules: the new data files and then the new index are whole and on disk before the index gets its name, which
is the moment at which the new piece is there and the old ones are left over; killed at any moment, either
they or it count, and the next clean-up removes the rest. What cannot be read is left out and counted.
Must not know when this is to be done.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from overwatch import __version__
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.journal import INDEX_VERSION, Batch, Signal
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from overwatch.otlp.thin import Loss, RetentionLevel, Span, Thinning, thin
from overwatch.otlp.wire import MalformedBody
from overwatch.platform import sync_folder
from overwatch.recordings.files import RecordingFiles, piece_lines
from overwatch.recordings.index import Ended, Gone, Header, Located, Raised, Share, Started, read_entry
from overwatch.recordings.packed import PackedWriter, PlainWriter
from overwatch.recordings.pieces import INDEX, Piece
from overwatch.recordings.plan import Held, Job

_NS_PER_MS: Final = 1_000_000
_RUN: Final = re.compile(rb'"key":"rl\.run\.id","value":\{"stringValue":("(?:[^"\\]|\\.)*")')
_UNREADABLE: Final = "?"

_Told: TypeAlias = Located | Started | Ended


class _Lines(Protocol):
    def append(self, line: bytes) -> int: ...
    def close(self) -> int: ...
    def abandon(self) -> None: ...


@dataclass(slots=True)
class _Content:
    """What a piece's index holds."""

    told: list[tuple[_Told, bytes]] = field(default_factory=list)
    """Batches, starts and ends in order, with their lines."""
    raised: list[bytes] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What stands around findings, as stamps from and to, by run id."""

    kept: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Where all numbers are left whole."""
    usual: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Where those that the run says of itself are left once a second."""


class _Rewriting:
    """One job on the way."""

    def __init__(self, folder: Path, job: Job, around: Around, *, packs: bool) -> None:
        self._folder = folder
        self._job = job
        self._files = RecordingFiles(folder)
        grains = {run_id: RetentionLevel.WHOLE for one in job.pieces for run_id in one.shares}
        for one in job.pieces:
            for run_id, grain in one.grains.items():
                grains[run_id] = max(grains[run_id], grain)
        for run_id, grain in job.grains.items():
            grains[run_id] = max(grains.get(run_id, grain), grain)
        self._thinning = Thinning(floor=job.floor, grains=grains, usual=around.usual)
        self._around = around.kept
        self._kept: dict[str, list[Span]] = {}
        self._is_copy = job.floor is RetentionLevel.WHOLE and all(
            grain is self._thinning.of(run_id) for one in job.pieces for run_id, grain in one.grains.items()
        )
        self.piece = Piece(
            first=job.pieces[0].piece.first,
            last=job.pieces[-1].piece.last,
            generation=max(one.piece.generation for one in job.pieces) + 1,
            is_packed=packs,
        )
        self._data: dict[Signal, _Lines] = {}
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
                    found.told.append((entry, line.rstrip(b"\n")))
                case Raised():
                    found.raised.append(line.rstrip(b"\n"))
                case Gone():
                    found.gone.append(entry)
                case Header(first_stamp=first, last_stamp=last):
                    self._stamps += [stamp for stamp in (first, last) if stamp]
        self._stamps += [entry.stamp for entry, _ in found.told if not isinstance(entry, Ended)]
        return found

    def _take(self, one: Held, content: _Content) -> None:
        """Write what is left of one piece."""
        thinning = replace(self._thinning, kept=self._spans(one, content))
        for run_id, spans in thinning.kept.items():
            self._kept.setdefault(run_id, []).extend(spans)
        for is_batch, together in groupby(content.told, key=lambda item: isinstance(item[0], Located)):
            if not is_batch:
                self._index += [line for _, line in together]
            elif self._is_copy:
                self._copy(one, (entry for entry, _ in together if isinstance(entry, Located)))
            else:
                told = [entry for entry, _ in together if isinstance(entry, Located)]
                for batch in thin(self._batches(one, told), thinning, self._losses):
                    self._write(batch, to_json(batch.signal, batch.body))

    def _spans(self, one: Held, content: _Content) -> dict[str, list[Span]]:
        """What is kept whole of a piece: what stands around findings, but for what is not whole any more."""
        stamps = [entry.stamp for entry, _ in content.told if not isinstance(entry, Ended)]
        first, last = min(stamps, default=0), max(stamps, default=0)
        found = {}
        for run_id in {*self._around, *one.shares}:
            share = one.shares.get(run_id)
            spans = (
                self._around.get(run_id, ())
                if share is None or share.grain is RetentionLevel.WHOLE
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
        entry = {
            "sequence": batch.sequence,
            "stamp": batch.stamp,
            "signal": batch.signal.value,
            "file": f"{batch.signal.value}.jsonl",
            "offset": lines.append(line),
            "length": len(line),
        }
        self._index.append(msgspec.json.encode(entry))
        runs = runs_in(line)
        for run_id in runs:
            self._bytes[run_id] = self._bytes.get(run_id, 0) + len(line) // len(runs)

    def _open(self, name: str) -> _Lines:
        path = self._folder / name
        return PackedWriter(path) if self.piece.is_packed else PlainWriter(path)

    def _commit(self, contents: Sequence[_Content]) -> None:
        shares = self._shares()
        is_gone = bool(shares) and all(share.grain is RetentionLevel.GONE for share in shares.values())
        raised = [] if is_gone else [line for content in contents for line in content.raised]
        gone = [msgspec.json.encode(each) for each in _summed(contents, self._losses)]
        temporary = self._folder / f"{INDEX}.new"
        lines = self._open(temporary.name)
        try:
            for line in (self._header(shares), *gone, *raised, *([] if is_gone else self._index)):
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
            run_id: Share(bytes=self._bytes.get(run_id, 0), grain=grain, kept=self._kept_of(run_id, grain))
            for run_id in sorted(known)
            for grain in [self._thinning.of(run_id)]
        }

    def _kept_of(self, run_id: str, grain: RetentionLevel) -> tuple[Span, ...]:
        """The spans in which a thinned run is whole."""
        is_thinned = grain not in (RetentionLevel.WHOLE, RetentionLevel.GONE)
        return tuple(sorted(set(self._kept.get(run_id, ())))) if is_thinned else ()

    def _header(self, shares: dict[str, Share]) -> bytes:
        header = Header(
            overwatch_index=INDEX_VERSION,
            version=__version__,
            fast_ms=FAST_NS // _NS_PER_MS,
            slow_ms=SLOW_NS // _NS_PER_MS,
            first_stamp=min(self._stamps, default=None),
            last_stamp=max(self._stamps, default=None),
            runs=shares,
        )
        return msgspec.json.encode(header)


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
