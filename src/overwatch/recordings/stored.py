"""A file of any program as a sequence of parts: JSON values, or messages with their lengths before them.

What a file is shows in its first bytes, never in its name. Values lie one a line, ended by LF or CRLF, over
many lines, one behind another, or as elements of an array, and a byte order mark may stand first; messages
have four bytes of length, the highest first, and may each be packed with zstd, as otelcol's `file` exporter
writes protobuf and all that it packs. A file that is packed as a whole, with zstd or gzip, is unpacked into a
temporary one.

Most files have a value a line, and of these only the ends of lines are looked for. Where a line is no value
by itself, brackets and strings are followed until a line ends outside of all values. Rules: of a file of
any size no more is held than one part; what is damaged is a part of its own that cannot be read, and the
next one begins where a value cannot go on; a part that is too long to be believed is passed over without
being held; a tail that is cut off is marked so. Must not know what the parts mean.
"""

import contextlib
import gzip
import os
import re
import tempfile
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import zstandard

from overwatch.recordings.packed import MOST_RATIO, believable

MOST_BYTES: Final = 64 << 20
"""Longest value that is held."""
_TOKEN: Final = re.compile(
    rb'("[^"\\\n]*(?:\\[^\n][^"\\\n]*)*")'  # a string
    rb'|("[^\n]*\Z)'  # one that may go on behind what was read
    rb'|(")'  # one that a line end cuts off
    rb'|[{}\[\],:\n]|[^\s"{}\[\],:]+'
)
_CUT_OFF: Final = 3
_SEVERAL: Final = re.compile(rb"\}[ \t]*\{")
_NEWLINE, _QUOTE, _COMMA, _COLON, _OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = b'\n",:{}[]'
_DAMAGE: Final = 0
"""In place of a token's first byte: it cannot be here."""
_PAIRS: Final = {_OBJECT_END: _OBJECT, _ARRAY_END: _ARRAY}
_MOST_OPEN: Final = 32
"""Files held open for reading, so that reading many places of many files stays cheap."""
_CHUNK_BYTES: Final = 1 << 20
_PREFIX_BYTES: Final = 4
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE: Final = b"\x2a\x4d\x18"
_BOM: Final = b"\xef\xbb\xbf"
_MESSAGE_ANYWAY: Final = 1 << 20
"""Bytes that every message may unpack to."""
_ON_THE_WAY: Final = 4
"""Packings within packings that are undone."""


