"""What telemetry costs a training loop of 1 ms updates, beside a collector that is well or in any trouble.

In one process, blocks of updates with telemetry and without, and without again as the A/A control, in turn;
every ratio is the median over these pairs. Between two blocks the exporter comes to rest, so that its
work falls into the block that caused it.
"""

import contextlib
import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.sdk.host import MISSING, Cores, Worker, collector, worker
from tests.bench.sdk.stats import Goals, emit, quantile
from tests.ports import free_port

PIECES = 50
PIECE_NS = 20_000
REST_S = 0.15
FILL_S = 90.0
ARMS = ("none", "ours", "none again")
_ORDERS = list(itertools.permutations(ARMS))


@dataclass(frozen=True)
class Case:
    """One trainer and its collector."""

    title: str
    collector: str | None = "healthy"
    """`None` where nothing listens."""
    emitter: str = "overwatch"
    call: str = "12+192"
    work: str = "torch"
    before: str = ""
    """What happens to the worker first."""


CASES = (
    Case("healthy"),
    Case("dead", None),
    Case("hung", "hung"),
    Case("stopped", before="stop"),
    Case("1 kB/s", "slow"),
    Case("evil replies", "replies"),
    Case("spool full", None, before="fill"),
)
COMPARATORS = (
    Case("Overwatch, cold caches", work="cold"),
    Case("Overwatch, work in Python", work="arithmetic"),
    Case("OpenTelemetry, 12", emitter="opentelemetry", call="12"),
    Case("OpenTelemetry, 12 + 192", emitter="opentelemetry"),
    Case("wandb offline, 12", emitter="wandb", call="12"),
    Case("TensorBoard, 12", emitter="tensorboard", call="12"),
)


@dataclass
class Arm:
    """What the blocks of one arm took, nanoseconds; one entry a pair but for the pools."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    errors: int = 0
    switched: int = 0

    def add(self, reported: dict[str, Any]) -> None:
        """Take a block."""
        self.p50.append(statistics.median(reported["updates"]))
        self.p99.append(quantile(reported["updates"], 0.99))
        self.total.append(reported["total"])
        self.gaps += reported["gaps"]
        self.costs += reported["costs"]
        self.errors += reported["errors"]
        self.switched += reported["switched"]


@dataclass(frozen=True)
class Ratios:
    """One arm beside another."""

    p50: float
    p99: float
    rate: float
    gap: float

    @classmethod
    def of(cls, arm: Arm, beside: Arm) -> "Ratios":
        """Medians over the pairs; the gaps' 99.99th percentiles over all of them."""
        return cls(
            p50=_middle(arm.p50, beside.p50),
            p99=_middle(arm.p99, beside.p99),
            rate=_middle(beside.total, arm.total),
            gap=quantile(arm.gaps, 0.9999) / quantile(beside.gaps, 0.9999),
        )


def _middle(over: list[float], under: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def measure(
    pairs: int, updates: int, folder: Path, cores: Cores, goals: Goals, *, only: frozenset[str] = frozenset()
) -> None:
    """Measure and print every case, or those of these titles."""
    emit(f"{pairs} pairs of {updates} updates of 1 ms, in {PIECES} pieces of torch on one thread")
    emit(f"{pairs // 3} pairs of what is there to compare with")
    emit("ratios to no telemetry; in brackets no telemetry again to no telemetry (A/A)")
    emit(
        f"{'':24} {'rate':>15} {'step p50':>15} {'step p99':>15} {'gap p99.99':>15} "
        f"{'call p50':>9} {'p99 µs':>8} {'switched':>11} {'raised':>6}"
    )
    found: dict[str, tuple[Ratios, Ratios, int]] = {}
    for case in (*CASES, *COMPARATORS):
        if only and case.title not in only:
            continue
        with _prepared(case, folder / "steps", cores) as one:
            if one is None:
                emit(f"{case.title:24} {MISSING}")
                continue
            arms = _pairs(one, case, pairs if case in CASES else pairs // 3, updates)
            odd = one.wanted("state")["dropped"]
        ours, again = Ratios.of(arms["ours"], arms["none"]), Ratios.of(arms["none again"], arms["none"])
        _print(case, arms, ours, again, odd)
        if case in CASES:
            found[case.title] = ours, again, arms["ours"].errors
    _judge(found, goals)


@contextlib.contextmanager
def _prepared(case: Case, folder: Path, cores: Cores) -> Iterator[Worker | None]:
    place = folder / "".join(letter if letter.isalnum() else "-" for letter in case.title)
    is_foreign = case.emitter in ("wandb", "tensorboard")
    with contextlib.ExitStack() as stack:
        if case.collector is None:
            endpoint = f"http://127.0.0.1:{free_port()}"
        else:
            endpoint = stack.enter_context(collector(case.collector, cores))
        one = stack.enter_context(worker(case.emitter, endpoint, place, cores, foreign=is_foreign))
        if one is not None:
            one.wanted("work", kind=case.work, piece_ns=PIECE_NS)
            one.wanted("live", call=case.call, seconds=2.0, pieces=PIECES)
            if case.before == "fill":
                emit(f"spool: {one.wanted('fill', seconds=FILL_S)['came']}")
            elif case.before == "stop":
                one.wanted("stop")
                one.wanted("live", call=case.call, seconds=4.0, pieces=PIECES)
        yield one


def _pairs(one: Worker, case: Case, pairs: int, updates: int) -> dict[str, Arm]:
    arms = {name: Arm() for name in ARMS}
    for pair in range(pairs):
        for name in _ORDERS[pair % len(_ORDERS)]:
            call = case.call if name == "ours" else None
            time.sleep(REST_S)
            arms[name].add(one.wanted("loop", call=call, updates=updates, pieces=PIECES))
    return arms


def _print(case: Case, arms: dict[str, Arm], ours: Ratios, again: Ratios, odd: dict[str, int]) -> None:
    cells = " ".join(
        f"{mine:7.3f} ({control:.3f})"
        for mine, control in (
            (ours.rate, again.rate),
            (ours.p50, again.p50),
            (ours.p99, again.p99),
            (ours.gap, again.gap),
        )
    )
    costs, switched = arms["ours"].costs, "/".join(str(arms[name].switched) for name in ARMS)
    p50, p99 = (quantile(costs, share) / 1000 for share in (0.5, 0.99))
    stated = f"  {odd}" if odd else ""
    emit(f"{case.title:24} {cells} {p50:9.2f} {p99:8.1f} {switched:>11} {arms['ours'].errors:6d}{stated}")


def _judge(found: dict[str, tuple[Ratios, Ratios, int]], goals: Goals) -> None:
    for title, (ours, again, errors) in found.items():
        goals.least(f"{title}: update rate, A/A taken off", ours.rate - (again.rate - 1), 0.99)
        goals.most(f"{title}: step time p50, A/A taken off", ours.p50 - (again.p50 - 1), 1.01)
        goals.most(f"{title}: step time p99, A/A taken off", ours.p99 - (again.p99 - 1), 1.02)
        goals.most(f"{title}: gap p99.99, A/A taken off", ours.gap - (again.gap - 1), 1.2)
        goals.most(f"{title}: exceptions in training", errors, 0)
