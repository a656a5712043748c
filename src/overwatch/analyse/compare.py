"""Runs beside one another: what was set differently, where they part, and which number got better or worse.

The first run is what the others are compared with. A verdict is about these runs, not about what was changed
between them: two seeds of one configuration differ too.

Two curves part at the first place from which their difference stands out of both curves' own noise. Both are
cut into the same blocks, at most `BLOCKS`, of at least `LEAST_VALUES` values each, and a block stands for its
median. The noise of a curve is how much the medians of neighbouring blocks differ beyond its usual slope
(MAD). The curves have parted at the first block where their medians differ by `APART` times the noise of both
together, to the same side, in it and in the blocks after it, `HOLD` in all. Pure.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np

from overwatch.analyse.curves import STEPS_PER_S, TASK_METRIC, Axis, Curve, counts_text, in_order
from overwatch.analyse.effect import NEEDS, Effect, Floats, Verdict, effect, noise
from overwatch.analyse.findings import SEVERITIES
from overwatch.analyse.run_history import AnalyseError, RunHistory
from overwatch.catalog.durations import duration
from overwatch.catalog.titles import title

MOST_RUNS: Final = 16
BLOCKS: Final = 40
LEAST_VALUES: Final = 4
NEEDS_BLOCKS: Final = 6
"""Blocks that are needed to know a curve's noise."""
APART: Final = 5.0
HOLD: Final = 3
_MOST_NAMED: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Values of two curves at the same places; arrays of one length."""

    x: Floats
    a: Floats
    b: Floats


def aligned(first: Curve, second: Curve, axis: Axis) -> Aligned:
    """By update, what both have; else at the places of the sparser one, each with its newest value by then.

    Only where both have begun and neither is over. Of a place that came twice, as after a restart from a
    checkpoint, the later value counts.
    """
    (xa, a), (xb, b) = along(first, axis), along(second, axis)
    if axis == "update":
        x, at_a, at_b = np.intersect1d(xa, xb, assume_unique=True, return_indices=True)
        return Aligned(x=x, a=a[at_a], b=b[at_b])
    if not len(xa) or not len(xb):
        return Aligned(x=np.zeros(0), a=np.zeros(0), b=np.zeros(0))
    low, high = max(xa[0], xb[0]), min(xa[-1], xb[-1])
    counts = [int(np.count_nonzero((x >= low) & (x <= high))) for x in (xa, xb)]
    grid = xa if counts[0] <= counts[1] else xb
    x = grid[(grid >= low) & (grid <= high)]
    return Aligned(x=x, a=_held(xa, a, x), b=_held(xb, b, x))


def along(curve: Curve, axis: Axis) -> tuple[Floats, Floats]:
    """Places and values of a curve, by rising place, each place once."""
    x, values = np.array(curve.along(axis)), np.array(curve.value)
    if axis == "update":
        x = np.round(x)
    backwards, first = np.unique(x[::-1], return_index=True)
    return backwards, values[::-1][first]


def _held(x: Floats, values: Floats, wanted: Floats) -> Floats:
    held: Floats = values[np.searchsorted(x, wanted, side="right") - 1]
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """How two curves go beside one another."""

    identical_until: float | None
    """Last place up to which every value is the same to the bit; `None` where the first are not."""
    identical: bool
    """Whether all of them are."""
    parted: tuple[float, float] | None = None
    """First and last place of the block in which they part; `None` where they do not."""
    from_start: bool = False
    """Whether that is the first block."""
    times_noise: float | None = None
    """How far apart they are there, in the noise of both."""
    why: str | None = None
    """Why it is not known."""


def divergence(pair: Aligned) -> Divergence:
    """Where the two part."""
    a, b = pair.a, pair.b
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    begun = int(np.argmin(same)) if len(same) and not same.all() else len(same)
    until = float(pair.x[begun - 1]) if begun else None
    identical = bool(len(same)) and bool(same.all())
    known = np.isfinite(a) & np.isfinite(b)
    x, a, b = pair.x[known], a[known], b[known]
    size = max(LEAST_VALUES, -(-len(x) // BLOCKS))
    n = len(x) // size
    if n < NEEDS_BLOCKS:
        why = f"{len(x)} values in common, it needs {NEEDS_BLOCKS * LEAST_VALUES}"
        return Divergence(identical_until=until, identical=identical, why=why)
    apart, first = _apart(a, b, size, n)
    if first is None:
        return Divergence(identical_until=until, identical=identical)
    return Divergence(
        identical_until=until,
        identical=identical,
        parted=(float(x[first * size]), float(x[first * size + size - 1])),
        from_start=first == 0,
        times_noise=round(abs(float(apart[first])), 2),
    )


def _apart(a: Floats, b: Floats, size: int, n: int) -> tuple[Floats, int | None]:
    """How far the blocks are apart, in noise, and the first that begins `HOLD` to one side."""
    medians = [np.median(side[: n * size].reshape(n, size), axis=1) for side in (a, b)]
    scale = float(np.max(np.abs(medians))) if n else 0.0
    both = math.hypot(noise(medians[0]), noise(medians[1]))
    apart: Floats = (medians[1] - medians[0]) / max(both, 1e-9 * scale, 1e-300)
    sides = np.where(apart >= APART, 1, np.where(apart <= -APART, -1, 0))
    for first in range(n - HOLD + 1):
        if sides[first] and (sides[first : first + HOLD] == sides[first]).all():
            return apart, first
    return apart, None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """How runs are compared."""

    align: Axis = "update"
    """What stands beside what: the same update, time since each run began, or env steps."""
    last: float = 0.25
    """Share of what both have, at its end, over which verdicts are."""

    def __post_init__(self) -> None:
        if not 0 < self.last <= 1:
            raise AnalyseError(f"last is {self.last:g}; use a share above 0 and at most 1, e.g. 0.25")


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a comparison."""

    run: str
    path: str
    outcome: str | None
    open_at_end: tuple[str, ...]
    """Kinds of warnings and criticals that stood when it ended, the worst first."""
    counts: str
    """Its updates, episodes and env steps, in words; what is not known is left out."""
    updates: float
    episodes: float
    steps: float | None
    """Absent where the envs were reported without their steps."""
    seconds: float
    findings: dict[str, int]
    """How many there were, by the worst severity of each."""
    codes: dict[str, float]
    """When each kind of finding was first true, seconds since the run began."""
    severities: dict[str, str]
    """The worst severity of each kind."""

    @property
    def ending(self) -> str:
        """How it ended, in words: `completed, open at the end: policy-collapse`."""
        stood = f", open at the end: {', '.join(self.open_at_end)}" if self.open_at_end else ""
        return f"{self.outcome or 'not ended'}{stood}"


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """One number of one run beside that of the first run."""

    place: int
    """Of the run, 1 being the second."""
    effect: Effect
    divergence: Divergence
    aligned: int
    """Places that both have."""
    enough: float | None
    """The least share at their end that has values enough for a verdict; `None` where all have too few."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One number of all runs."""

    name: str
    label: str
    unit: str | None
    fmt: str
    """`format()` specification of its values."""
    direction: str | None
    against: tuple[Against, ...]
    """In the order of the runs, the first left out; those without this number too."""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """What to know first of one run beside the first run."""

    place: int
    severity: str
    """Of what is worse in this run: critical, warning, ok where it is only better, else info."""
    findings: str
    """How they ended where that differs, and findings that only one of them has, or has worse."""
    parting: str
    """Where they part first, and in what."""
    verdicts: str
    """How many numbers are worse and better, and why others have no verdict."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs beside one another."""

    align: Axis
    last: float
    runs: tuple[RunReport, ...]
    config: dict[str, tuple[str | None, ...]]
    """What was not set the same, by name: a value a run, `None` where it has none."""
    metrics: tuple[Compared, ...]
    headlines: tuple[Headline, ...] = ()
    """In the order of the runs, the first left out."""


