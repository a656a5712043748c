"""Lines in a zstd file that can be read at any offset: frames of about a MiB, and a table of them at the end.

The layout is zstd's own seekable format, so that `zstd -d` and every other reader see one plain stream.
Offsets are those in that stream. Rules: a file is whole once it is closed, and then survives a power loss;
what is damaged is an `OSError`. Must not know what the lines mean.
"""

import errno
import os
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import zstandard

from overwatch.platform import sync

_FRAME_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 1 << 28
"""Largest frame that is believed."""
_LEVEL: Final = 3
_SKIPPED: Final = 0x184D2A5E
_MAGIC: Final = 0x8F92EAB1
_HEAD: Final = struct.Struct("<II")
_ENTRY: Final = struct.Struct("<II")
_FOOT: Final = struct.Struct("<IBI")
_KEPT_FRAMES: Final = 8
MOST_RATIO: Final = 8192
"""A file that unpacks to more than so many times its size is no recording: those pack seven to twenty times,
one line again and again six thousand times, zeros thirty thousand times."""
_MOST_LINE: Final = 16 << 20
"""Of a file that is read line by line."""
_UNPACKED_ANYWAY: Final = 64 << 20
"""Bytes that every file may unpack to."""
_CHUNK_BYTES: Final = 1 << 18


class LineWriter:
    """Writes one file, packed or not. Raises `OSError`; what was written then is worth nothing."""

    def __init__(self, path: Path, *, is_packed: bool) -> None:
        self.path = path
        self.size = 0
        """Bytes of lines so far."""
        # In place of what has the name, as closed to others as plain files.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(path, flags, 0o640), "wb")
        self._compressor = (
            zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True) if is_packed else None
        )
        self._waiting = bytearray()
        self._frames: list[tuple[int, int]] = []

    def append(self, line: bytes) -> int:
        """Add one line without its newline; returns its offset."""
        start = self.size
        self._waiting += line + b"\n"
        self.size += len(line) + 1
        if len(self._waiting) >= _FRAME_BYTES:
            self._flush()
        return start

    def close(self) -> int:
        """Finish the file; returns its size on disk, in bytes."""
        self._flush()
        if self._compressor is not None:
            table = b"".join(_ENTRY.pack(*frame) for frame in self._frames)
            table += _FOOT.pack(len(self._frames), 0, _MAGIC)
            self._file.write(_HEAD.pack(_SKIPPED, len(table)) + table)
        self._file.flush()
        sync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return size

    def abandon(self) -> None:
        """Let go of what will not be finished."""
        self._file.close()

    def _flush(self) -> None:
        data = bytes(self._waiting)
        if data and self._compressor is not None:
            packed = self._compressor.compress(data)
            self._frames.append((len(packed), len(data)))
            self._file.write(packed)
        else:
            self._file.write(data)
        self._waiting.clear()


class PackedReader:
    """Reads one file, which is open only meanwhile; keeps the frames read last. Raises `OSError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            frames = self._table(file)
        self._places = [0, *accumulate(packed for packed, _ in frames)]
        self._starts = [0, *accumulate(size for _, size in frames)]
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the stream; fewer at its end."""
        end = min(offset + length, self._starts[-1])
        parts = []
        while offset < end:
            number = bisect_right(self._starts, offset) - 1
            inside = offset - self._starts[number]
            part = self._frame(number)[inside : inside + end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _frame(self, number: int) -> bytes:
        kept = self._kept.get(number)
        if kept is not None:
            self._kept.move_to_end(number)
            return kept
        size = self._starts[number + 1] - self._starts[number]
        with self.path.open("rb") as file:
            file.seek(self._places[number])
            packed = file.read(self._places[number + 1] - self._places[number])
        try:
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
        except zstandard.ZstdError as error:
            _damaged(self.path, str(error))
        if len(data) != size:
            _damaged(self.path, f"a frame of {len(data)} bytes should have {size}")
        self._kept[number] = data
        if len(self._kept) > _KEPT_FRAMES:
            self._kept.popitem(last=False)
        return data

    def _table(self, file: BinaryIO) -> list[tuple[int, int]]:
        """Sizes of all frames, packed and not."""
        whole = file.seek(0, os.SEEK_END)
        file.seek(max(0, whole - _FOOT.size))
        foot = file.read(_FOOT.size)
        if len(foot) < _FOOT.size:
            _damaged(self.path, "it has no table of its frames")
        count, flags, magic = _FOOT.unpack(foot)
        begin = whole - _FOOT.size - count * _ENTRY.size - _HEAD.size
        if magic != _MAGIC or flags != 0 or begin < 0:
            _damaged(self.path, "it has no table of its frames")
        file.seek(begin + _HEAD.size)
        frames = list(_ENTRY.iter_unpack(file.read(count * _ENTRY.size)))
        if sum(packed for packed, _ in frames) != begin or any(size > _MOST_BYTES for _, size in frames):
            _damaged(self.path, "the table of its frames is wrong")
        return frames


def unpacked(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The lines of an open zstd file of any program; raises `OSError`, with the path, where it is damaged."""
    stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    chunks = iter(lambda: stream.read(_CHUNK_BYTES), b"")
    try:
        yield from lines_in(believable(chunks, os.fstat(file.fileno()).st_size, path), path)
    except zstandard.ZstdError as error:
        _damaged(path, str(error))


def lines_in(chunks: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """The lines of what is read in chunks, newlines included; raises `OSError` for one that is too long."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MOST_LINE:
            _damaged(path, f"a line of more than {_MOST_LINE:,} bytes")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def believable(chunks: Iterable[bytes], packed_bytes: int, path: Path) -> Iterator[bytes]:
    """What a file of a size unpacks to; raises `OSError` as soon as that is more than any recording's."""
    left = max(_UNPACKED_ANYWAY, MOST_RATIO * packed_bytes)
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            _damaged(path, f"it unpacks to more than {MOST_RATIO:,} times its size, as no recording does")
        yield chunk


def _damaged(path: Path, why: str) -> NoReturn:
    raise OSError(errno.EIO, f"damaged: {why}", str(path))
