"""The corpus of faults: every fault of the simulator, what it must be found as and how soon, and what it was.

Owns the labels and the classes with their bounds, which are promises, not what was measured; and the report.
Every case is judged as a collector would judge it, tick by tick. `python -m tests.calibration.corpus` writes
the page; it is not among the files that `make generate` checks: it takes a minute.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from overwatch.diagnose import Judged
from overwatch.events import EnvCrashed, NonFiniteSeen, Origin, Record
from overwatch.simulate import SECOND, Script
from overwatch.simulate.faults import Planned
from overwatch.simulate.settings import Settings
from overwatch.state import RunState
from tests.calibration.replaying import Arrival, Tick, ticks

PAGE: Final = "docs/diagnosis/corpus.md"
START_NS: Final = 1_767_225_600 * SECOND
DELAY_NS: Final = 5_000_000
"""From an event to its receive stamp."""


class Class(Enum):
    """What kind of trouble, which decides how soon it must be found."""

    FACT = "fact"
    """A crash, a NaN, an end: emitted once, true at once."""
    MACHINE = "machine"
    """A level of a machine, or silence."""
    LOOP = "loop"
    """What the training loop spends its time on: a share of the newest twenty seconds."""
    POLICY = "policy"
    """Rows of the policy that jump."""
    LEAK = "leak"
    """Memory that fills up: to be forecast while most of what was left is there."""
    FLEET = "fleet"
    """Envs and seeds, judged by what they did over a while."""
    DRIFT = "drift"
    """What creeps."""
    HARMLESS = "harmless"
    """It looks like trouble and is none."""

    @property
    def bound(self) -> float | None:
        """Seconds (updates, of the policy: one a second here) within which it must be found."""
        return _BOUNDS.get(self.value)


_BOUNDS: Final = {
    "fact": 2.0,
    "machine": 10.0,
    "loop": 20.0,
    "policy": 5.0,
    "leak": 10.0,
    "fleet": 30.0,
    "drift": 50.0,
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled run."""

    name: str
    """A fault of the simulator; empty for a run without one."""
    kind: Class
    expects: tuple[str, ...] = ()
    """Codes of findings, any of which finds it; `env:` and a status where the board is where it shows,
    `bound:` and a verdict where that is what holds a lane back."""
    at_s: int = 50
    seconds: int = 80
    seed: int = 11
    slots: int = 3
    rate_hz: float = 10.0

    @property
    def label(self) -> str:
        """The fault, or `healthy` and its seed."""
        return self.name or f"healthy-{self.seed}"

    @property
    def settings(self) -> Settings:
        """Two lanes of eight envs."""
        faults = (Planned(name=self.name, at_s=self.at_s),) if self.name else ()
        return Settings(
            gpus=2, envs=8, slots=self.slots, rate_hz=self.rate_hz, seconds=self.seconds, seed=self.seed,
            faults=faults, run_id=self.label,
        )  # fmt: skip


def _cases(
    kind: Class, found_as: dict[str, tuple[str, ...]], *, at_s: int = 50, seconds: int = 80
) -> list[Case]:
    return [
        Case(name=name, kind=kind, expects=codes, at_s=at_s, seconds=seconds)
        for name, codes in found_as.items()
    ]


