"""Which run a rank belongs to whose launcher gave it no run id.

The ranks of such a launch share a key. Rank 0's first record under a new epoch announces the run; a rank
belongs to the newest announcement that has not yet heard another life of it, because that life was of an
earlier launch that met at the same place. Records that came before the announcement wait, bounded, as one
pending run. Pure; must not know how records are folded.
"""

from typing import Final

import msgspec

from overwatch.events import Origin, Record

MAX_KEYS: Final = 256
"""Launches remembered; the one announced or received first goes first."""
MAX_WAITING: Final = 20_000
"""Records of one launch that wait for its rank 0; the oldest goes first."""


class _Launch(msgspec.Struct, kw_only=True):
    run_id: str | None = None
    epoch: str = ""
    """Of rank 0, when it announced the run."""
    lives: dict[str, str] = {}
    """The life of each rank that belongs to the announced run."""
    waiting: list[tuple[Record, int]] = []
    forgotten: int = 0
    """Records that waited too long to be kept."""


class Resolved(msgspec.Struct, frozen=True):
    """Where a record belongs, and what became known with it."""

    record: Record
    """Under its run's id, or under its stand-in while that is not known."""
    released: list[tuple[Record, int]] = []
    """Records that waited, with their stamps, to be folded before this one."""
    stand_ins: frozenset[str] = frozenset()
    """Runs that the released records had been folded into; they are no more."""


class Joins(msgspec.Struct, kw_only=True):
    """All launches whose ranks share a key instead of a run id."""

    launches: dict[str, _Launch] = {}

    def resolve(self, record: Record, stamp: int) -> Resolved:
        """Where a record received at `stamp` belongs. One that must wait is released again later."""
        origin = record.origin
        if origin.join is None:
            return Resolved(record)
        launch = self.launches.get(origin.join)
        if launch is None:
            if len(self.launches) >= MAX_KEYS:
                del self.launches[next(iter(self.launches))]
            launch = self.launches[origin.join] = _Launch()
        if origin.rank == 0:
            return _announce(launch, record)
        if _belongs(launch, origin):
            return Resolved(_renamed(record, str(launch.run_id)))
        if len(launch.waiting) >= MAX_WAITING:
            del launch.waiting[0]
            launch.forgotten += 1
        launch.waiting.append((record, stamp))
        return Resolved(record)


def _announce(launch: _Launch, record: Record) -> Resolved:
    """Rank 0 reported: under a new epoch the newest waiting life of each rank is of its run."""
    origin = record.origin
    if launch.epoch == origin.epoch:
        return Resolved(record)
    waited, launch.waiting = launch.waiting, []
    launch.run_id, launch.epoch = origin.run_id, origin.epoch
    launch.lives = {_member(waiting.origin): waiting.origin.epoch for waiting, _ in waited}
    released = [
        (_renamed(waiting, origin.run_id) if _belongs(launch, waiting.origin) else waiting, stamp)
        for waiting, stamp in waited
    ]
    return Resolved(record, released, frozenset(waiting.origin.run_id for waiting, _ in waited))


def _belongs(launch: _Launch, origin: Origin) -> bool:
    if launch.run_id is None:
        return False
    return launch.lives.setdefault(_member(origin), origin.epoch) == origin.epoch


def _member(origin: Origin) -> str:
    return f"{origin.role}/{origin.rank}"


def _renamed(record: Record, run_id: str) -> Record:
    return msgspec.structs.replace(record, origin=msgspec.structs.replace(record.origin, run_id=run_id))