class Handles:
    """Descriptors by path; those used longest ago are closed. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path | str, int] = OrderedDict()
        weakref.finalize(self, _close_all, self._open)

    def __contains__(self, path: Path | str) -> bool:
        return path in self._open

    def of(self, path: Path | str) -> int:
        """A descriptor of a file, good until the next call. Raises `OSError`."""
        known = self._open.get(path)
        if known is None:
            known = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(path)
        return known

    def forget(self, path: Path | str) -> None:
        """Open the file anew next time: another may have its name."""
        known = self._open.pop(path, None)
        if known is not None:
            os.close(known)


class Scratch:
    """A file without a name, which goes with this object. Raises `OSError` when the disk is full."""

    def __init__(self) -> None:
        self.fd, name = tempfile.mkstemp(prefix="overwatch-")
        os.unlink(name)  # noqa: PTH108 a name that was just made
        weakref.finalize(self, os.close, self.fd)
        self.size = 0

    def append(self, data: bytes) -> int:
        """Write at the end; returns the offset."""
        start = self.size
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.size += len(data)
        return start

    def extend(self, chunks: Iterable[bytes]) -> None:
        """Write all of them."""
        for chunk in chunks:
            self.append(chunk)


def _close_all(known: OrderedDict[Path | str, int]) -> None:
    for fd in known.values():
        with contextlib.suppress(OSError):
            os.close(fd)


class Part(NamedTuple):
    """One value or message."""

    offset: int
    """Of its bytes, in the file as it is read."""
    length: int
    data: bytes | None = None
    """`None` where it is longer than `MOST_BYTES`, cut off within its length, or still to be read."""
    is_last: bool = False
    """The file ends with it, and nothing shows that it is whole."""


class _Window:
    """What was read of a file and is not done with."""

    def __init__(self, read: Callable[[int, int], bytes], offset: int) -> None:
        self._read = read
        self.data, self.at, self.base = b"", 0, offset
        """Bytes, how many of them are done with, and where they begin in the file."""
        self.is_whole = False
        """Nothing is behind it."""

    @property
    def offset(self) -> int:
        """Where what is not done with begins in the file."""
        return self.base + self.at

    def more(self) -> None:
        """Let go of what is done with, and read on."""
        self.data, self.base, self.at = self.data[self.at :], self.offset, 0
        chunk = self._read(self.base + len(self.data), _CHUNK_BYTES)
        self.data += chunk
        self.is_whole = not chunk

    def line_end(self) -> int | None:
        """Where the line ends; `None` where the file, or all that may be held, ends before it."""
        looked_at = 0
        while (end := self.data.find(b"\n", self.at + looked_at)) < 0:
            looked_at = len(self.data) - self.at
            if self.is_whole or looked_at > MOST_BYTES:
                return None
            self.more()
        return end

    def skip_line(self) -> int:
        """Pass over the line, however long; how many bytes it has."""
        begun = self.offset
        while (end := self.data.find(b"\n", self.at)) < 0 and not self.is_whole:
            self.at = len(self.data)
            self.more()
        self.at = len(self.data) if end < 0 else end
        length = self.offset - begun
        self.at += end >= 0
        return length


def values(read: Callable[[int, int], bytes], offset: int) -> Iterator[Part]:
    """Every value from an offset on; `read` gives bytes by offset and length, fewer at the end."""
    window = _Window(read, offset)
    while True:
        yield from _lines(window)
        if window.is_whole and window.at == len(window.data):
            return
        yield from _tokens(window)


def _lines(window: _Window) -> Iterator[Part]:
    """Lines that are values by themselves, or nothing that could be one; up to the end, or another line."""
    while True:
        begun, end = window.offset, window.line_end()
        line = window.data[window.at : end]
        if _is_more(line, is_cut=end is None and not window.is_whole):
            return
        if end is None and not window.is_whole:
            yield Part(begun, window.skip_line())
            continue
        window.at += len(line) + (end is not None)
        text = line.rstrip(b"\r")
        if text.strip():
            yield Part(begun, len(text), is_last=end is None, data=text)
        if end is None:
            return


def _is_more(line: bytes, *, is_cut: bool) -> bool:
    """Whether a line may hold a part of a value, or several."""
    text = line.strip()
    if not text.startswith(b"{"):
        return text.startswith(b"[")
    return is_cut or not text.endswith(b"}") or _SEVERAL.search(text) is not None


def _tokens(window: _Window) -> Iterator[Part]:
    """Values wherever they begin and end, up to the end of a line outside of all of them."""
    scan = _Scan()
    while True:
        for found in _TOKEN.finditer(window.data, window.at):
            window.at, kind = found.start(), window.data[found.start()]
            if kind == _QUOTE and found.lastindex != 1:
                is_open = found.lastindex != _CUT_OFF and len(found.group()) <= MOST_BYTES
                if is_open and not window.is_whole:
                    break
                kind = _DAMAGE
            part = scan.take(kind, window.offset)
            window.at = found.end()
            if part is not None:
                yield part
            if scan.is_over:
                return
        else:
            window.at = len(window.data)
        if window.is_whole:
            yield from scan.rest(window.offset)
            return
        window.more()


class _Scan:
    """Where in a value the scan is."""

    def __init__(self) -> None:
        self.is_over = False
        """A line ended outside of all values."""
        self._open = bytearray()
        """Brackets of the value that are open..."""
        self._start = 0
        """...where it began..."""
        self._before = 0
        """...and the token before."""
        self._is_spread: bool | None = None
        """Its first line is a bracket alone; `None` until that is known."""
        self._line = -1
        """Where the line began."""
        self._arrays = 0
        """Arrays around values that are open."""
        self._damaged: int | None = None
        """Where something began that is no value."""

    def take(self, kind: int, at: int) -> Part | None:
        """Take the next token, by its first byte; returns the value that ends with it, or before it."""
        if not self._open:
            return self._outside(kind, at)
        self._is_spread = kind == _NEWLINE if self._is_spread is None else self._is_spread
        if kind == _NEWLINE:
            self._line = at + 1
            return None
        # A line that was cut off goes on, to a parser, with an object of the next.
        is_next = kind == _OBJECT and at == self._line and not self._is_spread
        if is_next or not self._fits(kind):
            self._open.clear()
            self._damaged = self._start
            return self._outside(kind if kind == _OBJECT else _DAMAGE, at)
        if kind in (_OBJECT, _ARRAY):
            self._open.append(kind)
        elif kind in _PAIRS:
            self._open.pop()
        self._before = kind
        return None if self._open else Part(self._start, at + 1 - self._start)

    def _fits(self, kind: int) -> bool:
        inside, before = self._open[-1], self._before
        if kind in _PAIRS:
            return _PAIRS[kind] == inside
        if kind not in (_OBJECT, _ARRAY, _QUOTE):
            return kind != _DAMAGE
        if inside == _ARRAY:
            return before in (_ARRAY, _COMMA)
        return before == _COLON or (kind == _QUOTE and before in (_OBJECT, _COMMA))

    def _outside(self, kind: int, at: int) -> Part | None:
        """The same outside of all values."""
        if kind == _COMMA or (kind == _ARRAY and self._damaged is None):
            self._arrays += kind == _ARRAY
            return None
        if kind not in (_OBJECT, _ARRAY_END, _NEWLINE):
            self._damaged = at if self._damaged is None else self._damaged
            return None
        damaged, self._damaged = self._damaged, None
        if kind == _OBJECT:
            self._open.append(kind)
            self._start, self._before, self._is_spread = at, kind, None
        elif kind == _ARRAY_END:
            self._arrays = max(0, self._arrays - 1)
        self.is_over = kind == _NEWLINE and not self._arrays
        return None if damaged is None else Part(damaged, at - damaged)

    def rest(self, at: int) -> Iterator[Part]:
        """What the end of the file cuts off."""
        start = self._start if self._open else self._damaged
        if start is not None:
            yield Part(start, at - start, is_last=True)


class StoredFile:
    """One file. Not safe for several threads at once."""

    def __init__(self, path: Path, handles: Handles | None = None, copy: Scratch | None = None) -> None:
        """A file, or a copy of what came from elsewhere. Raises `OSError`."""
        self.path = path
        self._handles = handles or Handles()
        self._copy = copy
        self.written_ns = os.fstat(self._fd).st_mtime_ns
        """When it was written last, Unix nanoseconds."""
        self.unpacked_badly: str | None = None
        """Why it could not be unpacked to its end."""
        packed_bytes = self.size()
        for _ in range(_ON_THE_WAY):
            head = self._read(0, 8)
            if head[:2] != _GZIP and head[:4] != _ZSTD and head[1:4] != _SKIPPABLE:
                break
            self._unpack(packed_bytes, is_gzip=head[:2] == _GZIP)
        self.is_framed = self._looks_framed()
        """Messages with their lengths before them, instead of JSON values."""

    @property
    def _fd(self) -> int:
        return self._handles.of(self.path) if self._copy is None else self._copy.fd

    def size(self) -> int:
        """Bytes in it now, as it is read."""
        return os.fstat(self._fd).st_size

    def parts(self) -> Iterator[Part]:
        """Everything in it; lines without anything are left out."""
        return self._messages() if self.is_framed else self._values()

    def read(self, offset: int, length: int) -> bytes:
        """A part's bytes, unpacked; fewer where the file has become shorter. Raises `OSError`."""
        return self._plain(self._read(offset, min(length, MOST_BYTES)))

    def _read(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def _values(self) -> Iterator[Part]:
        for part in values(self._read, len(_BOM) if self._read(0, 3) == _BOM else 0):
            if part.data is None and part.length <= MOST_BYTES:
                yield part._replace(data=self._read(part.offset, part.length))
            else:
                yield part

    def _messages(self) -> Iterator[Part]:
        at = 0
        while len(prefix := self._read(at, _PREFIX_BYTES)) == _PREFIX_BYTES:
            length = int.from_bytes(prefix, "big")
            data = None
            if length <= MOST_BYTES:
                data = self._read(at + _PREFIX_BYTES, length)
            cut = at + _PREFIX_BYTES + length > self.size()
            if length:
                told = None if cut or data is None else self._plain(data)
                yield Part(at + _PREFIX_BYTES, length, told, is_last=cut)
            if cut:
                return
            at += _PREFIX_BYTES + length
        if prefix:
            yield Part(at, len(prefix), None, is_last=True)

    def _plain(self, data: bytes) -> bytes:
        """A message, unpacked where it is packed; what is damaged stays as it is, and will not be read."""
        if not self.is_framed or data[:4] != _ZSTD:
            return data
        try:
            # Not by the size that the frame claims, which costs nothing to write.
            most = min(MOST_BYTES, _MESSAGE_ANYWAY + MOST_RATIO * len(data))
            return zstandard.ZstdDecompressor().stream_reader(data).read(most)
        except zstandard.ZstdError:
            return data

    def _looks_framed(self) -> bool:
        """Whether the file begins with the length of what follows, which begins as messages do."""
        head = self._read(0, 8)
        length = int.from_bytes(head[:_PREFIX_BYTES], "big")
        inside = head[_PREFIX_BYTES:]
        if len(head) < 8 or length == 0 or head.removeprefix(_BOM).lstrip()[:1] in b"{[":
            return False
        return inside == _ZSTD or inside[:1] in (b"\n", b"{")

    def _unpack(self, packed_bytes: int, *, is_gzip: bool) -> None:
        """Put a temporary file with what is packed in place of this one, as far as it is whole.

        Raises `OSError` for more than a file of that size can hold.
        """
        copy = Scratch()
        with os.fdopen(os.dup(self._fd), "rb") as packed:
            packed.seek(0)
            try:
                chunks = _gunzipped(packed) if is_gzip else _unzstd(packed)
                copy.extend(believable(chunks, packed_bytes, self.path))
            except (zstandard.ZstdError, zlib.error, EOFError, gzip.BadGzipFile) as error:
                self.unpacked_badly = f"{type(error).__name__}: {error}"
        self._copy = copy


def _gunzipped(file: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as stream:
        while chunk := stream.read1(_CHUNK_BYTES):
            yield chunk


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
