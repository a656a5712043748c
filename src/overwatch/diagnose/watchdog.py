"""The watchdog: training that stopped although its process still speaks, and processes that fell silent.

Each rank is measured by its own rhythm: after a phase ended, the next one usually ends within so long. Who
stopped first is named, the others wait for it. Silence is on the stamp clock, everything else on the
producer's own. Pure; a run that is silent as a whole is not its matter.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from overwatch.catalog.durations import duration
from overwatch.diagnose.problem import STEADY, Problem
from overwatch.state.rhythm import Phase, Rhythm
from overwatch.state.ring import median
from overwatch.state.run import RunState
from overwatch.state.sources import Source

TIMES: Final = 6.0
"""Of what is usual."""
LONGEST_TIMES: Final = 2.0
"""Of the longest that was: evaluations and checkpoints that nobody announces come again."""
LEAST_S: Final = 8.0
FIRST_S: Final = 1800.0
"""How long a phase that was announced may take when none like it has ended yet."""
LEAST_GAPS: Final = 3
"""Gaps that must be known before anything is usual."""
CRITICAL_TIMES: Final = 30.0
CRITICAL_S: Final = 120.0
SILENT_S: Final = 10.0
INTERVALS: Final = 6
"""A process is silent after this many of its own intervals, if that is longer."""


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
    """Ranks that stopped, who stopped first comes first."""
    heard: dict[int, int] = {}
    for source in state.sources.values():
        if not source.finished:
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
    """One finding: who stopped first, and how many wait."""
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


def silent_sources(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of processes that fell silent and did not end, while the run as a whole still speaks."""
    newest: dict[str, str] = {}
    for key, source in state.sources.items():
        who = key.rpartition("/")[0]
        if who not in newest or source.stamp >= state.sources[newest[who]].stamp:
            newest[who] = key
    return tuple(key for key in newest.values() if _is_silent(state.sources[key], state.back_stamp, tick))


def _is_silent(source: Source, back_stamp: int, tick: int) -> bool:
    patience_s = max(SILENT_S, INTERVALS * (source.interval_s() or 0.0))
    return not source.finished and (tick - max(source.stamp, back_stamp)) / 1e9 > patience_s


def silent_processes(state: RunState, keys: Sequence[str], tick: int) -> Iterator[Problem]:
    """One finding for all of them."""
    if not keys:
        return
    silent = sorted((state.sources[key] for key in keys), key=lambda source: (source.stamp, source.name))
    first, others = silent[0], len(silent) - 1
    more = "" if not others else f" and {others} more"
    quiet = duration((tick - first.stamp) / 1e9)
    yield Problem(
        code="source-silent",
        severity="warning",
        scope="run",
        subject=first.speaker,
        at=first.stamp,
        message=f"{first.speaker}{more} silent for {quiet}, while others of the run speak",
        hint="look at its process and its log; what it told is shown as it was then",
        symptoms=others,
        patience=STEADY,
    )
