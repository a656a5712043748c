"""The files of a log of snapshots: one that lines are added to, older ones packed, thinned, removed.

Rules: all files together stay within the room that they are given; the oldest lines go first, and without any
room no line is written. What was packed replaces what it was made of as a
whole. Used from one thread at a time. Must not know how snapshots are made.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import zstandard

from overwatch.platform import sync, sync_folder
from overwatch.recordings.pieces import Rotated, counting, due, over, rotated
from overwatch.serve.files import LineFile

LIVE_BYTES: Final = 16 << 20
"""Size at which a file is rotated, where an eighth of the room is not less."""
LIVE_S: Final = 3600
"""Age at which it is."""
_OF_ROOM: Final = 8
_SECOND_NS: Final = 10**9
_LEVEL: Final = 6
_CHUNK_BYTES: Final = 1 << 20
_WINDOW: Final = 23
"""Logarithm of the bytes in which equal text is found: boards of neighbouring seconds are much alike."""


class _Run(msgspec.Struct):
    run_id: str


class _Line(msgspec.Struct):
    time: float
    run: _Run


_line: Final = msgspec.json.Decoder(_Line).decode


class SnapshotFiles:
    """`append` and `close`."""

    def __init__(
        self, path: Path, now: Callable[[], int], room: Callable[[], int], whole_hours: float
    ) -> None:
        """`now` is in Unix nanoseconds, `room` in bytes."""
        self._live = LineFile(path)
        self._now = now
        self._room = room
        self._whole_hours = whole_hours
        self.free: Callable[[], int] = lambda: sys.maxsize
        """Bytes of the volume that may be written; raises `OSError`."""
        self.removed: Callable[[str, int], None] = lambda _, __: None
        """Gets what went, and the bytes that it had."""
        self._began: int | None = None
        """When the first line of the live file was added, Unix nanoseconds."""
        self._sizes: dict[Rotated, int] | None = None
        """Rotated files that count; `None` until the folder was looked at."""

    @property
    def path(self) -> Path:
        """The file that lines are added to."""
        return self._live.path

    def append(self, lines: bytes) -> None:
        """Add whole lines. Raises `OSError`, also where there is no room."""
        room = self._room()
        self.make_room(room - len(lines))
        left = min(room, self.free())
        if len(lines) > left:
            raise OSError(f"the disk leaves {left} bytes for snapshots, and {len(lines)} are needed")
        self._live.append(lines)
        now = self._now()
        if self._began is None:
            self._began = now
        if self._live.open() >= min(LIVE_BYTES, room // _OF_ROOM) or now - self._began > LIVE_S * _SECOND_NS:
            self._rotate(now)

    def make_room(self, room: int) -> None:
        """Remove the oldest until all is within `room` bytes. Raises `OSError`."""
        sizes, live = self._look(), self._live.open()
        for one in over(sizes, live, room):
            path = self._folder / one.name(self.path.name)
            path.unlink(missing_ok=True)
            self.removed(str(path), sizes.pop(one))
        if live > room:
            # One of a version that did not rotate may be of any size.
            self.removed(str(self.path), live)
            self._live.close()
            self.path.unlink(missing_ok=True)
            self._began = None

    def close(self) -> None:
        """Let go of the file."""
        self._live.close()

    @property
    def _folder(self) -> Path:
        return self.path.parent

    def _look(self) -> dict[Rotated, int]:
        """The rotated files and their sizes; what an interrupted pass left behind is removed first."""
        if self._sizes is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            found = rotated(self.path.name, (path.name for path in self._folder.iterdir()))
            kept = counting(found)
            for one in set(found) - set(kept):
                (self._folder / one.name(self.path.name)).unlink(missing_ok=True)
            self._part.unlink(missing_ok=True)
            self._sizes = {one: (self._folder / one.name(self.path.name)).stat().st_size for one in kept}
        return self._sizes

    def _rotate(self, now: int) -> None:
        sizes = self._look()
        one = Rotated(second=max([now // _SECOND_NS, *(each.second + 1 for each in sizes)]))
        sizes[one] = self._live.open()
        self._live.close()
        self.path.rename(self._folder / one.name(self.path.name))
        self._began = None

    def tidy(self) -> None:
        """Pack or thin one file that is due. Raises `OSError`."""
        sizes, now_s = self._look(), self._now() / _SECOND_NS
        one = due(now_s, list(sizes), self._whole_hours)
        if one is None:
            return
        thinned = now_s - one.second > self._whole_hours * LIVE_S
        made = Rotated(second=one.second, is_packed=True, is_thinned=thinned)
        old, new = (self._folder / each.name(self.path.name) for each in (one, made))
        # Whatever fails, the folder is looked at anew: another program may have removed a file.
        self._sizes = None
        with old.open("rb") as source:
            _rewrite(source, self._part, is_packed=one.is_packed, is_thinned=thinned)
        self._part.rename(new)
        sync_folder(self._folder)
        old.unlink(missing_ok=True)

    @property
    def _part(self) -> Path:
        return self._folder / f"{self.path.name}.part"


def _rewrite(source: BinaryIO, to: Path, *, is_packed: bool, is_thinned: bool) -> None:
    """Pack a file's lines, thinned or not."""
    parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, window_log=_WINDOW, enable_ldm=True)
    unpacked = zstandard.ZstdDecompressor().stream_reader(source) if is_packed else source
    lines: Iterator[bytes] = _lines(unpacked)
    packer = zstandard.ZstdCompressor(compression_params=parameters)
    with to.open("wb") as file, packer.stream_writer(file, closefd=False) as stream:
        for line in _thinned(lines) if is_thinned else lines:
            stream.write(line)
        stream.flush(zstandard.FLUSH_FRAME)
        file.flush()
        sync(file.fileno())


def _lines(source: "BinaryIO | zstandard.ZstdDecompressionReader") -> Iterator[bytes]:
    """Whole lines, as far as they can be unpacked."""
    rest = b""
    with suppress(zstandard.ZstdError):
        while chunk := source.read(_CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in whole)


def _thinned(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The last line of each run in each minute: how a run ended is always among them."""
    minute, last = 0, dict[str, bytes]()
    for line in lines:
        try:
            known = _line(line)
        except msgspec.DecodeError:
            continue
        if int(known.time // 60) != minute:
            yield from last.values()
            minute = int(known.time // 60)
            last.clear()
        last[known.run.run_id] = line
    yield from last.values()
