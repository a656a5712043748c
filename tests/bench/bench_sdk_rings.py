"""What a call costs the training thread: `run.update` and `run.envs` through the rings, beside OpenTelemetry.

Times single calls in a tight loop (median and 99th percentile, microseconds, the clock's own cost taken off)
while another process reads the rings; the same twelve numbers go through twelve OpenTelemetry gauges in the
same run. The first row is measured again at the end as an A/A control; gates nothing.

    python tests/bench/bench_sdk_rings.py
"""

import subprocess
import sys
import time
from collections.abc import Callable
from keyword import iskeyword
from typing import Any
from uuid import uuid4

import numpy as np
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from overwatch.catalog import Scope, of_scope
from overwatch.sdk.rings.columns import FastColumns
from overwatch.sdk.rings.fast import Fast
from overwatch.sdk.rings.ringset import RingSet

CALLS = 4000
ROUNDS = 5
READER = """
import sys, time
from pathlib import Path
from overwatch.sdk.rings.source import RingSource
source = RingSource(Path(sys.argv[1]))
while not source.is_over:
    items = source.read()
    for item in items:
        source.done(item)
    time.sleep(0.01)
"""
NAMES = [row.short for row in of_scope(Scope.POLICY) if not iskeyword(row.short)][:12]


class Bench:
    """A trainer's ways into the rings."""

    last_update: int | None = None

    def __init__(self) -> None:
        self.rings = RingSet(f"overwatch-bench-{uuid4().hex}")
        self.update: Any = None
        self.fast = Fast(self.rings, self, str, self._never, self._install)
        self.columns = FastColumns(self.rings, str, self._never)
        self.update = self.fast.update
        for _ in range(3):
            self.update(**dict.fromkeys(NAMES, 0.5))

    def _install(self, written: Any) -> None:
        self.update = written

    def _never(self, *given: object) -> None:
        raise AssertionError(f"the long way was taken: {given}")

    def envs(self, *, env_id: Any = None, step: int | None = None, **columns: Any) -> None:
        """As `run.envs`."""
        self.columns.put(env_id, step, columns)


def literal(call: str, scope: dict[str, object]) -> Callable[[int], object]:
    """A function that makes a call as a trainer writes it, names and all."""
    made: dict[str, Any] = dict(scope)
    exec(f"def one(i):\n    {call}", made)  # noqa: S102 the text is this file's own
    one: Callable[[int], object] = made["one"]
    return one


def measure(label: str, one: Callable[[int], object], calls: int = CALLS) -> None:
    """Print what a call costs; `calls` at once leave room in the ring."""
    clock = time.perf_counter_ns
    took: list[int] = []
    empty: list[int] = []
    for _ in range(ROUNDS * max(CALLS // calls // 10, 1)):
        for i in range(calls):
            began = clock()
            one(i)
            took.append(clock() - began)
            began = clock()
            empty.append(clock() - began)
        time.sleep(0.1)  # the reader makes room
    took.sort()
    empty.sort()
    floor = empty[len(empty) // 2]
    p50, p99 = (took[int(len(took) * share)] - floor for share in (0.5, 0.99))
    print(f"{label:44} {p50 / 1000:8.2f} {p99 / 1000:8.2f}")


def main() -> None:
    """Measure everything once."""
    bench = Bench()
    reader = subprocess.Popen([sys.executable, "-c", READER, str(bench.rings.path)])
    gauges = [
        MeterProvider(metric_readers=[InMemoryMetricReader()]).get_meter("bench").create_gauge(name)
        for name in NAMES
    ]
    few = np.random.default_rng(0).random(192)
    numbers = ", ".join(f"{name}=0.{i}" for i, name in enumerate(NAMES, 1))
    scope: dict[str, object] = {"bench": bench, "gauges": gauges, "few": few}
    update = literal(f"bench.update(update=i, {numbers})", scope)
    print(f"{'µs a call':44} {'p50':>8} {'p99':>8}")
    try:
        measure("update, 12 numbers", update)
        measure(
            "update, 12 numbers, long signature", literal(f"bench.fast.update(update=i, {numbers})", scope)
        )
        measure("envs, 1 column of 192", literal("bench.envs(step=i, reward=few)", scope))
        measure("both", literal(f"bench.update(update=i, {numbers}); bench.envs(step=i, reward=few)", scope))
        for dtype in ("f4", "f8"):
            scope |= {f"c{i}": np.random.default_rng(i).random(4096).astype(dtype) for i in range(8)}
            eight = ", ".join(f"c{i}=c{i}" for i in range(8))
            measure(f"envs, 8 columns of 4,096 {dtype}", literal(f"bench.envs(step=i, {eight})", scope), 12)
        measure("OpenTelemetry SDK, 12 gauges", literal("for g in gauges: g.set(0.5)", scope))
        measure("update, 12 numbers, again", update)
        account = bench.rings.close(2.0)
        print(f"accepted {account.accepted}, published {account.published}, dropped {account.dropped}")
        reader.wait(10.0)
    finally:
        reader.kill()
        bench.rings.unlink()


if __name__ == "__main__":
    main()
