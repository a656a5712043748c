"""What is to be done next to keep a recording small: pure, from what lies in its folder.

Owns the rules and their order. What was rotated is packed; numbers are thinned by age, whole pieces at a
time; where a run or the folder is beyond its budget, the oldest numbers are thinned before their time, and
where even facts are too many, the oldest go. Where batches come faster than all this is done, the oldest
pieces go first of all, and whole. Neighbours that are alike become one piece, so that there are
never many. Must not know how a piece is rewritten.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch.otlp.thin import RetentionLevel
from overwatch.recordings.index import Share
from overwatch.recordings.pieces import Piece

_MINUTE_NS: Final = 60_000_000_000
_HOUR_NS: Final = 60 * _MINUTE_NS
_DAY_NS: Final = 24 * _HOUR_NS
_MIB: Final = 1 << 20
_ALIKE: Final = 8
"""Pieces that become one."""
_BEHIND: Final = 2
"""Full pieces that come while one clean-up is at work: it is slower than what is written."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, and for how long."""

    packs: bool = True
    """Whether rotated pieces are packed."""
    thins: bool = True
    """Whether numbers are thinned by age."""
    whole_minutes: float = 10
    """For so long all numbers are kept."""
    second_hours: float = 6
    """For so long one a second is; after that one a minute."""
    max_days: float | None = None
    """What is older goes."""
    piece_mib: float = 64
    """Most MiB of a piece that is made of several."""
    run_mib: float = 2048
    folder_mib: float = 10240

    def by_age(self, age_ns: int) -> RetentionLevel:
        """What is kept of a piece whose newest batch is so old."""
        if self.max_days is not None and age_ns > self.max_days * _DAY_NS:
            return RetentionLevel.GONE
        if not self.thins or age_ns <= self.whole_minutes * _MINUTE_NS:
            return RetentionLevel.WHOLE
        return RetentionLevel.SECOND if age_ns <= self.second_hours * _HOUR_NS else RetentionLevel.MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A piece and what is known of it."""

    piece: Piece
    size: int
    """Bytes on disk."""
    last: int
    """Stamp of its newest batch, 0 where that is not known."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """By run id; none of a piece that was not rewritten yet."""

    def size_of(self, run_id: str) -> float:
        """Bytes on disk that are a run's."""
        whole = sum(share.bytes for share in self.shares.values())
        share = self.shares.get(run_id)
        return self.size * share.bytes / whole if share is not None and whole else 0.0

    @property
    def grains(self) -> dict[str, RetentionLevel]:
        """What is left of each run."""
        return {run_id: share.grain for run_id, share in self.shares.items()}

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of anything."""
        return bool(self.shares) and all(grain is RetentionLevel.GONE for grain in self.grains.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Neighbouring pieces that are to become one."""

    pieces: tuple[Held, ...]
    floor: RetentionLevel = RetentionLevel.WHOLE
    """Every run is to be this coarse at least."""
    grains: Mapping[str, RetentionLevel] = field(default_factory=dict)
    """Runs that are to be coarser."""


def next_job(
    held: Sequence[Held], rules: Rules, now: int, other_bytes: int, fresh_bytes: int = 0
) -> Job | None:
    """The next thing to do, `None` where all is well.

    `held` is in order; `other_bytes` is what the folder holds besides, e.g. what is written to, and
    `fresh_bytes` those of them that were rotated since this clean-up began.
    """
    return (
        _catching_up(held, rules, other_bytes, fresh_bytes)
        or _packing(held, rules, now)
        or _thinning(held, rules, now)
        or _making_room(held, rules, now, other_bytes)
        or _joining(held, rules)
    )


def _catching_up(held: Sequence[Held], rules: Rules, other_bytes: int, fresh_bytes: int) -> Job | None:
    """Where the clean-up falls behind, and the folder is beyond its budget: the oldest piece goes at once."""
    if fresh_bytes < _BEHIND * rules.piece_mib * _MIB or not _is_beyond(held, rules, other_bytes):
        return None
    for one in held:
        if one.piece.generation == 0 or any(
            grain is not RetentionLevel.GONE for grain in one.grains.values()
        ):
            return Job(pieces=(one,), floor=RetentionLevel.GONE)
    return None


