"""What a recording can be made of: batches in order, wherever they lie.

Owns the protocol, the account of what could not be read, and the sources: the folder that `otlp_file`
wrote, log segments, OTLP files of any exporter. A source lists its batches as the lines of an index do, and
gives the body of each when it is wanted; so what is large is read piece by piece. Nobody wrote down when
the batches of a file without an index were received, so the newest time in a batch stands for that. The
same files give the same order, whatever they are called first; a silence of more than a minute is left out,
as if the collector had been away. Must not know what the records mean.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from overwatch.fold import SLOW_NS, next_tick
from overwatch.journal import LogVersionError, Signal
from overwatch.journal.scan import Kept, scan, spooled
from overwatch.otlp.jsonl import MalformedJson, from_json
from overwatch.otlp.sniff import RequestKind, is_json, sniff
from overwatch.recordings.compaction import runs_in
from overwatch.recordings.files import LIVE, RecordingFiles
from overwatch.recordings.index import Ended, Entry, Located, RecordingError, StartBody, Started, read_entry
from overwatch.recordings.pieces import Piece
from overwatch.recordings.stored import MOST_BYTES, Part, StoredFile

_start_body: Final = msgspec.json.Decoder(StartBody).decode
LONGEST_SILENCE_NS: Final = 60 * SLOW_NS
"""Recording time without a batch that is shown."""
_MOST_EXAMPLES: Final = 8


class Source(Protocol):
    """Where batches come from."""

    @property
    def name(self) -> str:
        """What a person knows it by: a path."""
        ...

    @property
    def account(self) -> "Account":
        """What could not be read so far, and what else must be reported."""
        ...

    def entries(self) -> Iterator[Entry]:
        """All batches and starts in the order of replay. Raises `RecordingError`, `OSError`."""
        ...

    def body(self, entry: Located) -> bytes:
        """The protobuf request of an entry. Raises `OSError` or `MalformedJson` where it cannot be had."""
        ...


class Account:
    """What was passed over, by file and reason, and remarks for who looks at the rest."""

    def __init__(self) -> None:
        self.passed_over: Counter[tuple[str, str]] = Counter()
        """By file and reason."""
        self.remarks: dict[str, None] = {}

    @property
    def skipped(self) -> int:
        """Lines and messages that were passed over."""
        return self.passed_over.total()

    def clear(self) -> None:
        """Begin again, before the same is read again."""
        self.passed_over.clear()

    def skip(self, file: str, reason: str) -> None:
        """One line or message of a file was passed over."""
        self.passed_over[file, reason] += 1

    def remark(self, text: str) -> None:
        """Report something once."""
        self.remarks[text] = None

    def take(self, other: "Account") -> None:
        """Add another account."""
        self.passed_over.update(other.passed_over)
        self.remarks.update(other.remarks)

    def lines(self) -> tuple[str, ...]:
        """All of it as text, the most frequent reasons first."""
        told = [
            f"{file}: {count:,} passed over: {reason}"
            for (file, reason), count in self.passed_over.most_common(_MOST_EXAMPLES)
        ]
        rest = len(self.passed_over) - len(told)
        more = [f"and {rest} more files or reasons"] if rest > 0 else []
        return (*self.remarks, *told, *more)


class Indexed:
    """A recording with its index, read where it lies; a collector may be writing to it."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.account = Account()
        self.index = folder / LIVE
        self.bad_lines = 0
        """Index lines that could not be read, e.g. a tail cut by a crash."""
        self._files = RecordingFiles(folder)
        if not self.index.is_file() and not self._files.list().pieces:
            raise RecordingError(f"{folder} has no index.jsonl; name the folder that `otlp_file` wrote to")

    def entries(self) -> Iterator[Entry]:
        """The index in order; lines that cannot be read are counted and passed over."""
        self.bad_lines = 0
        stored: dict[tuple[Piece | None, str], str] = {}
        for piece, line in self._files.lines():
            try:
                entry = read_entry(line)
            except msgspec.DecodeError:
                self.bad_lines += 1
                continue
            if isinstance(entry, Located):
                key = piece, entry.file
                if key not in stored:
                    stored[key] = self._files.stored(piece, entry.file)
                if stored[key] != entry.file:
                    entry = msgspec.structs.replace(entry, file=stored[key])
            yield entry

    def may_name(self, run_id: str, entry: Located) -> bool:
        """Whether an entry may hold something of a run: it names that run, or none."""
        try:
            return not {run_id, ""}.isdisjoint(runs_in(self._files.line(entry)))
        except OSError:
            return False

    def body(self, entry: Located) -> bytes:
        """The request of an entry."""
        if entry.length > MOST_BYTES:
            raise MalformedJson(f"$: a line of {entry.length} bytes; at most {MOST_BYTES} are read")
        return from_json(entry.signal, self._files.line(entry).rstrip(b"\r\n"))


