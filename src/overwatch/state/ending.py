"""Which producer holds a run, and how the run ended: the trainer's lowest rank decides, the others are parts.

Rules: a trainer comes before any other role, a producer that promised an end record before one that did not;
of a rank that was started again the newest life counts, whenever the records of an earlier one arrive.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from overwatch.events import RunFinished
from overwatch.state.sources import Source

_CAUSED: Final = ("failed", "interrupted", "lost")
"""Ends that the failure of another rank brings about."""


def team_of(sources: Mapping[str, Source]) -> dict[str, Source]:
    """Those whose silence is the run's, by key: the trainer's lives, of those the ones that promised an end.

    Of one rank the life that began last and the one that emitted last: where clocks differ these are two.
    Producers that promised nothing may share a rank by right, so all of them count.
    """
    trainers = {key: source for key, source in sources.items() if source.is_trainer}
    among = trainers or dict(sources)
    promised = {key: source for key, source in among.items() if source.promised}
    return newest_lives(promised) | latest_lives(promised) or among


def holder_of(sources: Mapping[str, Source]) -> str | None:
    """Key of the producer that decides; `None` without any."""
    team = team_of(sources)
    if not team:
        return None
    first = next(iter(team.values()))
    head = min(team.values(), key=lambda source: source.rank) if first.is_trainer else first
    return max((key for key in team if team[key].name == head.name), key=lambda key: team[key].first_at)


def end_of(sources: Mapping[str, Source]) -> RunFinished | None:
    """How the run ended; `None` while its holder goes on.

    A rank that was interrupted, was killed or failed after another rank had failed ended because of that: the
    first failure is the reason, in whatever order the records arrive.
    """
    key = holder_of(sources)
    holder = None if key is None else sources[key]
    if holder is None or holder.ending is None or holder.ending.outcome not in _CAUSED:
        return None if holder is None else holder.ending
    failures = [
        (source.ending.at, source.rank, source.ending)
        for source in newest_lives(sources).values()
        if source.is_trainer and source.ending is not None and source.ending.outcome == "failed"
        and holder.first_at <= source.ending.at <= holder.ending.at
    ]  # fmt: skip
    if not failures:
        return holder.ending
    _, rank, failure = min(failures, key=lambda found: found[:2])
    if rank == holder.rank:
        return holder.ending
    reason = f"rank {rank}: {failure.reason or 'no reason given'}"
    return msgspec.structs.replace(failure, at=holder.ending.at, reason=reason)


def newest_lives(sources: Mapping[str, Source]) -> dict[str, Source]:
    """The latest life of each role and rank, by key: an earlier one was replaced."""
    return _newest(sources, lambda life: life.first_at)


def latest_lives(sources: Mapping[str, Source]) -> dict[str, Source]:
    """The life of each role and rank that emitted last, by key."""
    return _newest(sources, lambda life: life.stamp)


def _newest(sources: Mapping[str, Source], moment: Callable[[Source], int]) -> dict[str, Source]:
    newest: dict[str, str] = {}
    for key, source in sources.items():
        member = key.rpartition("/")[0]
        if member not in newest or moment(source) >= moment(sources[newest[member]]):
            newest[member] = key
    return {key: sources[key] for key in newest.values()}
