"""A log in files: records appended to the newest of some files, read from any place, dropped file by file.

Rules: recovery never needs a person. A torn tail is cut off; a damaged record is lost alone, and the gap in
the numbers shows it; a file that cannot be read is set aside or passed over. What could not be written whole
is cut back, so that the log stays readable and takes records again when there is room. A failed sync is
never repeated: what it was to keep stays in doubt, and a new file is begun. Must not know what payloads mean.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from overwatch.deflate import fast_zlib
from overwatch.journal.folder import File, Folder
from overwatch.journal.records import HEADER_BYTES, Header, Part, Parts, Reader, Record, Scanner, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """Sizes of a log's parts."""

    segment_bytes: int = 4 << 20
    """A file is closed before it grows beyond this; a larger record has a file of its own."""
    record_bytes: int = 64 << 20
    """Largest payload."""

    def __post_init__(self) -> None:
        if self.segment_bytes < HEADER_BYTES or not 1 <= self.record_bytes < 1 << 32:
            raise ValueError(f"a segment holds at least a header, a record 1 byte to 4 GiB: {self}")


class Placed(NamedTuple):
    """A record, and where in its file it begins."""

    record: Record
    offset: int


class LogWriteError(OSError):
    """A record was not kept; the log is as it was before."""


class LogSyncError(OSError):
    """Records were not made durable, and no later sync will do it."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a log found and had to mend."""

    last: Record | None = None
    """The newest whole record."""
    torn_bytes: int = 0
    """Left off the end: a record that was being written, or damage."""
    set_aside: Sequence[str] = ()
    """Files that could not be read; renamed to `*.bad` where that was possible."""