class Segments:
    """A folder of log segments: a collector's journal, or one producer's spool.

    A journal has what its collector accepted and did not let go of yet; a spool, what its collector did not
    take yet. Nothing is changed, and who writes may go on.
    """

    def __init__(self, folder: Path, *, is_spool: bool = False) -> None:
        self.name = str(folder)
        self.account = Account()
        self.is_spool = is_spool
        self._folder = folder

    def entries(self) -> Iterator[Entry]:
        """Requests and starts in the order in which they were written; a stamp is when."""
        self.account.clear()
        try:
            yield from map(self._entry, spooled(self._folder) if self.is_spool else self._journalled())
        except LogVersionError as error:
            raise RecordingError(str(error)) from error

    def body(self, entry: Located) -> bytes:
        """The request of an entry; `OSError` once its owner let go of it."""
        with (self._folder / entry.file).open("rb") as file:
            return os.pread(file.fileno(), entry.length, entry.offset)

    def _journalled(self) -> Iterator[Kept]:
        wanted: int | None = None
        for kept in scan(self._folder):
            if wanted is not None and kept.sequence > wanted:
                self.account.remark(f"{self.name}: batches {wanted} to {kept.sequence - 1} are missing")
            wanted = kept.sequence + 1
            yield kept

    def _entry(self, kept: Kept) -> Entry:
        if kept.signal is Signal.START:
            body = self._start(kept.body)
            return Started(sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, body=body)
        return Located(
            sequence=kept.sequence, stamp=kept.stamp, signal=kept.signal, file=kept.file,
            offset=kept.offset, length=len(kept.body),
        )  # fmt: skip

    def _start(self, body: bytes) -> StartBody:
        try:
            return _start_body(body)
        except msgspec.DecodeError:
            self.account.skip(self.name, "a start record that cannot be read")
            return StartBody()


class OtlpFile:
    """One file of OTLP/JSON, or of protobuf or JSON messages with their lengths before them."""

    def __init__(self, stored: StoredFile) -> None:
        self.name = str(stored.path)
        self.account = Account()
        self._stored = stored

    def entries(self) -> Iterator[Entry]:
        """Batches as they lie in the file; stamps are the newest times in them, and may fall.

        One without a time has that of the one before, else of the first with one, else of the file.
        """
        self.account.clear()
        if self._stored.unpacked_badly is not None:
            self.account.remark(
                f"{self.name}: read as far as it could be unpacked: {self._stored.unpacked_badly}"
            )
        stamp, waiting = 0, list[Located]()
        requests = ((part, found) for part in self._stored.parts() for found in self._kinds(part))
        for sequence, (part, found) in enumerate(requests, 1):
            first = found.newest if not stamp else None
            stamp = found.newest or stamp
            entry = Located(
                sequence=sequence, stamp=stamp or 1, signal=found.signal, file=self._stored.path.name,
                offset=part.offset, length=part.length,
            )  # fmt: skip
            if not stamp:
                waiting.append(entry)
                continue
            if first is not None:
                yield from (msgspec.structs.replace(one, stamp=first) for one in waiting)
                waiting.clear()
            yield entry
        yield from (msgspec.structs.replace(one, stamp=self._stored.written_ns) for one in waiting)

    def body(self, entry: Located) -> bytes:
        """The request of an entry."""
        data = self._stored.read(entry.offset, entry.length)
        return from_json(entry.signal, data) if is_json(data) else data

    def _kinds(self, part: Part) -> tuple[RequestKind, ...]:
        """The requests that a part is; none, and counted, where it is nothing that is replayed."""
        if part.data is None:
            long = f"longer than {MOST_BYTES >> 20} MiB"
            self.account.skip(self.name, "cut off at the end" if part.is_last else long)
            return ()
        try:
            found = sniff(part.data)
        except ValueError:
            self.account.skip(self.name, "cut off at the end" if part.is_last else "no JSON")
            return ()
        if not found:
            self.account.skip(self.name, "no OTLP logs, metrics or traces")
        return found


class Rebuilt:
    """Several sources as one, in the order of their stamps; starts and ends of collectors are left out."""

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name = name
        self.account = Account()
        self._sources = tuple(sources)

    def entries(self) -> Iterator[Entry]:
        """All batches by stamp, then by source and place; gaps as starts that go on from before."""
        found: list[tuple[int, int, Located]] = []
        for number, source in enumerate(self._sources):
            found += [
                (entry.stamp, number, entry) for entry in source.entries() if isinstance(entry, Located)
            ]
        found.sort(key=lambda item: (item[0], item[1], item[2].sequence))
        self.account.clear()
        if not all(isinstance(source, Segments) and source.is_spool for source in self._sources):
            self.account.remark(
                f"{self.name}: there is no index, so batches are in the order of the newest time in each"
            )
        for source in self._sources:
            self.account.take(source.account)
        stamp = 0
        for sequence, (newest, number, entry) in enumerate(found, 1):
            if stamp and newest > stamp + LONGEST_SILENCE_NS:
                after = next_tick(stamp) + LONGEST_SILENCE_NS
                stamp = max(stamp + 1, newest - 1)
                yield Started(
                    sequence=sequence, stamp=stamp, signal=Signal.START, body=StartBody(after=after)
                )
            stamp = max(stamp + 1, newest)
            yield msgspec.structs.replace(
                entry, sequence=sequence, stamp=stamp, file=f"{number}/{entry.file}"
            )
        if found and next_tick(stamp) // SLOW_NS * SLOW_NS < next_tick(found[0][0]):
            # There is a snapshot each whole second, and none lies between.
            yield Ended(end=-(-stamp // SLOW_NS) * SLOW_NS)

    def body(self, entry: Located) -> bytes:
        """The request of an entry."""
        number, _, file = entry.file.partition("/")
        return self._sources[int(number)].body(msgspec.structs.replace(entry, file=file))