class Parted(NamedTuple):
    """A number that parted from the first run's."""

    metric: Compared
    against: Against
    at: tuple[float, float]


def compare(histories: Sequence[RunHistory], config: CompareConfig) -> Comparison:
    """Compare two or more runs; raises `AnalyseError` for fewer, or too many."""
    if not 2 <= len(histories) <= MOST_RUNS:
        raise AnalyseError(f"{len(histories)} runs cannot be compared; name 2 to {MOST_RUNS}")
    for run_history in histories:
        if config.align == "steps" and run_history.run.steps is None:
            raise AnalyseError(
                f"run {run_history.run.run_id} has no env steps to align by; use --align update"
            )
    first, *others = histories
    metrics = []
    for name, curve in numbers(first).items():
        pairs = [(place, numbers(other).get(name)) for place, other in enumerate(others, 1)]
        found = [(place, other) for place, other in pairs if other is not None]
        if found:
            direction = direction_of(first, curve)
            against = tuple(_against(curve, other, place, direction, config) for place, other in found)
            metrics.append(_compared(first, name, curve, against))
    comparison = Comparison(
        align=config.align,
        last=config.last,
        runs=tuple(map(_reported, histories)),
        config=differences(histories),
        metrics=tuple(metrics),
    )
    headlines = tuple(_headline(comparison, place) for place in range(1, len(histories)))
    return msgspec.structs.replace(comparison, headlines=headlines)


