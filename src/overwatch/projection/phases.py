"""How long each phase of training took: the ranks' counts added up. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from overwatch.catalog.phases import DURATION_ENDS_S
from overwatch.events.adding import added
from overwatch.projection.text import safe
from overwatch.snapshot import Exemplar, PhaseTimes
from overwatch.state.rhythm import Phase

SHOWN: Final = 8
"""Phases that are told, so that their number is bounded whatever a trainer names."""


def phase_times(phases: Iterable[Mapping[str, Phase]]) -> tuple[PhaseTimes, ...]:
    """Those phases of all ranks and services that took most of the time, by name."""
    by_name: dict[str, list[Phase]] = {}
    for of_rank in phases:
        for name, phase in of_rank.items():
            by_name.setdefault(name, []).append(phase)
    told = [_times(name, ranks) for name, ranks in by_name.items()]
    longest = sorted(told, key=lambda one: (-one.total_s, one.name))[:SHOWN]
    return tuple(sorted(longest, key=lambda one: one.name))


def _times(name: str, ranks: list[Phase]) -> PhaseTimes:
    return PhaseTimes(
        name=safe(name),
        counts=tuple(map(sum, zip(*(phase.counts for phase in ranks), strict=True))),
        total_s=added(phase.total_s for phase in ranks),
        exemplars=tuple(_exemplars(ranks)),
    )


def _exemplars(ranks: list[Phase]) -> list[Exemplar]:
    """Of each place the newest that a trace shows, whichever rank told it."""
    found = []
    for place in range(len(DURATION_ENDS_S) + 1):
        traced = [phase.traced[place] for phase in ranks if place in phase.traced]
        if traced:
            newest = max(traced, key=lambda one: (one.at, one.span_id))
            found.append(
                Exemplar(
                    bucket=place,
                    duration_s=newest.duration_s,
                    at=newest.at / 1e9,
                    trace_id=safe(newest.trace_id),
                    span_id=safe(newest.span_id),
                )
            )
    return found
