"""The fault corpus, judged: what each fault was found as, how soon, and what was said of healthy runs.

Owns the report; runs every case as a collector would judge it, tick by tick. `python -m
overwatch.generate.corpus` writes the page. It is not among the files that `make generate` checks: it takes a
minute.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import EnvCrashed, NonFiniteSeen, Origin, Record
from overwatch.fold import FAST_NS, next_tick
from overwatch.simulate import SECOND, Script
from overwatch.simulate.corpus import CASES, Case, Class
from overwatch.state import RunState, apply, new_run

PAGE: Final = "docs/diagnosis/corpus.md"
START_NS: Final = 1_767_225_600 * SECOND
DELAY_NS: Final = 5_000_000
"""From an event to its receive stamp."""
_BEYOND: Final = 30
"""Seconds that a silent run is watched for after its last word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One finding that opened."""

    code: str
    severity: str
    """The worst that it ever had."""
    after_s: float
    """Seconds since the fault began; below 0 before it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one case."""

    case: Case
    found_s: float | None
    """Seconds from the fault's beginning to the first finding that names it."""
    found_as: str | None
    told: tuple[Told, ...]

    @property
    def before(self) -> tuple[Told, ...]:
        """Warnings and criticals of a healthy run, or before the fault began."""
        healthy = self.case.kind is Class.HARMLESS
        return tuple(t for t in self.told if t.severity != "info" and (healthy or t.after_s < 0))

    @property
    def in_time(self) -> bool:
        """Whether it was found as soon as its class asks for; of a healthy run, whether nothing was said."""
        bound = self.case.kind.bound
        if bound is None:
            return not self.before
        return self.found_s is not None and self.found_s <= bound


def run(case: Case) -> Result:
    """Judge one case, ten times a second."""
    opened: dict[str, Told] = {}
    found: tuple[float, str] | None = None
    began_s = _began_s(case)
    for state, judged, tick in _ticks(case):
        after_s = (tick - START_NS) / SECOND - began_s
        for key, item in judged.assessment.findings.items():
            known = opened.get(key)
            worst = item.problem.severity if known is None else _worse(known.severity, item.problem.severity)
            first_s = after_s if known is None else known.after_s
            opened[key] = Told(code=item.problem.code, severity=worst, after_s=first_s)
        if found is None and after_s >= 0:
            name = _names(case, state, judged)
            found = None if name is None else (after_s, name)
    return Result(
        case=case,
        found_s=found[0] if found else None,
        found_as=found[1] if found else None,
        told=tuple(opened.values()),
    )


def _began_s(case: Case) -> float:
    """When the fault began to show, in seconds: of a fact when it was first told, else as planned."""
    if case.kind is not Class.FACT:
        return float(case.at_s if case.name else 0)
    told = (
        (moment.at - START_NS) / SECOND
        for moment in Script(case.settings, START_NS).moments()
        if any(isinstance(event, EnvCrashed | NonFiniteSeen) for event in moment.events)
    )
    return max(float(case.at_s), next(told, 0.0))


def _worse(one: str, other: str) -> str:
    return min(one, other, key=("critical", "warning", "info").index)


def _names(case: Case, state: RunState, judged: Judged) -> str | None:
    """What finds the fault at this tick, if anything does."""
    open_now = {item.problem.code for item in judged.assessment.findings.values()}
    for expected in case.expects:
        status, bound = expected.removeprefix("env:"), expected.removeprefix("bound:")
        if expected in open_now:
            return expected
        if bound in {one.state for one in judged.bounds.values()}:
            return f"bound {bound}"
        if status != expected and state.envs.n - 1 in judged.anomalies.of_status(status):
            return f"env {status}"
    return None


def _ticks(case: Case) -> Iterator[tuple[RunState, Judged, int]]:
    """The state and its judgement after every tick."""
    origin = Origin(run_id=case.label, epoch="corpus", ours=True)
    state, assessment, tick, seq = None, Assessment(), next_tick(START_NS), 0
    for moment in Script(case.settings, START_NS).moments():
        stamp = moment.at + DELAY_NS
        while state is not None and tick < stamp:
            judged = assess(state, assessment, tick)
            assessment = judged.assessment
            yield state, judged, tick
            tick += FAST_NS
        for event in moment.events:
            seq += 1
            record = Record(origin=origin, event=event, seq=seq)
            state = state or new_run(record)
            apply(state, record, stamp)
    end = max(START_NS + case.settings.seconds * SECOND, tick) + SECOND
    if state is not None and state.finished is None:
        end = tick + _BEYOND * SECOND
    while state is not None and tick <= end:
        judged = assess(state, assessment, tick)
        assessment = judged.assessment
        yield state, judged, tick
        tick += FAST_NS


def corpus_page(results: list[Result]) -> str:
    """The report as a page."""
    faults = [result for result in results if result.case.kind is not Class.HARMLESS]
    healthy = [result for result in results if result.case.kind is Class.HARMLESS]
    late = [result.case.label for result in faults if not result.in_time]
    lines = [
        "<!-- Generated by `make corpus` from src/overwatch/simulate/corpus.py. Edit the cases there. -->",
        "# The fault corpus",
        "",
        f"{len(faults)} labelled faults and {len(healthy)} healthy runs, simulated, folded and judged tick",
        "by tick; `overwatch simulate --fault NAME@SECOND` plays any of them. A bound is a promise, in",
        "seconds, of which an update takes one; facts count from when they were first told.",
        "",
        f"Found in time: {len(faults) - len(late)} of {len(faults)}"
        + (f"; late: {', '.join(late)}." if late else "."),
        "",
        "## Faults",
        "",
        "| fault | class | bound | found after | found as | said before it began |",
        "|---|---|---|---|---|---|",
        *(_fault_line(result) for result in faults),
        "",
        "## Healthy runs",
        "",
        "| run | seconds | critical | warning | told as info |",
        "|---|---|---|---|---|",
        *(_healthy_line(result) for result in healthy),
    ]
    return "\n".join(lines) + "\n"


def _fault_line(result: Result) -> str:
    case = result.case
    found = "never" if result.found_s is None else f"{result.found_s:.1f}"
    said = ", ".join(told.code for told in result.before) or "nothing"
    cells = (f"`{case.label}`", case.kind.value, f"{case.kind.bound:g}", found, result.found_as or "", said)
    return "| " + " | ".join(cells) + " |"


def _healthy_line(result: Result) -> str:
    by = {
        word: [t.code for t in result.told if t.severity == word] for word in ("critical", "warning", "info")
    }
    cells = [", ".join(sorted(set(codes))) or "none" for codes in by.values()]
    return "| " + " | ".join([f"`{result.case.label}`", f"{result.case.seconds}", *cells]) + " |"


def main() -> int:
    """Judge all cases and write the page below the current folder."""
    results = []
    for case in CASES:
        with np.errstate(all="ignore"):
            results.append(run(case))
        sys.stdout.write(
            _fault_line(results[-1]) + "\n" if case.kind.bound else _healthy_line(results[-1]) + "\n"
        )
        sys.stdout.flush()
    page = Path.cwd() / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(corpus_page(results), encoding="utf-8")
    return 0 if all(result.in_time for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