def numbers(run_history: RunHistory) -> dict[str, Curve]:
    """The curves of a run that are compared: of the policy, its own metric, and how much it got done."""
    curves = run_history.curves
    rest = (curves.machine.get((name, None)) for name in (TASK_METRIC, STEPS_PER_S))
    shown = (*in_order(curves.policy.values()), *(curve for curve in rest if curve is not None))
    return {curve.name: curve for curve in shown}


def direction_of(run_history: RunHistory, curve: Curve) -> str | None:
    """Which way is good for a number of this run."""
    if curve.name == STEPS_PER_S:
        return "up"
    if curve.name == TASK_METRIC:
        metric = run_history.run.metric
        return None if metric is None else "up" if metric.higher_is_better else "down"
    return curve.direction


def differences(histories: Sequence[RunHistory]) -> dict[str, tuple[str | None, ...]]:
    """What the runs were not started with alike."""
    configs = [run_history.config for run_history in histories]
    names = dict.fromkeys(name for config in configs for name in config)
    table = {name: tuple(config.get(name) for config in configs) for name in names}
    return {name: values for name, values in table.items() if len(set(values)) > 1}


def partings(comparison: Comparison) -> list[Parted]:
    """Numbers of the policy that parted, the first to part first; those apart from the start come last."""
    found = [
        Parted(metric, against, against.divergence.parted)
        for metric in comparison.metrics
        for against in metric.against
        if against.divergence.parted is not None
    ]

    def order(one: Parted) -> tuple[bool, tuple[float, float], float]:
        """Return what rows are sorted by."""
        parting = one.against.divergence
        return parting.from_start, one.at, -(parting.times_noise or 0)

    return sorted(found, key=order)


def alike_until(comparison: Comparison, place: int) -> float | None:
    """The last place up to which all numbers of a run are those of the first to the bit; `None` for none."""
    untils = [
        one.divergence.identical_until for m in comparison.metrics for one in m.against if one.place == place
    ]
    known = [until for until in untils if until is not None]
    return min(known) if known and len(known) == len(untils) else None


def letter(place: int) -> str:
    """What a run of a comparison is called: the first `A`."""
    return chr(ord("A") + place)


def place_text(at: float, comparison: Comparison) -> str:
    """A place on the axis, for a person."""
    return duration(at) if comparison.align == "time" else f"{at:,.6g}"


def _headline(comparison: Comparison, place: int) -> Headline:
    first, run = comparison.runs[0], comparison.runs[place]
    only_a, only_b = _worse_than(first, run), _worse_than(run, first)
    verdicts = [
        one.effect.verdict for metric in comparison.metrics for one in metric.against if one.place == place
    ]
    levels = [run.severities[code] for code in only_b] + ["critical"] * ("worse" in verdicts)
    is_better = bool(only_a) or "better" in verdicts
    severity = max(levels, key=SEVERITIES.index) if levels else "ok" if is_better else "info"
    ended = (
        ""
        if first.outcome == run.outcome
        else (f"A {first.outcome or 'not ended'}, {letter(place)} {run.outcome or 'not ended'}. ")
    )
    alone = [f"Only in {name}: {_kinds(of, codes)}." for name, of, codes in
             (("A", first, only_a), (letter(place), run, only_b)) if codes]  # fmt: skip
    same = "The same findings in both." if run.severities else "No findings in either."
    return Headline(
        place=place,
        severity=severity,
        findings=ended + (" ".join(reversed(alone)) or same),
        parting=_parting(comparison, place),
        verdicts=_verdicts(comparison, place, verdicts),
    )


def _worse_than(run: RunReport, other: RunReport) -> list[str]:
    """Kinds of warnings and criticals that are worse in a run than in the other; the worst first."""

    def rank(of: RunReport, code: str) -> int:
        """Return the place of a code's severity in a run."""
        return SEVERITIES.index(of.severities.get(code, "info"))

    codes = [code for code in run.codes if rank(run, code) > max(1, rank(other, code))]
    return sorted(codes, key=lambda code: -rank(run, code))


def _kinds(run: RunReport, codes: Sequence[str]) -> str:
    named = [
        f"{title(code)} ({run.severities[code]}, from {duration(max(0.0, run.codes[code]))}"
        + (", open at the end)" if code in run.open_at_end else ")")
        for code in codes[:_MOST_NAMED]
    ]
    more = f" and {len(codes) - _MOST_NAMED} more" if len(codes) > _MOST_NAMED else ""
    return ", ".join(named) + more


