"""Two lives that speak for one producer at once: each overwrites what the other said. Pure.

Rules: only producers that number their records are judged, since others may share a name by right; a life
that was replaced, and whose last words come late, overlaps with nothing.
"""

from collections.abc import Sequence
from typing import Final

from overwatch.diagnose.problem import STEADY, Problem
from overwatch.state.run import RunState
from overwatch.state.sources import Source, spoken_for

TOGETHER_NS: Final = 5_000_000_000
"""Two lives overlap when the older spoke this long after the newer began, by producers' time."""


def overlapping(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of the sources that share a role and a rank with another one that lives, at `tick`."""
    if len(state.sources) < 2:
        return ()
    lives: dict[str, list[str]] = {}
    for key in state.sources:
        lives.setdefault(key.rpartition("/")[0], []).append(key)
    for role, keys in lives.items():
        if len(keys) > 1:
            sources = {key: state.sources[key] for key in keys}
            lives[role] = [key for key, source in sources.items() if source.high and source.is_live(tick)]
    return tuple(
        key
        for keys in lives.values()
        for key in keys
        if any(_overlap(state.sources[key], state.sources[other]) for other in keys if other != key)
    )


def _overlap(one: Source, other: Source) -> bool:
    return min(one.at, other.at) - max(one.first_at, other.first_at) >= TOGETHER_NS


def overlapping_writers(state: RunState, keys: Sequence[str]) -> list[Problem]:
    """One problem for all producers that speak twice."""
    if not keys:
        return []
    said = spoken_for(state.sources[key] for key in keys)
    return [
        Problem(
            code="overlapping-writers",
            severity="warning",
            scope="run",
            subject=None,
            at=max(state.sources[key].first_at for key in keys),
            message=f"{len(keys)} processes speak at once as {said}: their values are mixed",
            hint="give each run its own id, each process its own rank; end the one that was left over",
            patience=STEADY,
        )
    ]
