"""One disk budget for all that the collector writes: what each part has, how much it may have, what is shown.

Rules: what others write to the volume takes nothing of what was stored. A budget that follows from the volume
only grows, over restarts too; where the volume has no room for the rest of it, writes are refused until it
has. What is needed for durability has its room first. The disk is looked at in a thread of its own; what
cannot be looked at keeps what it was granted. Must not know which parts there are, what they hold, nor how
they free their bytes.
"""

import contextlib
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from overwatch.background import Periodic
from overwatch.collector.health import Health
from overwatch.recordings.checkpoints import write_whole
from overwatch.regular import read_regular

EVERY_S: Final = 2.0
"""Time between two looks."""
_PART: Final = "storage"
_MIB: Final = 1 << 20
_BLOCK: Final = 512
"""Bytes of a block, as `stat` counts them everywhere."""
_DAY_S: Final = 86_400
_OF_AN_HOUR: Final = 1800
"""Looks in an hour: growth is over so long."""
OF_VOLUME: Final = 0.8
"""Share of what others leave of a volume that is the budget where none is set, unless the parts want less."""
NOTE: Final = "disk-budget"
"""The file in the data folder that holds the budget of the volume, in bytes as decimal digits."""
_NOTE_BYTES: Final = 32
_SPARE_OF_VOLUME: Final = 0.05
_MOST_SPARE: Final = 256 << 20
_log = logging.getLogger("overwatch.collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that is written."""

    name: str
    floor: int
    """Bytes that it needs to work at all."""
    most: int
    """Bytes that it may have on a large volume."""
    bytes: int = 0
    """On disk now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A file system."""

    size: int
    free: int
    """Bytes that this process may still write."""

    @property
    def spare(self) -> int:
        """Bytes that are left to others, and to what cannot be made again."""
        return min(round(self.size * _SPARE_OF_VOLUME), _MOST_SPARE)

    @property
    def beyond_spare(self) -> int:
        """Bytes that are free besides."""
        return max(0, self.free - self.spare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A part and where it lies."""

    part: Part
    place: Path
    holds: Callable[[str], bool] | None = None
    """Which names in the place are of the part; `None`: everything in it and below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """All that is written, and within what."""

    folder: Path
    """It is on the volume that counts; what lies on another one is held by its own limit alone."""
    wanted: int | None
    """The budget in bytes; by the volume if `None`."""
    rows: tuple[Row, ...]
    """The one that yields last is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was found at one look."""

    parts: tuple[Part, ...]
    volume: Volume
    most: int
    """The budget of all parts, in bytes."""
    room: int
    """The same, or less where others have filled the volume."""
    shares: dict[str, int]
    """Bytes of the budget that each part may have, by name."""

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(part.bytes for part in self.parts)


def budget(volume: Volume, parts: Sequence[Part], least: int) -> int:
    """Return most bytes of all parts where none are set: by what others leave of the volume, or `least`.

    What the parts write takes as much of `free` as it adds to them: only others change the result.
    """
    held = sum(part.bytes for part in parts)
    left = round(min(held + volume.free, volume.size) * OF_VOLUME)
    return min(max(left, least), sum(part.most for part in parts))


def fitted(most: int, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same parts, with floors that are no more than half of a small budget."""
    floors = sum(part.floor for part in parts)
    if floors <= most // 2:
        return tuple(parts)
    return tuple(replace(part, floor=part.floor * (most // 2) // floors) for part in parts)


def shares(most: int, parts: Sequence[Part]) -> dict[str, int]:
    """Bytes that each part may have, by its name: floors in order, then what each wants beyond."""
    left, granted = most, dict[str, int]()
    for part in parts:
        granted[part.name] = min(part.floor, left)
        left -= granted[part.name]
    wants = {part.name: max(0, part.most - granted[part.name]) for part in parts}
    scale = min(1.0, left / sum(wants.values())) if any(wants.values()) else 0.0
    return {name: bytes_ + int(wants[name] * scale) for name, bytes_ in granted.items()}


def look(written: Written, least: int | None = None) -> Usage:
    """What lies on the disk now. Raises `OSError`.

    `least` is the budget of an earlier look, as noted if left out; without a note all that is there fits.
    """
    table = written.rows
    # What goes while it is counted would be both held and free, and the budget would keep that.
    before, _ = _volume(written.folder)
    parts = tuple(replace(row.part, bytes=size(row)) for row in table)
    volume, device = _volume(written.folder)
    volume = replace(volume, free=min(volume.free, before.free))
    own = [part for part, row in zip(parts, table, strict=True) if _volume(row.place)[1] == device]
    held = sum(part.bytes for part in own)
    if least is None:
        noted = _noted(written.folder)
        least = held if noted is None else noted
    most = budget(volume, own, least) if written.wanted is None else written.wanted
    own = list(fitted(most, own))
    floors = {part.name: part.floor for part in own}
    parts = tuple(replace(part, floor=floors.get(part.name, part.floor)) for part in parts)
    return Usage(
        parts=parts,
        volume=volume,
        most=most,
        room=min(most, held + volume.beyond_spare),
        shares={**{part.name: part.most for part in parts}, **shares(most, own)},
    )


def _noted(folder: Path) -> int | None:
    """The budget that was noted in a data folder; `None` where none can be read."""
    try:
        digits = read_regular(folder / NOTE, _NOTE_BYTES)
    except OSError:
        return None
    return int(digits) if digits.isdigit() else None


def size(row: Row, since_s: float = 0.0) -> int:
    """Bytes on disk of a part, or of those of its files that were written to since, in Unix seconds."""
    found = (state for state in _files(row.place, row.holds) if state.st_mtime >= since_s)
    return sum(state.st_blocks * _BLOCK for state in found)


def summary(written: Written, usage: Usage, now_s: float) -> str:
    """How much there is, of what budget, and how fast it grows."""
    grown = sum(size(row, now_s - _DAY_S) for row in written.rows)
    parts = ", ".join(f"{part.name} {part.bytes / _MIB:,.0f}" for part in usage.parts)
    return (
        f"{usage.bytes / _MIB:,.0f} of {usage.most / _MIB:,.0f} MiB ({parts}); "
        f"{grown / _MIB:,.0f} MiB of it were written in the last day"
    )


def _files(folder: Path, holds: Callable[[str], bool] | None) -> Iterator[os.stat_result]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if holds is None:
                    yield from _files(Path(entry.path), None)
            elif holds is None or holds(entry.name):
                yield entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue


def volume_of(place: Path) -> Volume:
    """The file system that a place is on, or will be on. Raises `OSError`."""
    return _volume(place)[0]


def _volume(place: Path) -> tuple[Volume, int]:
    """The file system that a place is on, or will be on, and which it is."""
    there = place.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    state = os.statvfs(there)
    unit = state.f_frsize
    return Volume(size=state.f_blocks * unit, free=state.f_bavail * unit), there.stat().st_dev


class StorageBudget:
    """A component: looks at the disk every few seconds from `start` to `stop`."""

    def __init__(self, written: Written, health: Health) -> None:
        self._written = written
        self._health = health
        self._granted = {row.part.name: row.part.most for row in written.rows}
        self.usage: Usage | None = None
        """What was found at the last look."""
        self.removed = Counter[str]()
        """Bytes that went to keep each part within its limits, by name."""
        self._most: int | None = None
        """The budget of the volume; `None` until the first look."""
        self._seen = deque[int](maxlen=_OF_AN_HOUR)
        self._looking = Periodic(_PART, EVERY_S, self._look)

    def start(self) -> None:
        """Look once, then every few seconds."""
        self._look()
        self._looking.start()
        self._health.watch(_PART, self._looking.is_running)

    def stop(self) -> None:
        """Look no more."""
        self._looking.stop()

    @property
    def growth_per_day(self) -> float | None:
        """Bytes a day by which all parts grew in the last hour, or since the start; `None` at first."""
        seen = list(self._seen)
        if len(seen) < 2:
            return None
        return (seen[-1] - seen[0]) / ((len(seen) - 1) * EVERY_S) * 86_400

    def room(self, name: str) -> Callable[[], int]:
        """Bytes that a part may have, whatever others write."""
        return lambda: self._granted[name]

    def remove(self, name: str, what: str, bytes_: int) -> None:
        """Log and count what a part let go of to keep within its limits; from any thread."""
        self.removed[name] += bytes_
        _log.info("%s: removed to keep within its limits, %d bytes: %s", name, bytes_, what)

    def _look(self) -> None:
        """The border to the disk."""
        try:
            usage = look(self._written, self._most)
        except OSError as error:
            self._health.failed(_PART, f"{error.filename}: {error.strerror or error}")
            return
        if self._written.wanted is None and usage.most != self._most:
            self._note(usage.most)
        self.usage, self._granted, self._most = usage, usage.shares, usage.most
        self._seen.append(usage.bytes)
        self._health.report(_PART, full(usage))

    def _note(self, most: int) -> None:
        """Note the budget for the next life; without a data folder, or room, there is none."""
        with contextlib.suppress(OSError):
            if _noted(self._written.folder) != most:
                write_whole(self._written.folder / NOTE, str(most).encode())


def full(usage: Usage) -> str | None:
    """What an operator must know of the disk; `None` where the volume has the room that the parts need."""
    lacking = sum(max(0, part.floor - part.bytes) for part in usage.parts)
    if usage.volume.free >= usage.volume.spare and usage.volume.beyond_spare >= lacking:
        return None
    return (
        f"{usage.volume.free // _MIB} MiB are free on the volume, of {usage.volume.size // _MIB}: what is "
        f"stored stays ({usage.bytes / _MIB:,.0f} of {usage.most / _MIB:,.0f} MiB), and senders must wait "
        "where there is no room for more; make room, enlarge the volume, or set "
        "extensions.file_storage.budget_mib to less, so that what is oldest goes"
    )
