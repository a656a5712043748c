"""A log of snapshots in several files: what rotation calls them, and which is thinned or removed next.

Lines are added to the file with the plain name, e.g. `snapshots.jsonl`. A full one becomes
`snapshots-<second>.jsonl`, then `snapshots-<second>.jsonl.zst`, and with age
`snapshots-<second>-minute.jsonl.zst`, of which each run has one line a minute. Whatever is killed at whatever
moment, of each second one file counts. Pure; must not know what the lines hold.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_HOUR_S: Final = 3600
_NAME: Final = re.compile(r"-(\d{1,12})(-minute)?\.jsonl(\.zst)?")


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
        match = _NAME.fullmatch(name.removeprefix(stem)) if name.startswith(stem) else None
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
