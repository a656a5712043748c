"""One disk budget for all that the collector writes: what each part has, how much it may have, what is shown.

Rules: what is needed for durability is reserved first; what can be made again yields first and whole. What a
volume has left counts as well as the budget, as others write to it too. The disk is looked at in a thread of
its own; what cannot be looked at keeps what it was granted. Must not know which parts there are, what they
hold, nor how they free their bytes.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from overwatch.background import Periodic
from overwatch.collector.health import Health

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
"""Share of a volume that is the budget where none is set, unless the parts want less."""
TIGHT: Final = 0.85
"""From this share of the room on what is written fills its budget."""
_SPARE_OF_VOLUME: Final = 0.05
_MOST_SPARE: Final = 256 << 20


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
    is_needed: bool = False
    """Its bytes are not given back for others: acknowledged data, or what it takes to start again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A file system."""

    size: int
    free: int
    """Bytes that this process may still write."""

    @property
    def spare(self) -> int:
        """Bytes that are left to others: a volume is never filled to its end."""
        return min(round(self.size * _SPARE_OF_VOLUME), _MOST_SPARE)


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
    """Bytes that each part may have now, by name."""
    planned: dict[str, int]
    """The same, if no other program wrote to the volume: this does not change."""

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(part.bytes for part in self.parts)


def budget(volume: Volume, parts: Sequence[Part], wanted: int | None) -> int:
    """Most bytes of all parts: what was set, else by the volume."""
    if wanted is not None:
        return wanted
    return min(round(volume.size * OF_VOLUME), sum(part.most for part in parts))


def room(volume: Volume, parts: Sequence[Part], wanted: int | None) -> int:
    """Bytes that all parts may have now: the budget, or less where others have filled the volume."""
    possible = sum(part.bytes for part in parts) + volume.free - volume.spare
    return max(0, min(budget(volume, parts, wanted), possible))


def fitted(most: int, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same parts, with floors that are no more than half of a small budget."""
    floors = sum(part.floor for part in parts)
    if floors <= most // 2:
        return tuple(parts)
    return tuple(replace(part, floor=part.floor * (most // 2) // floors) for part in parts)


def shares(most: int, parts: Sequence[Part]) -> dict[str, int]:
    """Bytes that each part may have, by its name; `parts` begin with the one that yields last.

    A needed part keeps what it has; then floors are granted in order, and the rest in proportion to what
    each part wants beyond its floor.
    """
    left, granted = most, dict.fromkeys((part.name for part in parts), 0)
    ordered = sorted(parts, key=lambda part: not part.is_needed)
    for part in ordered:
        floor = max(part.floor, part.bytes) if part.is_needed else part.floor
        granted[part.name] = min(floor, left)
        left -= granted[part.name]
    wants = {part.name: max(0, part.most - granted[part.name]) for part in parts}
    scale = min(1.0, left / sum(wants.values())) if any(wants.values()) else 0.0
    return {name: bytes_ + int(wants[name] * scale) for name, bytes_ in granted.items()}


def look(written: Written) -> Usage:
    """What lies on the disk now. Raises `OSError`."""
    table, wanted = written.rows, written.wanted
    parts = tuple(replace(row.part, bytes=size(row)) for row in table)
    volume, device = _volume(written.folder)
    own = [part for part, row in zip(parts, table, strict=True) if _volume(row.place)[1] == device]
    most, now = budget(volume, own, wanted), room(volume, own, wanted)
    own = list(fitted(most, own))
    floors = {part.name: part.floor for part in own}
    parts = tuple(replace(part, floor=floors.get(part.name, part.floor)) for part in parts)
    granted = {part.name: part.most for part in parts}
    return Usage(
        parts=parts,
        volume=volume,
        most=most,
        room=now,
        shares={**granted, **shares(now, own)},
        planned={**granted, **shares(most, [replace(part, bytes=0) for part in own])},
    )


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
        """Bytes that a part may have, as of the last look."""
        return lambda: self._granted[name]

    def _look(self) -> None:
        """The border to the disk."""
        try:
            usage = look(self._written)
        except OSError as error:
            self._health.failed(_PART, f"{error.filename}: {error.strerror or error}")
            return
        self.usage, self._granted = usage, usage.shares
        self._seen.append(usage.bytes)
        self._health.report(_PART, full(usage))


def full(usage: Usage) -> str | None:
    """What an operator must know of the disk; `None` where all parts have the room that they need."""
    cramped = [part.name for part in usage.parts if usage.shares[part.name] < part.floor]
    if not cramped:
        return None
    return (
        f"{usage.volume.free // _MIB} MiB are free on the volume, of {usage.volume.size // _MIB}: too little "
        f"for {', '.join(cramped)}; make room, or enlarge the volume"
    )