def _parting(comparison: Comparison, place: int) -> str:
    found = [one for one in partings(comparison) if one.against.place == place]
    begun = [one.metric.label for one in found if one.against.divergence.from_start]
    later = [one for one in found if not one.against.divergence.from_start]
    until = alike_until(comparison, place)
    words = []
    if begun:
        words.append(f"from the start in {', '.join(begun[:_MOST_NAMED])}")
    if later:
        where = f"{comparison.align} {place_text(later[0].at[0], comparison)}"
        others = ", ".join(one.metric.label for one in later[1:_MOST_NAMED])
        words.append(f"at {where} in {later[0].metric.label}" + (f", then {others}" if others else ""))
    unknown = {one.divergence.why for metric in comparison.metrics for one in metric.against
               if one.place == place and one.divergence.why}  # fmt: skip
    same = "" if until is None else f"The same to the bit up to {place_text(until, comparison)}. "
    if found:
        return f"{same}{letter(place)} parts from A {'; '.join(words)}."
    if unknown:
        return f"{same}Where {letter(place)} parts from A is not known: {min(unknown)}."
    return f"{same}No number of {letter(place)} leaves the noise of both runs."


def _verdicts(comparison: Comparison, place: int, verdicts: Sequence[Verdict]) -> str:
    """Count them; where some have none, the most frequent reason and the share that has values enough."""
    none = [one for metric in comparison.metrics for one in metric.against
            if one.place == place and one.effect.verdict == "no verdict"]  # fmt: skip
    words = []
    if len(none) < len(verdicts):
        worse, better = verdicts.count("worse"), verdicts.count("better")
        words.append(f"{worse} numbers worse than in A, {better} better")
    if none:
        (why, _), *_ = Counter(one.effect.why for one in none).most_common(1)
        shares = [one.enough for one in none if one.enough is not None and one.enough > comparison.last]
        advice = f"; try --last {max(shares):g}" if shares else ""
        words.append(f"No verdict on {len(none)} numbers: {why}{advice}")
    return ". ".join(words) + "." if words else "No number is in both."


def _against(base: Curve, curve: Curve, place: int, direction: str | None, config: CompareConfig) -> Against:
    pair = aligned(base, curve, config.align)
    low, high = (pair.x[0], pair.x[-1]) if len(pair.x) else (0.0, 0.0)
    late = pair.x >= high - config.last * (high - low)
    parting = divergence(pair)
    reported = effect(pair.a[late], pair.b[late], direction, parted=parting.parted is not None)
    known = pair.x[np.isfinite(pair.a) & np.isfinite(pair.b)]
    enough = None
    if len(known) >= NEEDS and high > low:
        enough = max(0.01, math.ceil(100 * (high - known[-NEEDS]) / (high - low)) / 100)
    return Against(place=place, effect=reported, divergence=parting, aligned=len(pair.x), enough=enough)


def _compared(run_history: RunHistory, name: str, curve: Curve, against: tuple[Against, ...]) -> Compared:
    row = curve.row
    label = curve.label
    if name == TASK_METRIC and run_history.run.metric is not None:
        label = run_history.run.metric.name
    return Compared(
        name=name,
        label=label,
        unit=None if row is None else row.unit,
        fmt=".4g" if row is None else row.fmt,
        direction=direction_of(run_history, curve),
        against=against,
    )


def _reported(run_history: RunHistory) -> RunReport:
    counters = run_history.last.counters
    counts: dict[str, int] = {}
    codes: dict[str, float] = {}
    severities: dict[str, str] = {}
    stood = [one for one in run_history.found.standing if one.severity != "info"]
    for found in run_history.findings:
        counts[found.severity] = counts.get(found.severity, 0) + 1
        code = found.finding.code
        codes.setdefault(code, round(found.since, 3))
        severities[code] = max(severities.get(code, "info"), found.severity, key=SEVERITIES.index)
    return RunReport(
        run=run_history.run.run_id,
        path=str(run_history.path),
        outcome=run_history.run.outcome,
        open_at_end=tuple(dict.fromkeys(one.finding.code for one in stood)),
        counts=counts_text(run_history.last),
        updates=counters.get("updates", 0),
        episodes=counters.get("episodes", 0),
        steps=counters.get("steps"),
        seconds=round(run_history.length, 3),
        findings=counts,
        codes=codes,
        severities=severities,
    )
