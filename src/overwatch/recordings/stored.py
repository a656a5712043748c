"""A file of anybody's as a sequence of parts: JSON values, or messages with their lengths before them.

What a file is shows in its first bytes, never in its name. Values lie one a line, ended by LF or CRLF, or
otherwise (`recordings.values`), and a byte order mark may stand first; messages have four bytes of length,
the highest first, and may each be packed with zstd, as otelcol's `file` exporter writes protobuf and all that
it packs. A file that is packed as a whole, with zstd or gzip, is unpacked into a temporary one. Rules: a part
that is too long to be believed is told and passed over without being held; a tail that is cut off is told as
such. Must not know what the parts mean.
"""

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

from overwatch.recordings.handles import Handles, Scratch
from overwatch.recordings.packed import MOST_RATIO, believable
from overwatch.recordings.values import MOST_BYTES, values

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


@dataclass(frozen=True, slots=True)
class Part:
    """One value or message."""

    offset: int
    """Of its bytes, in the file as it is read."""
    length: int
    data: bytes | None
    """`None` where it is longer than `MOST_BYTES`, or cut off within its length."""
    is_last: bool = False
    """The file ends with it, and nothing says that it is whole."""


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

    def parts(self, start: int = 0) -> Iterator[Part]:
        """Everything from an offset on at which a part begins; lines without anything are left out."""
        return self._messages(start) if self.is_framed else self._values(start)

    def read(self, offset: int, length: int) -> bytes:
        """A part's bytes, unpacked; fewer where the file has become shorter. Raises `OSError`."""
        return self._plain(self._read(offset, min(length, MOST_BYTES)))

    def _read(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def _values(self, start: int) -> Iterator[Part]:
        begun = start + (len(_BOM) if start == 0 and self._read(0, 3) == _BOM else 0)
        for extent in values(self._read, begun):
            data = extent.data
            if data is None and extent.length <= MOST_BYTES:
                data = self._read(extent.offset, extent.length)
            yield Part(extent.offset, extent.length, data, extent.is_last)

    def _messages(self, start: int) -> Iterator[Part]:
        at = start
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
