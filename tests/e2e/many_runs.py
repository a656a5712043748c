"""Many live runs of one program, at a pace: `python -m tests.e2e.many_runs PLAN`, a JSON object of `Plan`.

Each run emits twelve numbers and a column of its envs each step, by the SDK as it is installed. Prints
`ready` once all runs started, `probe RUN NANOSECONDS` as a run is given a number that is not finite, `done`
after the last step, and as its last line the `Account`, once every run was closed.
"""

import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

NAMES = (
    "kl_divergence", "entropy_nats", "clip_fraction", "explained_variance", "grad_norm", "policy_loss",
    "value_loss", "learning_rate", "return_mean", "update_time", "kl_max", "kl_joint",
)  # fmt: skip
CLOSERS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What the program does."""

    endpoint: str
    runs: int
    envs: int = 64
    """Of each rank."""
    ranks: int = 1
    hz: float = 10.0
    """Steps a second."""
    seconds: float = 10.0
    name: str = "run"
    sample: bool = False
    """Whether the machine is sampled."""
    probes: int = 0
    """Runs that are given a number that is not finite, one after the other over the whole time."""
    hold_s: float = 0.0
    """How long nothing is emitted between the last step and the ends."""
    close_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Account:
    """What became of all that was emitted."""

    steps: int
    """Of each rank."""
    accepted: int
    undelivered: int
    """Runs that kept something."""
    refused: int
    late_s: float
    """How far behind its pace the program was at worst."""
    seconds: float
    """Between the first step and the last."""
    cpu_s: float
    """Of the program's process between them."""
    exporter_cpu_s: float
    exporter_mib: float
    rings_bytes: int
    dropped: dict[str, int] = field(default_factory=dict)


def print_now(*words: object) -> None:
    """One line at once."""
    print(*words, flush=True)


def started(plan: Plan) -> list[Any]:
    """All runs, rank by rank."""
    import overwatch.sdk

    return [
        overwatch.sdk.start(
            run_id=f"{plan.name}-{number}", endpoint=plan.endpoint, n_envs=plan.envs, rank=rank, quiet=True,
            sample=plan.sample and number == 0,
        )
        for number in range(plan.runs)
        for rank in range(plan.ranks)
    ]  # fmt: skip


def train(plan: Plan, runs: list[Any]) -> tuple[int, float]:
    """Emit at the pace; the steps of each rank, and how late the latest of them was."""
    chance = random.Random(7)  # noqa: S311 numbers that do not pack
    columns = [[chance.gauss(1.0, 0.1) for _ in range(plan.envs)] for _ in range(32)]
    steps, began, late = round(plan.seconds * plan.hz), time.monotonic(), 0.0
    broken = {(number + 1) * steps // (plan.probes + 2): number for number in range(plan.probes)}
    for step in range(1, steps + 1):
        probed = broken.get(step, -1)
        for number, run in enumerate(runs):
            due = began + (step - 1 + number / len(runs)) / plan.hz
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            late = max(late, -wait)
            values = dict.fromkeys(NAMES, 0.0) | {name: chance.uniform(0.005, 0.015) for name in NAMES}
            if number == probed * plan.ranks:
                values["kl_divergence"] = float("nan")
                print_now("probe", f"{plan.name}-{probed}", time.time_ns())
            run.update(update=step, **values)
            run.envs(step=step, reward=columns[(step + number) % len(columns)])
    return steps, late


def main(plan: Plan) -> Account:
    """Start, train, close."""
    runs = started(plan)
    exporter = psutil.Process(runs[0].exporter_pid or os.getpid())
    print_now("ready")
    before, began = (time.process_time(), sum(exporter.cpu_times()[:2])), time.monotonic()
    steps, late = train(plan, runs)
    took = time.monotonic() - began
    spent = (time.process_time() - before[0], sum(exporter.cpu_times()[:2]) - before[1])
    memory = exporter.memory_full_info()
    rings = sum(mapped.rss for mapped in exporter.memory_maps() if "overwatch" in mapped.path)
    print_now("done")
    time.sleep(plan.hold_s)
    with ThreadPoolExecutor(CLOSERS) as pool:
        reports = list(pool.map(lambda run: run.close(plan.close_s), runs))
    dropped: dict[str, int] = {}
    for report in reports:
        for reason, count in report.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return Account(
        steps=steps, accepted=sum(report.accepted for report in reports),
        undelivered=sum(not report.delivered for report in reports),
        refused=sum(report.refused for report in reports), late_s=late, seconds=took, cpu_s=spent[0],
        exporter_cpu_s=spent[1], exporter_mib=memory.pss / (1 << 20), rings_bytes=rings, dropped=dropped,
    )  # fmt: skip


if __name__ == "__main__":
    print_now(json.dumps(asdict(main(Plan(**json.loads(sys.argv[1]))))))