def _is_beyond(held: Sequence[Held], rules: Rules, other_bytes: int) -> bool:
    return other_bytes + sum(one.size for one in held) > rules.folder_mib * _MIB


def _packing(held: Sequence[Held], rules: Rules, now: int) -> Job | None:
    for one in held:
        if one.piece.generation == 0:
            return Job(pieces=(one,), floor=rules.by_age(now - one.last))
    return None


def _thinning(held: Sequence[Held], rules: Rules, now: int) -> Job | None:
    chosen: list[Held] = []
    floor = RetentionLevel.WHOLE
    for one in held:
        wanted = rules.by_age(now - one.last)
        due = any(grain < wanted for grain in one.grains.values())
        if chosen and not (
            due and wanted is floor and _are_near(chosen[-1], one) and _fit([*chosen, one], rules)
        ):
            break
        if due:
            chosen.append(one)
            floor = wanted
        if len(chosen) == _ALIKE:
            break
    return Job(pieces=tuple(chosen), floor=floor) if chosen else None


def _making_room(held: Sequence[Held], rules: Rules, now: int, other_bytes: int) -> Job | None:
    runs = dict.fromkeys(run_id for one in held for run_id in one.shares)
    for run_id in runs:
        if sum(one.size_of(run_id) for one in held) > rules.run_mib * _MIB:
            found = _oldest([(one, one.grains[run_id]) for one in held if run_id in one.shares], rules, now)
            if found is not None:
                one, grain = found
                return Job(pieces=(one,), grains={run_id: grain.coarser})
    if _is_beyond(held, rules, other_bytes):
        finest = [(one, min(one.grains.values())) for one in held if one.shares]
        found = _oldest(finest, rules, now)
        if found is not None:
            one, grain = found
            return Job(pieces=(one,), floor=grain.coarser)
    return None


def _oldest(
    told: Sequence[tuple[Held, RetentionLevel]], rules: Rules, now: int
) -> tuple[Held, RetentionLevel] | None:
    """The piece to make coarser, with its grain: what is new is spared, and nothing goes while any can be.

    One a second becomes one a minute everywhere before one a minute becomes less anywhere.
    """
    old = [(one, grain) for one, grain in told if now - one.last > rules.whole_minutes * _MINUTE_NS]
    for candidates in (old, told):
        for finer_than in (RetentionLevel.MINUTE, RetentionLevel.SPARSE, RetentionLevel.GONE):
            for one, grain in candidates:
                if grain < finer_than:
                    return one, grain
    return None


def _joining(held: Sequence[Held], rules: Rules) -> Job | None:
    """Neighbours of which equally many numbers came, with the same left of every run that they share."""
    alike: list[Held] = []
    for one in held:
        if alike and not (_are_alike(alike, one) and _fit([*alike, one], rules)):
            alike = []
        alike.append(one)
        if len(alike) == _ALIKE:
            grains = {run_id: grain for each in alike for run_id, grain in each.grains.items()}
            return Job(pieces=tuple(alike), grains=grains)
    return None


def _are_alike(alike: Sequence[Held], one: Held) -> bool:
    return (
        _are_near(alike[-1], one)
        and _tier(one) == _tier(alike[0])
        and all(
            one.grains.get(run_id, grain) is grain for each in alike for run_id, grain in each.grains.items()
        )
    )


def _are_near(one: Held, following: Held) -> bool:
    """Whether nothing lies between: what is between two would be replaced with them."""
    return following.piece.first == one.piece.last + 1


def _tier(one: Held) -> int:
    numbers, tier = one.piece.last - one.piece.first + 1, 0
    while numbers >= _ALIKE:
        numbers //= _ALIKE
        tier += 1
    return tier


def _fit(pieces: Iterable[Held], rules: Rules) -> bool:
    return sum(one.size for one in pieces) <= rules.piece_mib * _MIB
