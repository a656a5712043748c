"""The room for runs: how much a fold may hold, what a run takes of it, and who goes first when it is used up.

Rules: a run's cost follows from its state alone, and the room is part of the recording, so a replay lets go
of the same runs at the same ticks. Runs that are over go first, then envs that have long been silent; then
the runs that grow get no more envs. Pure. Must not know how much memory the process really has.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.state.arrays import Ints
from overwatch.state.envs import MAX_ENVS
from overwatch.tracked import Tracked

RUN_BYTES: Final = 64 << 10
"""What a run takes beside its envs: measured 64 KiB."""
ENV_BYTES: Final = 2400
"""What a row for an env takes, state and judgement together: measured 2,200."""
SLOT_BYTES: Final = 72
"""What a slot of a row takes."""
FACT_BYTES: Final = 1024
"""What a remembered line about an env takes: measured 560, and 2,800 with the longest text."""
NUMBER_BYTES: Final = 64
"""What a remembered removal of an env, or a missing sequence number, takes."""
SMALL_PART: Final = 8
"""A run may take this part of the room for as long as so much is free."""
SILENT_NS: Final = 600_000_000_000
"""So long after its last record an env may be evicted."""
_DAY_NS: Final = 86_400_000_000_000


class Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a fold may hold."""

    runs: int = 1024
    """Most runs."""
    bytes: int = 640 << 20
    """Most bytes of all of them, as `cost` counts."""
    ended_ns: int = 7 * _DAY_NS
    """So long after its last record a run that is over is kept at most."""


def cost(run: Tracked) -> int:
    """What a run takes, in bytes."""
    return _beside(run) + run.state.envs.ids.size * _row(run)


def most_envs(run: Tracked, room: Room, free: int) -> int:
    """How many envs a run may have where `free` bytes are left.

    A large run takes at most half of what it alone could have: the next one finds room too.
    """
    could = free + cost(run)
    within = max(could // 2, min(could, room.bytes // SMALL_PART))
    return min(MAX_ENVS, max(run.state.envs.n, (within - _beside(run)) // _row(run)))


def leaving(runs: Mapping[str, Tracked], room: Room, tick: int) -> list[str]:
    """The runs to evict: of those that are over the oldest, until what is left fits and none is too old."""
    over = sorted(
        (run_id for run_id, run in runs.items() if run.is_over or run.fault is not None),
        key=lambda run_id: runs[run_id].state.last_stamp,
    )
    used, count, gone = sum(cost(run) for run in runs.values()), len(runs), list[str]()
    for run_id in over:
        run = runs[run_id]
        if used <= room.bytes and count <= room.runs and tick - run.state.last_stamp <= room.ended_ns:
            break
        gone.append(run_id)
        used, count = used - cost(run), count - 1
    return gone


def cut_down(runs: Mapping[str, Tracked], room: Room) -> tuple[Tracked, Ints] | None:
    """The run that takes most, with the rows of envs to evict; `None` where all runs fit."""
    used = sum(cost(run) for run in runs.values())
    if used <= room.bytes:
        return None
    run = max(runs.values(), key=cost)
    half = (room.bytes - used + cost(run)) // 2
    keeps = max(0, (half - _beside(run)) // _row(run))
    return run, run.state.envs.quietest(run.state.envs.n - keeps)


def _beside(run: Tracked) -> int:
    """What it takes beside its envs' rows, its past among it."""
    state = run.state
    numbers = len(state.envs.gone) + sum(len(source.gaps) for source in state.sources.values())
    return RUN_BYTES + FACT_BYTES * state.facts.total + NUMBER_BYTES * numbers + run.past.size


def _row(run: Tracked) -> int:
    slots: int = run.state.envs.stage.shape[1]
    return ENV_BYTES + SLOT_BYTES * slots