CASES: Final[tuple[Case, ...]] = (
    *_cases(
        Class.FACT,
        {
            "crash-storm": ("env-crashed", "crash-storm"),
            "env-crash": ("env-crashed",),
            "env-nan": ("env-non-finite", "non-finite"),
            "env-nan-column": ("env-non-finite",),
            "gpu-off-bus": ("gpu-lost",),
            "nan": ("non-finite",),
            "silent-nan": ("non-finite",),
            "run-failed": ("run-failed",),
            "killed": ("run-lost",),
        },
        seconds=60,
    ),
    *_cases(
        Class.MACHINE,
        {
            "thermal-throttle": ("thermal-throttle",),
            "straggler": ("straggler",),
            "io-starvation": ("io-starvation",),
            "stale": ("telemetry-stale", "run-lost"),
            "env-slow": ("env-stalled",),
            "names-flood": ("too-many-names",),
            "power-throttle": ("power-throttle",),
            "weights-slow": ("weights-slow",),
            "saving-slow": ("io-starvation",),
            "queue-starved": ("queue-starved",),
            "small-kernels": ("bound:HOST-BOUND",),
            "training-stuck": ("training-stalled",),
            "gpu-silent": ("gpu-lost",),
            "ecc-errors": ("ecc-uncorrectable",),
            "disk-full": ("disk-full",),
        },
    ),
    *_cases(
        Class.LOOP,
        {
            "envs-slow": ("bound:ENV-BOUND",),
            "inference-slow": ("bound:INFER-BOUND",),
            "learner-slow": ("bound:LEARNER-BOUND",),
            "sawtooth": ("bound:SYNC-BOUND",),
        },
        seconds=120,
    ),
    *_cases(Class.DRIFT, {"memory-creep": ("oom-forecast",)}, at_s=60, seconds=150),
    *_cases(Class.DRIFT, {"host-leak": ("host-memory",), "disk-fills": ("disk-full",)}, seconds=120),
    # The newest checkpoint is that of second 120, and they come each half minute.
    *_cases(Class.DRIFT, {"checkpoints-end": ("checkpoints-stopped",)}, at_s=149, seconds=220),
    *_cases(Class.DRIFT, {"slowdown": ("throughput-regression",)}, at_s=170, seconds=230),
    *_cases(
        Class.POLICY,
        {
            "policy-collapse": ("policy-collapse", "policy-kl-divergence", "steps-too-large"),
            "kl-spike": ("kl-spike",),
            "kl-high": ("policy-kl-divergence",),
            "clip-high": ("policy-clip-fraction",),
            "steps-too-large": ("steps-too-large",),
            "entropy-collapse": ("policy-entropy", "policy-collapse"),
            "gradient-explosion": ("policy-grad-norm",),
            "critic-failure": ("critic-failing", "policy-explained-variance", "policy-value-loss"),
            "ratio-explosion": ("policy-ratio-max",),
            "ratio-collapse": ("policy-ratio-min",),
            "sampler-mismatch": ("policy-first-ratio-error",),
            "updates-slow": ("policy-update-time",),
            "policy-frozen": ("policy-frozen",),
            "critic-diverged": ("critic-diverged",),
            "gradient-spikes": ("gradient-spikes",),
            "zero-gradients": ("zero-gradients",),
            "learning-rate-zero": ("learning-rate-zero",),
        },
        seconds=65,
    ),
    # Its return is that of whole episodes, which end some seconds after they went wrong.
    *_cases(Class.FLEET, {"silent-collapse": ("policy-collapse",)}),
    # Within the warm-up.
    *_cases(Class.POLICY, {"early-explosion": ("policy-collapse",)}, at_s=5, seconds=15),
    # Its slots would speak for it.
    Case(name="env-silent", kind=Class.MACHINE, expects=("env-stalled",), slots=0),
    *_cases(Class.LEAK, {"oom-climb": ("oom-forecast",)}),
    *_cases(
        Class.FLEET,
        {
            "cull-storm": ("cull-storm",),
            "reward-collapse": ("reward-collapse", "slow-drift"),
            "env-reward": ("env-degraded",),
        },
        seconds=100,
    ),
    # Judged within an episode, so these must be of more than fifty steps.
    Case(name="env-rent", kind=Class.FLEET, expects=("env-degraded",), rate_hz=25.0),
    # A policy that mostly waits repeats itself for dozens of steps; a stuck env does so for hundreds.
    Case(name="env-actions", kind=Class.FLEET, expects=("env-degraded",), rate_hz=25.0),
    *_cases(
        Class.DRIFT,
        {
            "kl-creep": ("slow-drift",),
            "clip-creep": ("slow-drift",),
            "explained-variance-creep": ("slow-drift",),
            "returns-creep": ("slow-drift", "reward-collapse"),
        },
        at_s=60,
        seconds=120,
    ),
    # Two slopes and a hold need forty updates.
    *_cases(Class.DRIFT, {"reward-hacking": ("reward-hacking",)}, at_s=0, seconds=120),
    *_cases(
        Class.HARMLESS,
        {
            "curriculum-step": (),
            "noisy-updates": (),
            "early-stops": (),
            "solved": (),
            "sparse-rewards": (),
            "learning-rate-drop": (),
            "buffer-fills": (),
            "measured-early": (),
        },
        at_s=40,
        seconds=150,
    ),
    *_cases(Class.HARMLESS, {"odd-machine": (), "best-checkpoints": ()}, at_s=0, seconds=150),
    *_cases(
        Class.HARMLESS,
        {"learning-rate-warm-up": (), "take-off": (), "grpo": ()},
        at_s=0,
        seconds=180,
    ),
    *(Case(name="", kind=Class.HARMLESS, seconds=150, seed=seed) for seed in (1, 2, 3)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
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
    reported: tuple[Reported, ...]

    @property
    def before(self) -> tuple[Reported, ...]:
        """Warnings and criticals of a healthy run, or before the fault began."""
        healthy = self.case.kind is Class.HARMLESS
        return tuple(t for t in self.reported if t.severity != "info" and (healthy or t.after_s < 0))

    @property
    def in_time(self) -> bool:
        """Whether it was found as soon as its class asks for; of a healthy run, whether nothing was found."""
        bound = self.case.kind.bound
        if bound is None:
            return not self.before
        return self.found_s is not None and self.found_s <= bound


def run(case: Case) -> Result:
    """Judge one case, ten times a second."""
    opened: dict[str, Reported] = {}
    found: tuple[float, str] | None = None
    began_s = _began_s(case)
    for state, judged, tick in _ticks(case):
        after_s = (tick - START_NS) / SECOND - began_s
        for key, item in judged.assessment.findings.items():
            known = opened.get(key)
            worst = item.problem.severity if known is None else _worse(known.severity, item.problem.severity)
            first_s = after_s if known is None else known.after_s
            opened[key] = Reported(code=item.problem.code, severity=worst, after_s=first_s)
        if found is None and after_s >= 0:
            name = _names(case, state, judged)
            found = None if name is None else (after_s, name)
    return Result(
        case=case,
        found_s=found[0] if found else None,
        found_as=found[1] if found else None,
        reported=tuple(opened.values()),
    )


def _began_s(case: Case) -> float:
    """When the fault began to show, in seconds: of a fact when it was first sent, else as planned."""
    if case.kind is not Class.FACT:
        return float(case.at_s if case.name else 0)
    reported = (
        (moment.at - START_NS) / SECOND
        for moment in Script(case.settings, START_NS).moments()
        if any(isinstance(event, EnvCrashed | NonFiniteSeen) for event in moment.events)
    )
    return max(float(case.at_s), next(reported, 0.0))


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


def _ticks(case: Case) -> Iterator[Tick]:
    """The state and its judgement after every tick."""
    return ticks(_arrivals(case), START_NS + case.settings.seconds * SECOND)


def _arrivals(case: Case) -> Iterator[Arrival]:
    origin, seq = Origin(run_id=case.label, epoch="corpus", ours=True), itertools.count(1)
    for moment in Script(case.settings, START_NS).moments():
        records = [Record(origin=origin, event=event, seq=next(seq)) for event in moment.events]
        yield moment.at + DELAY_NS, records


def corpus_page(results: list[Result]) -> str:
    """The report as a page."""
    faults = [result for result in results if result.case.kind is not Class.HARMLESS]
    healthy = [result for result in results if result.case.kind is Class.HARMLESS]
    late = [result.case.label for result in faults if not result.in_time]
    lines = [
        "<!-- Generated by `make corpus` from tests/calibration/corpus.py. Edit the cases there. -->",
        "# The fault corpus",
        "",
        f"{len(faults)} labelled faults and {len(healthy)} healthy runs, simulated, folded and judged tick",
        "by tick; `overwatch simulate --fault NAME@SECOND` plays any of them. A bound is a promise, in",
        "seconds, of which an update takes one; facts count from when they were first sent.",
        "",
        f"Found in time: {len(faults) - len(late)} of {len(faults)}"
        + (f"; late: {', '.join(late)}." if late else "."),
        "",
        "## Faults",
        "",
        "| fault | class | bound | found after | found as | reported before it began |",
        "|---|---|---|---|---|---|",
        *(_fault_line(result) for result in faults),
        "",
        "## Healthy runs",
        "",
        "| run | seconds | critical | warning | reported as info |",
        "|---|---|---|---|---|",
        *(_healthy_line(result) for result in healthy),
    ]
    return "\n".join(lines) + "\n"


def _fault_line(result: Result) -> str:
    case = result.case
    found = "never" if result.found_s is None else f"{result.found_s:.1f}"
    stated = ", ".join(reported.code for reported in result.before) or "nothing"
    cells = (f"`{case.label}`", case.kind.value, f"{case.kind.bound:g}", found, result.found_as or "", stated)
    return "| " + " | ".join(cells) + " |"


def _healthy_line(result: Result) -> str:
    by = {
        word: [t.code for t in result.reported if t.severity == word]
        for word in ("critical", "warning", "info")
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
