"""What a call costs the training thread, beside OpenTelemetry, wandb and TensorBoard.

Blocks of calls, one emitter after the other in each round, each in a process of its own; the clock's own cost
is taken off. A row with cold caches goes through 8 MiB before each call, as a training step does; the others
call on end. Ratios are medians over rounds, within which the machine runs at one pace. Overwatch runs twice,
as an A/A control.
"""

import contextlib
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.sdk.host import MISSING, Cores, Worker, collector, worker
from tests.bench.sdk.stats import Cost, Goals, emit

PAUSE_S = 0.12
"""Between two blocks, in which those in the background catch up."""


@dataclass
class Row:
    """One kind of call."""

    title: str
    emitter: str
    call: str
    calls: int
    """In a block; of ours no more than the rings have room for."""
    is_cold: bool = False
    rounds: list[list[float] | None] = field(default_factory=list)
    """A block each; `None` for one of which not all went the usual way."""

    @property
    def cost(self) -> Cost | None:
        """What was measured, if anything was."""
        blocks = [block for block in self.rounds if block is not None]
        return Cost.of(blocks) if blocks else None

    def over(self, other: "Row") -> float | None:
        """How many times as much it costs: median over the rounds that have both."""
        both = [(one, two) for one, two in zip(self.rounds, other.rounds, strict=False) if one and two]
        if not both:
            return None
        return statistics.median(statistics.median(one) / statistics.median(two) for one, two in both)


ROWS = (
    ("Overwatch, 12 numbers", "overwatch", "12", 1000),
    ("Overwatch, 12 numbers, A/A", "overwatch again", "12", 1000),
    ("Overwatch, 12 numbers by place", "overwatch", "12 by place", 1000),
    ("Overwatch, 12 numbers, 7 sets of names in turn", "overwatch", "12 of 7 sets", 1000),
    ("Overwatch, 12 + a column of 192", "overwatch", "12+192", 300),
    ("Overwatch, 8 columns of 4,096 float32", "overwatch", "8x4096 f4", 12),
    ("Overwatch, 8 columns of 4,096 float64", "overwatch", "8x4096 f8", 6),
    ("Overwatch, 12 tensors", "tensors", "12 tensors", 30),
    ("  of it torch.stack alone", "tensors", "stack", 30),
    ("Overwatch, OTEL_SDK_DISABLED, 12 numbers", "disabled", "12", 1000),
    ("Overwatch, OTEL_SDK_DISABLED, column of 192", "disabled", "192", 1000),
    ("OpenTelemetry, 12 gauges", "opentelemetry", "12", 200),
    ("OpenTelemetry, 12 gauges, 2 attributes each", "opentelemetry", "12, 2 attributes", 200),
    ("OpenTelemetry, 12 + 192 gauges", "opentelemetry", "12+192", 30),
    ("wandb offline, 12", "wandb", "12", 60),
    ("TensorBoard, 12", "tensorboard", "12", 60),
    ("Overwatch, 12 numbers, caches cold", "overwatch", "12", 100, True),
    ("Overwatch, 12 numbers by place, caches cold", "overwatch", "12 by place", 100, True),
    ("OpenTelemetry, 12 gauges, caches cold", "opentelemetry", "12", 100, True),
)
FOREIGN = ("wandb", "tensorboard")
COMPARED = (
    ("OpenTelemetry, 12 gauges", 20),
    ("OpenTelemetry, 12 gauges, 2 attributes each", 20),
    ("OpenTelemetry, 12 gauges, caches cold", 5),
    ("wandb offline, 12", 80),
    ("TensorBoard, 12", 200),
)
"""What twelve numbers are beside, and how many times cheaper they should be."""


def measure(rounds: int, folder: Path, cores: Cores, goals: Goals) -> None:
    """Measure and print all of it."""
    rows = [Row(*row) for row in ROWS]
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(collector("healthy", cores))
        workers: dict[str, Worker] = {}
        for name in dict.fromkeys(row.emitter for row in rows):
            started = _start(name, endpoint, folder, cores, stack)
            if started is not None:
                workers[name] = started
        time.sleep(2.0)  # whatever starts in the background has started
        odd = _rounds(rounds, rows, workers)
    _print(rows, odd, {name: one.version for name, one in workers.items()})
    _judge({row.title: row for row in rows}, goals)


