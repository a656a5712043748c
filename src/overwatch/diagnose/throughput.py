"""Whether a run gets less done than it could: against its own best hour, and against another run.

Rates are of stretches of whole updates, so collecting and learning weigh the same in each. A fall must be
large, and stand out from the scatter of stretches; it is told with the phase that grew. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from overwatch.diagnose.problem import SECOND_NS, Patience, Problem
from overwatch.events.adding import added
from overwatch.snapshot import Baseline
from overwatch.state.arrays import NORMAL, median
from overwatch.state.rhythm import Pace, Stretch

HOUR_NS: Final = 3_600_000_000_000
RECENT: Final = 3
"""Stretches that are now; their middle counts, so that one evaluation is no fall."""
LEAST: Final = 12
"""Stretches from which on there is a best."""
FALL: Final = 0.2
SCATTER: Final = 3.0
"""Robust standard deviations of single stretches that the fall must be, too."""
OF_MEAN: Final = 1.2533
"""Standard deviations in one mean absolute deviation, for normal data."""
MOST_OF: Final = 0.8
"""Phases that grew by at least this share of the most are one and the same, within one another."""
LEAST_OF_FALL: Final = 0.25
"""Share of the lost time that a phase must have grown by to be named."""
PATIENCE: Final = Patience(clear=20 * SECOND_NS, cooldown=120 * SECOND_NS)
"""Its hold is in the stretches."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run gets done."""

    unit: str
    now: float
    """Of the newest stretches, a second."""
    at: int
    """When the newest of them ended."""
    phases: dict[str, float] = {}
    """Seconds in each phase for one step or update, now."""
    best: Baseline | None = None
    """Of the best hour so far; of the best minutes while the run is younger."""


def throughput_of(pace: Pace, before: Throughput | None) -> Throughput | None:
    """What is done now and was at best; `None` before there are stretches enough to say what is now."""
    stretches = pace.stretches.items
    if len(stretches) < RECENT:
        return None
    newest = stretches[-1]
    if before is not None and before.at == newest.at:
        return before
    unit = _unit(newest)
    alike = [stretch for stretch in stretches if _unit(stretch) == unit]
    best = before.best if before is not None and before.at >= stretches[0].at else None
    hour = [stretch for stretch in alike if newest.at - stretch.at < HOUR_NS]
    if len(hour) >= LEAST:
        candidate = baseline_of(hour, unit)
        best = candidate if best is None or candidate.rate > best.rate else best
    recent = alike[-RECENT:]
    return Throughput(
        unit=unit,
        now=median([stretch.rate for stretch in recent]) or 0.0,
        at=newest.at,
        phases=_a_piece(recent),
        best=best,
    )


def baseline_of(stretches: Sequence[Stretch], unit: str, name: str = "its best hour") -> Baseline:
    """What these stretches were like."""
    rates = [stretch.rate for stretch in stretches]
    centre = median(rates) or 0.0
    apart = [abs(rate - centre) for rate in rates]
    # Few steps a stretch make few different rates: most are alike, and the others no fall.
    scatter = max(NORMAL * (median(apart) or 0.0), OF_MEAN * added(apart) / max(1, len(apart)))
    return Baseline(name=name, unit=unit, rate=centre, scatter=scatter, phases=_a_piece(stretches))


def _unit(stretch: Stretch) -> str:
    return "steps" if stretch.steps else "updates"


def _a_piece(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Seconds in each phase for one step or update."""
    pieces = sum(stretch.steps or stretch.updates for stretch in stretches)
    names = sorted({name for stretch in stretches for name in stretch.phases})
    if not pieces:
        return {}
    return {name: added(stretch.phases.get(name, 0.0) for stretch in stretches) / pieces for name in names}


def regressions(told: Throughput | None, baseline: Baseline | None) -> Iterator[Problem]:
    """At most one finding for each thing that the run is compared with."""
    if told is None:
        return
    for code, other in (("throughput-regression", told.best), ("throughput-below-baseline", baseline)):
        if other is not None and other.unit == told.unit and _has_fallen(told, other):
            yield _problem(code, told, other)


def _has_fallen(told: Throughput, other: Baseline) -> bool:
    return told.now < (1 - FALL) * other.rate and told.now < other.rate - SCATTER * other.scatter


def _problem(code: str, told: Throughput, other: Baseline) -> Problem:
    grew = grown_phase(told, other)
    by = "" if grew is None else f"; {_grown(grew, told, other)}"
    fall = 1 - told.now / other.rate
    return Problem(
        code=code,
        severity="warning",
        scope="run",
        subject=None,
        at=told.at,
        message=f"{told.now:,.3g} {told.unit}/s, {fall:.0%} below {other.rate:,.3g} of {other.name}{by}",
        hint=_hint(grew) if told.phases and other.phases else "time the phases to see what takes the time",
        factors=() if grew is None else (_grown(grew, told, other),),
        patience=PATIENCE,
    )


def _hint(grew: str | None) -> str:
    if grew is None:
        return "all phases grew alike: look at the machine: clock, neighbours, cores"
    return f"look at what {grew} does now and did not before"


def _grown(name: str, told: Throughput, other: Baseline) -> str:
    before, now = other.phases.get(name, 0.0), told.phases[name]
    return f"{name} takes {now / before:.1f}x as long" if before > 0 else f"{name} is new"


def grown_phase(told: Throughput, other: Baseline) -> str | None:
    """The phase that took most of the time that is lost; of phases within phases the innermost."""
    if not other.phases or told.now <= 0 or other.rate <= 0:
        return None
    grew = {name: now - other.phases.get(name, 0.0) for name, now in told.phases.items()}
    most = max(grew.values(), default=0.0)
    if most < LEAST_OF_FALL * (1 / told.now - 1 / other.rate):
        return None
    alike = [name for name, more in grew.items() if more >= MOST_OF * most]
    return min(alike, key=lambda name: (told.phases[name], name))