class Log:
    """Records in order. One writer; not safe for use from several threads at once."""

    def __init__(
        self, folder: Folder, name: str = "log", limits: LogLimits | None = None, *, floor: int = 1
    ) -> None:
        """Open or begin; the next record's sequence is at least `floor`.

        Raises `LogVersionError`, or `OSError` when the folder cannot be listed.
        """
        self.folder, self.name = folder, name
        self._limits = limits or LogLimits()
        self._parts = Parts(folder, name)
        self._file: File | None = None
        self._unsynced: set[str] = set()
        self._has_new_names = False
        self.next_sequence = max(floor, 1)
        """What the next record is numbered."""
        self.written_bytes = 0
        """Bytes of records that this log wrote since it was opened, those dropped since among them."""
        self.recovery = self._recover()
        self._doubt_from = self.next_sequence

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest record kept; that of the next one when there is none."""
        return self._parts.all[0].first if self._parts.all else self.next_sequence

    @property
    def size_bytes(self) -> int:
        """Bytes of records kept."""
        return self._parts.bytes_after(0, 0)

    def bytes_from(self, sequence: int) -> int:
        """Bytes of records kept from the file that holds a record on."""
        part = self._parts.holding(sequence)
        return 0 if part is None else self._parts.bytes_after(part.number, 0)

    def append(self, kind: int, stamp: int, *payload: bytes) -> int:
        """Add a record, its payload in pieces, and give it its sequence; durable after `sync`.

        Raises `ValueError` for a payload over the limit, `LogWriteError` when it could not be written.
        """
        length = sum(map(len, payload))
        if length > self._limits.record_bytes:
            raise ValueError(f"a record of {length} bytes; at most {self._limits.record_bytes} are kept")
        try:
            file = self._room(HEADER_BYTES + length)
            part = self._parts.newest
            check = part.salt
            for piece in payload:
                check = fast_zlib.crc32(piece, check)
            header = pack(Header(length, check, self.next_sequence, stamp, kind), part.salt)
            _write_whole(file, (header, *payload), part.end)
        except OSError as error:
            self._cut_back()
            what = f"{self.folder.path}: a record of {length} bytes was not kept: {error.strerror}"
            raise LogWriteError(error.errno, what) from error
        part.end += HEADER_BYTES + length
        self.written_bytes += HEADER_BYTES + length
        self._unsynced.add(part.name)
        self.next_sequence += 1
        return self.next_sequence - 1

    def sync(self) -> None:
        """Return when every record appended so far survives a power loss.

        Raises `LogSyncError` naming those that may not.
        """
        try:
            for name in sorted(self._unsynced):
                self._sync_part(name)
            if self._has_new_names:
                self.folder.files.sync()
        except OSError as error:
            self._leave()
            doubt = f"records {self._doubt_from} to {self.next_sequence - 1} are in doubt"
            raise LogSyncError(error.errno, f"{self.folder.path}: {doubt}: {error.strerror}") from error
        finally:
            self._unsynced.clear()
            self._has_new_names = False
            self._doubt_from = self.next_sequence

    @property
    def parts(self) -> Sequence[Part]:
        """Its files, oldest first; the last is written to."""
        return tuple(self._parts.all)

    def turn(self) -> None:
        """The next record begins a new file."""
        if self._file is not None and self._parts.newest.end:
            self._leave()

    def check(self) -> None:
        """Begin a new file when the newest one was taken away, so that nothing is written to nowhere."""
        if self._file is not None:
            try:
                self.folder.stat(self._parts.newest.name)
            except OSError:
                self._leave()

    def reader(self, start: int | None = None) -> Reader:
        """A reader from sequence `start`, or from the oldest record kept."""
        return Reader(self._parts, self.folder, self.first_sequence if start is None else start)

    def read(self, start: int | None = None) -> Iterator[Record]:
        """The records from `start` on, to the end."""
        return (record for record, _ in self.placed(start))

    def placed(self, start: int | None = None) -> Iterator[Placed]:
        """The records from `start` on, to the end, and where they lie."""
        reader = self.reader(start)
        try:
            while (record := reader.next()) is not None:
                yield Placed(record, reader.offset_of(record))
        finally:
            reader.close()

    def at(self, sequence: int, offset: int) -> Record | None:
        """The record that lies there; `None` where it is damaged or gone."""
        part = self._parts.holding(sequence)
        if part is None:
            return None
        try:
            fd = self.folder.open(part.name)
        except OSError:
            return None
        try:
            found = Scanner(fd, part.salt, offset).next(part.end)
        except OSError:
            return None
        finally:
            os.close(fd)
        return found if found is not None and found.sequence == sequence else None

    def can_drop(self, before: int) -> bool:
        """Whether `drop` would remove a file."""
        later = self._parts.all[1:]
        return bool(later) and later[0].first <= before and any(part.end for part in later)

    def drop(self, before: int) -> None:
        """Remove the files all of whose records are numbered below `before`.

        The newest file that holds records stays. Raises `OSError`; what was not removed is still kept.
        """
        while self.can_drop(before):
            self.remove(self._parts.all[0])

    def remove(self, part: Part) -> None:
        """Remove one file, not the newest, with all its records. Raises `OSError`; it is still kept then."""
        with contextlib.suppress(FileNotFoundError):
            self.folder.files.remove(part.name)
        self._unsynced.discard(part.name)
        self._parts.all.remove(part)

    def close(self) -> None:
        """Let go of the files; not a sync."""
        self._leave()

    def _room(self, size: int) -> File:
        """The newest file, or a new one when it is full or lost."""
        if self._file is not None:
            end = self._parts.newest.end
            if end == 0 or end + size <= self._limits.segment_bytes:
                return self._file
            self._leave()
        part = self._parts.begin(self.next_sequence)
        self._file = self.folder.files.open(part.name)
        self._parts.all.append(part)
        self._has_new_names = True
        return self._file

    def _cut_back(self) -> None:
        """Forget what was written of a record; when that fails too, nothing more goes into this file."""
        if self._file is not None:
            try:
                self._file.cut(self._parts.newest.end)
            except OSError:
                self._leave()

    def _leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _sync_part(self, name: str) -> None:
        if self._file is not None and name == self._parts.newest.name:
            self._file.sync()
            return
        file = self.folder.files.open(name)
        try:
            file.sync()
        finally:
            file.close()

    def _recover(self) -> Recovery:
        """Find the newest whole record, and make the newest file ready for more."""
        aside: list[str] = []
        torn = 0
        for part in reversed(self._parts.all):
            size = part.end
            try:
                last = self._scan(part)
            except OSError as error:
                if error.errno == errno.EMFILE:
                    raise
                aside.append(self._set_aside(part))
                continue
            self.next_sequence = max(self.next_sequence, part.first)
            if part is self._parts.newest and not aside:
                torn = size - part.end
                self._continue(part, size)
            if last is not None:
                self.next_sequence = max(self.next_sequence, last.sequence + 1)
                return Recovery(last=last, torn_bytes=torn, set_aside=aside)
        return Recovery(torn_bytes=torn, set_aside=aside)

    def _scan(self, part: Part) -> Record | None:
        """A file's last record, and where it ends. Raises `OSError` when the file cannot be read."""
        fd = self.folder.open(part.name)
        try:
            size, part.end = os.fstat(fd).st_size, 0
            last = None
            scanner = Scanner(fd, part.salt)
            while (record := scanner.next(size, part.first)) is not None:
                last, part.end = record, scanner.offset
        finally:
            os.close(fd)
        return last

    def _continue(self, part: Part, size: int) -> None:
        """Write on in a file, its torn tail cut off; where that is refused, a new file is begun later."""
        with contextlib.suppress(OSError):
            self._file = self.folder.files.open(part.name)
            if size > part.end:
                self._cut_back()

    def _set_aside(self, part: Part) -> str:
        """Pass over a file that cannot be read; the numbers that it may hold are not used again."""
        self.next_sequence = max(self.next_sequence, part.first + self._most_bytes(part) // HEADER_BYTES + 1)
        self._parts.all.remove(part)
        with contextlib.suppress(OSError):
            self.folder.files.rename(part.name, f"{part.name}.bad")
        return part.name

    def _most_bytes(self, part: Part) -> int:
        """What a file may hold; the size of a link or a folder in its place is that of something else."""
        with contextlib.suppress(OSError):
            if stat.S_ISREG(self.folder.stat(part.name).st_mode):
                return part.end
        return max(part.end, self._limits.segment_bytes)


def _write_whole(file: File, parts: Sequence[bytes], offset: int) -> None:
    """Write all of it, in as many calls as it takes. Raises `OSError`."""
    size = sum(map(len, parts))
    written = file.write(parts, offset)
    while written < size:
        more = file.write((b"".join(parts)[written:],), offset + written)
        if more <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more