def _start(
    name: str, endpoint: str, folder: Path, cores: Cores, stack: contextlib.ExitStack
) -> Worker | None:
    place = folder / "calls" / name.replace(" ", "-")
    kind = name.removesuffix(" again")
    started = stack.enter_context(worker(kind, endpoint, place, cores, foreign=name in FOREIGN))
    if started is None:
        emit(f"{name}: {MISSING}")
    return started


def _rounds(rounds: int, rows: list[Row], workers: dict[str, Worker]) -> dict[str, int]:
    """Measure blocks in turn; how many records did not go the usual way, by reason."""
    seen: dict[str, dict[str, int]] = {}
    for number in range(rounds + 1):
        for row in rows if number % 2 else reversed(rows):
            if row.emitter not in workers:
                continue
            time.sleep(PAUSE_S)
            reported = workers[row.emitter].wanted(
                "time", call=row.call, calls=row.calls, is_cold=row.is_cold
            )
            is_odd = reported["dropped"] != seen.get(row.emitter, {})
            seen[row.emitter] = reported["dropped"]
            if number:  # the first round warms up
                block = [one - reported["floor"] for one in reported["took"]]
                row.rounds.append(None if is_odd else block)
    total: dict[str, int] = {}
    for dropped in seen.values():
        for reason, count in dropped.items():
            total[reason] = total.get(reason, 0) + count
    return total


def _print(rows: list[Row], odd: dict[str, int], versions: dict[str, str]) -> None:
    emit("versions: " + ", ".join(f"{name} {found}" for name, found in versions.items()))
    emit(f"{'µs a call':48} {'p50':>9} {'p99':>9} {'quartiles of p50':>18} {'worst':>10} {'blocks':>7}")
    for row in rows:
        emit(f"{row.title:48} {row.cost or 'skipped'}")
    if odd:
        emit(f"not as usual: {odd}; their blocks are left out")


def _judge(rows: dict[str, Row], goals: Goals) -> None:
    costs = {title: row.cost for title, row in rows.items()}
    ours, again = costs["Overwatch, 12 numbers"], costs["Overwatch, 12 numbers, A/A"]
    if ours is None or again is None:
        emit("Overwatch itself was not measured")
        return
    emit(f"A/A control: {again.p50 / ours.p50:.3f} of p50, {again.p99 / ours.p99:.3f} of p99")
    for form, limit in (("12 numbers", 2.0), ("12 numbers, 7 sets of names in turn", 4.0)):
        found = costs[f"Overwatch, {form}"]
        goals.most(f"{form}, p50", found and found.p50, limit, " µs")
    for title, limit in COMPARED:
        cold = ", caches cold" if title.endswith("cold") else ""
        ratio = rows[title].over(rows[f"Overwatch, 12 numbers{cold}"])
        goals.least(f"12 numbers, times cheaper than {title}", ratio, limit)
    both, many = rows["Overwatch, 12 + a column of 192"], rows["OpenTelemetry, 12 + 192 gauges"]
    goals.least("12 + 192 envs, times cheaper than as many gauges", many.over(both), 100)
    for kind, limit in (("float32", 30.0), ("float64", 60.0)):
        found = costs[f"Overwatch, 8 columns of 4,096 {kind}"]
        goals.most(f"8 columns of 4,096 {kind}, p50", found and found.p50, limit, " µs")
    off = [costs[f"Overwatch, OTEL_SDK_DISABLED, {what}"] for what in ("12 numbers", "column of 192")]
    goals.most("OTEL_SDK_DISABLED, p50", max((one.p50 for one in off if one), default=None), 1.0, " µs")
    device = costs["Overwatch, 12 tensors"]
    if device is not None:
        emit(
            f"stacking device tensors is apart: 12 tensors cost {device.p50 / ours.p50:.1f} times 12 numbers"
        )
