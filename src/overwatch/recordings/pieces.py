"""Names of rotated files: of a recording's pieces and of a log of snapshots, and which of them count.

The files that are written to keep their plain names, e.g. `logs.jsonl`; a piece's are called
`<kind>-<first>-<last>-<generation>.jsonl`, with `.zst` where they are packed. Rotation gives each piece the
next number; compaction makes one piece of several, whose generation is higher. A piece is there once its
index is, and then every piece of a lower generation within its numbers is left over: whatever is killed at
whatever moment, the folder holds each number once.

Of a log of snapshots lines are added to the file with the plain name, e.g. `snapshots.jsonl`. A full one
becomes `snapshots-<second>.jsonl`, then `snapshots-<second>.jsonl.zst`, and with age
`snapshots-<second>-minute.jsonl.zst`, of which each run has one line a minute; of each second one file
counts.

Pure; must not know what the files hold.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_HOUR_S: Final = 3600
_LOG_NAME: Final = re.compile(r"-(\d{1,12})(-minute)?\.jsonl(\.zst)?")
INDEX: Final = "index"
PACKED: Final = ".zst"
_NAME: Final = re.compile(r"([a-z]+)-(\d{6,9})-(\d{6,9})-(\d{1,9})\.jsonl(\.zst)?")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Piece:
    """Some numbers of a recording, as one set of files."""

    first: int
    last: int
    generation: int = 0
    """0 as rotated; each compaction adds one."""
    is_packed: bool = False

    def name(self, kind: str) -> str:
        """The file of a signal, or the index."""
        plain = f"{kind}-{self.first:06d}-{self.last:06d}-{self.generation}.jsonl"
        return plain + PACKED if self.is_packed else plain

    def replaces(self, other: "Piece") -> bool:
        """Whether the other is left over now that this one is there."""
        inside = self.first <= other.first and other.last <= self.last
        return inside and self.generation > other.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What lies in a folder."""

    pieces: tuple[Piece, ...]
    """Those that count, in order of their numbers."""
    leftovers: tuple[str, ...]
    """Files of compactions that were cut short, and of pieces that were replaced."""
    rotating: tuple[str, ...]
    """Data files of a rotation that did not reach the index."""

    @property
    def number(self) -> int:
        """That of the piece which is written to."""
        return self.pieces[-1].last + 1 if self.pieces else 1


def piece_of(name: str) -> tuple[str, Piece] | None:
    """Kind and piece of a file's name, `None` where it is no piece's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind, first, last, generation, packed = found.groups()
    if int(last) < int(first):
        return None
    return kind, Piece(
        first=int(first), last=int(last), generation=int(generation), is_packed=packed is not None
    )


def inventory(names: Iterable[str]) -> Inventory:
    """Sort the names in a folder; those of anything else are passed over."""
    found = [(name, *known) for name in sorted(names) if (known := piece_of(name)) is not None]
    there = {piece for _, kind, piece in found if kind == INDEX}
    counting = {piece for piece in there if not any(other.replaces(piece) for other in there)}
    pieces = tuple(sorted(counting))
    number = pieces[-1].last + 1 if pieces else 1
    begun = Piece(first=number, last=number)
    return Inventory(
        pieces=pieces,
        leftovers=tuple(name for name, _, piece in found if piece not in counting and piece != begun),
        rotating=tuple(name for name, _, piece in found if piece == begun),
    )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Rotated:
    """A file that is not written to any more; the order is by age, of one second the one that counts last."""

    second: int
    """When it was rotated, Unix seconds."""
    is_packed: bool = False
    is_thinned: bool = False

    def name(self, live: str) -> str:
        """Its name beside the file that is written to."""
        grain, packed = "-minute" * self.is_thinned, ".zst" * self.is_packed
        return f"{live.removesuffix('.jsonl')}-{self.second}{grain}.jsonl{packed}"


def rotated(live: str, names: Iterable[str]) -> list[Rotated]:
    """All rotated files of a log, the oldest first."""
    stem, found = live.removesuffix(".jsonl"), []
    for name in names:
        match = _LOG_NAME.fullmatch(name.removeprefix(stem)) if name.startswith(stem) else None
        if match is not None:
            second, thinned, packed = match.groups()
            found.append(
                Rotated(second=int(second), is_packed=packed is not None, is_thinned=thinned is not None)
            )
    return sorted(found)


def counting(found: Iterable[Rotated]) -> list[Rotated]:
    """Of each second the file that counts, the oldest first."""
    return list({one.second: one for one in sorted(found)}.values())


def due(now_s: float, found: Sequence[Rotated], whole_hours: float) -> Rotated | None:
    """The file that is to be packed or thinned next, `None` where none is."""
    for one in found:
        if not one.is_packed or (not one.is_thinned and now_s - one.second > whole_hours * _HOUR_S):
            return one
    return None


def over(sizes: Mapping[Rotated, int], live: int, most: int) -> list[Rotated]:
    """The oldest files, that are to be removed for all to be within `most` bytes."""
    total, gone = live + sum(sizes.values()), []
    for one in sorted(sizes):
        if total <= most:
            break
        gone.append(one)
        total -= sizes[one]
    return gone
