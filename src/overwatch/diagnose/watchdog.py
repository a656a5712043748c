"""The watchdog: training that stopped although its process still emits, and processes that are gone.

Each rank is measured by its own rhythm: how long after the end of one phase the next one usually ends. The
rank that stopped first is named, the others wait for it. Silence is measured on the stamp clock, everything
else on the producer's own. Pure. Must not know runs that are silent as a whole: `silence` judges those.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from overwatch.catalog.durations import duration
from overwatch.catalog.tallies import SCOPE_OF_ROLE
from overwatch.diagnose.problem import STEADY, Problem
from overwatch.state.arrays import median
from overwatch.state.rhythm import Phase, Rhythm
from overwatch.state.run import RunState
from overwatch.state.sources import Source, holder_of, latest_lives

TIMES: Final = 6.0
"""Of what is usual."""
LONGEST_TIMES: Final = 2.0
"""Of the longest that was: evaluations and checkpoints that are not announced come again."""
LEAST_S: Final = 8.0
FIRST_S: Final = 1800.0
"""Seconds that an announced phase may take while none of its name has ended yet."""
LEAST_GAPS: Final = 3
"""Gaps that must be known before anything is usual."""
CRITICAL_TIMES: Final = 30.0
CRITICAL_S: Final = 120.0
SILENT_S: Final = 10.0
PATIENCES: Final = 2
"""A process is gone after so many times the silence that is usual for it, if that is longer."""
GONE_S: Final = 600.0
"""Seconds for which it is reported; after that the run is taken to go on without it."""
_ILL: Final = ("failed", "lost")


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose training does not go on."""

    rank: int
    doing: str
    """What it is in, or what it did last: `in update`, `after collect`."""
    for_s: float
    usual_s: float
    at: int
    """Producer's time at which it last got on."""


def stalls_of(state: RunState) -> tuple[Stall, ...]:
    """Ranks that stopped, the one that stopped first comes first."""
    heard: dict[int, int] = {}
    for source in state.sources.values():
        if not source.finished and not source.is_beside:
            heard[source.rank] = max(heard.get(source.rank, 0), source.at)
    found = (
        _stall(rank, state.phases.get(rank, {}), rhythm, heard.get(rank, 0))
        for rank, rhythm in state.rhythms.items()
    )
    return tuple(sorted((stall for stall in found if stall), key=lambda stall: (stall.at, stall.rank)))


def _stall(rank: int, phases: Mapping[str, Phase], rhythm: Rhythm, now: int) -> Stall | None:
    for name, began in reversed(rhythm.open.items()):
        return _overdue(rank, name, phases.get(name), max(began, rhythm.at, rhythm.seen_at), now)
    nexts = {} if rhythm.last is None else rhythm.gaps.get(rhythm.last, {})
    if sum(len(gaps.newest_s.items) for gaps in nexts.values()) < LEAST_GAPS:
        return None
    usual_s = max(median(gaps.newest_s.items) or 0.0 for gaps in nexts.values())
    longest_s = max(gaps.longest_s for gaps in nexts.values())
    at = max(rhythm.at, rhythm.seen_at)
    for_s = (now - at) / 1e9
    if for_s <= _patience_s(usual_s, longest_s):
        return None
    doing = f"in {next(iter(nexts))}" if len(nexts) == 1 else f"after {rhythm.last}"
    return Stall(rank=rank, doing=doing, for_s=for_s, usual_s=usual_s, at=at)


def _overdue(rank: int, name: str, phase: Phase | None, at: int, now: int) -> Stall | None:
    """A pause that was announced is measured by itself; one that never ended before may take long."""
    known_s = [] if phase is None else phase.seconds.items
    usual_s = median(known_s)
    patience_s = FIRST_S if usual_s is None else _patience_s(usual_s, max(known_s))
    for_s = (now - at) / 1e9
    if for_s <= patience_s:
        return None
    return Stall(rank=rank, doing=f"in {name}", for_s=for_s, usual_s=usual_s or 0.0, at=at)


def _patience_s(usual_s: float, longest_s: float) -> float:
    return max(TIMES * usual_s, LONGEST_TIMES * longest_s, LEAST_S)


def stalled(stalls: Sequence[Stall]) -> Iterator[Problem]:
    """One finding: the rank that stopped first, and how many wait."""
    if not stalls:
        return
    first, others = stalls[0], len(stalls) - 1
    waiting = "" if not others else f"; {others} other {'rank' if others == 1 else 'ranks'} stopped after it"
    worse = first.for_s >= max(CRITICAL_TIMES * first.usual_s, CRITICAL_S)
    yield Problem(
        code="training-stalled",
        severity="critical" if worse else "warning",
        scope="run",
        subject=f"rank {first.rank}",
        at=first.at,
        message=(
            f"rank {first.rank} {first.doing} for {duration(first.for_s)}, usual {duration(first.usual_s)}"
            f"{waiting}"
        ),
        hint="its process lives: look at its stack (py-spy dump), at the others' logs, at storage",
        symptoms=others,
    )


def gone_sources(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of processes that left a run which goes on without them: killed, failed, or silent without an end.

    Each is among them for a limited time only.
    """
    holder = holder_of(state.sources)
    return tuple(
        key
        for key, source in latest_lives(state.sources).items()
        if not (source.finished and key == holder) and _is_gone(source, state.back_stamp, tick)
    )


def _is_gone(source: Source, back_stamp: int, tick: int) -> bool:
    if source.ending is not None:
        return source.ending.outcome in _ILL and (tick - source.stamp) / 1e9 <= GONE_S
    patience_s = max(SILENT_S, PATIENCES * source.patience_s())
    return patience_s < (tick - max(source.stamp, back_stamp)) / 1e9 <= patience_s + GONE_S


def gone_producers(state: RunState, keys: Sequence[str], tick: int) -> Iterator[Problem]:
    """One finding for all that are no services: a run loses and gains workers by right.

    What was silent when `keys` were found at `tick` may have reported since.
    """
    sources = (state.sources[key] for key in keys)
    gone = sorted(
        (one for one in sources if one.role not in SCOPE_OF_ROLE and one.stamp <= tick),
        key=lambda one: (one.stamp, one.name),
    )
    if not gone:
        return
    first, others = gone[0], len(gone) - 1
    names = f"{first.speaker} and {others} more" if others else first.speaker
    how = f"silent for {duration((tick - first.stamp) / 1e9)} without an end record"
    if first.ending is not None:
        how = f"{first.ending.outcome}: {first.ending.reason or 'no reason given'}"
    grave = any(one.is_trainer or (one.ending is not None and one.ending.outcome == "failed") for one in gone)
    yield Problem(
        code="producer-gone",
        severity="warning" if grave else "info",
        scope="run",
        subject=None,
        at=first.at,
        message=f"{names} {how}, while the run goes on",
        hint="look at its process and its log; its values are shown as they were",
        symptoms=others,
        patience=STEADY,
    )
