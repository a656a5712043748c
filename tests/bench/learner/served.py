"""The replay server beside dm-reverb 0.14.0, each server in a process of its own: steps for each CPU second.

CPU is that of client and server together, user and system. Observations are 726 numbers of f32 (2.9 kB) over
TCP of this machine; an item is a chunk of 64 steps with action, log-prob, value and reward. Both servers hold
up to 1,024 items; turns alternate, a ratio is of two turns beside each other.
Reverb samples its items again and again; ours are leased once, so what a turn adds the same turn leases.
`OVERWATCH_BENCH_REVERB` names a Python that has `dm-reverb[tensorflow]`.
"""

import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from overwatch.platform import keep_large_blocks
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, encode
from overwatch_rl.replay.client import ReplayClient
from tests.bench.learner.reverb_served import SIZE, STEPS, rows
from tests.overwatch_rl.replay.serving import served
from tests.ports import free_port

COMPARATOR: Final = "OVERWATCH_BENCH_REVERB"
TABLES: Final = (
    "experience:remover=oldest,items=1024",
    f"steps:kind=steps,items={1024 * (STEPS + 1)}",
)
_SCHEDULED: Final = 2
"""Of a process's clocks the one that the scheduler keeps, of all its threads."""
ENCODING: Final = Encoding(
    columns=(
        Column("observation", "float32", (SIZE,)),
        Column("action", "int64"),
        *(Column(name, "float32") for name in ("log_probs", "value", "reward")),
        Column("final_observation", "float32", (SIZE,), per_step=False),
    )
)
BATCH: Final = 16
"""Chunks of one append, and of one lease."""
ROWS: Final = (
    ("add", "add", "add_by_steps", 3.0),
    ("add, of Reverb whole blocks", "add", "add_by_blocks", None),
    ("sample, of Reverb its client", "lease", "sample_by_client", 1.7),
    ("sample, of Reverb its dataset", "lease", "sample_by_dataset", 1.7),
    ("single steps drawn, of Reverb blocks", "sample", "sample_by_client", None),
)
"""What is printed, our call, its call, and the bar."""


class Ours:
    """Calls of our server; CPU is counted around each."""

    def __init__(self, address: str, pid: int) -> None:
        self._client = ReplayClient([address])
        self._pid = pid
        self._chunk = Chunk(
            run="bench", env="0", episode=0, first_step=0, steps=STEPS, lineage=1, version=1, end="cut",
            columns=encode(rows() | {"final_observation": np.zeros(SIZE, np.float32)}, ENCODING),
        )  # fmt: skip
        self._cursor = 0

    async def start(self) -> None:
        """Both tables full."""
        for table in ("experience", "steps"):
            await self._client.declare(table, ENCODING)
        await self.add(1024)
        for _ in range(1024 // BATCH):
            await self._client.append("steps", [self._chunk] * BATCH)

    async def rate(self, name: str, items: int) -> float:
        """Steps for each second of CPU of one turn."""
        call: Callable[[int], Awaitable[None]] = getattr(self, name)
        if name == "lease":
            await self.add(items)
        before = self._cpu()
        await call(items)
        return items * STEPS / (self._cpu() - before)

    def _cpu(self) -> float:
        return time.process_time() + time.clock_gettime(~self._pid << 3 | _SCHEDULED)

    async def add(self, items: int) -> None:
        """Whole chunks, the oldest leave."""
        for _ in range(items // BATCH):
            await self._client.append("experience", [self._chunk] * BATCH)

    async def lease(self, items: int) -> None:
        """As a learner does: a stream with its depth, arrays of every chunk, then one acknowledgement."""
        left = items
        stream = self._client.stream("experience", "learner", BATCH * STEPS, 4, [self._cursor])
        async for leased in stream:
            self._cursor = leased.lease.number
            for item in leased.lease.items:
                left -= ENCODING.decode(item.chunk)["observation"].shape == (STEPS, SIZE)
            if left <= 0:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        await self._client.acknowledge("experience", "learner", [self._cursor])

    async def sample(self, items: int) -> None:
        """Single steps, each with its next observation: twice the bytes."""
        for _ in range(items // 4):
            drawn = await self._client.sample("steps", 4 * STEPS)
            if drawn.sampled.columns["observation"].shape != (4 * STEPS, SIZE):
                raise AssertionError


def section(*, quick: bool) -> None:
    """Measure and print."""
    keep_large_blocks()
    python = os.environ.get(COMPARATOR)
    if not python:
        print(f"Reverb is left out: {COMPARATOR} names no Python that has dm-reverb 0.14.0")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), tables=TABLES) as server:
        asyncio.run(_measured(Ours(server.address, server.process.pid), python, quick=quick))


async def _measured(ours: Ours, python: str | None, *, quick: bool) -> None:
    await ours.start()
    other = None if python is None else _started(python)
    items, pairs = (128, 3) if quick else (512, 7)
    print(f"{'thousand steps a second of CPU':44}{'ours':>8}{'Reverb':>8}   ratio (least to most)")
    for name, mine, its, bar in ROWS:
        found: list[tuple[float, float]] = []
        for _ in range(pairs):
            rate = await ours.rate(mine, items)
            found.append((rate, rate if other is None else _requested(other, its, items)))
        _print(name, found, bar, is_alone=other is None)
    if other is not None and other.stdin is not None:
        other.stdin.close()
        other.wait(60)


def _started(python: str) -> "subprocess.Popen[str]":
    command = [python, str(Path(__file__).with_name("reverb_served.py")), "client", str(free_port())]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert other.stdout is not None
    if other.stdout.readline() != "ready\n":
        raise SystemExit(f"{python} cannot run dm-reverb")
    return other


def _requested(other: "subprocess.Popen[str]", name: str, items: int) -> float:
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdin.write(f"{name} {items}\n")
    other.stdin.flush()
    found: Any = json.loads(other.stdout.readline())
    return float(found)


def _print(name: str, found: list[tuple[float, float]], bar: float | None, *, is_alone: bool) -> None:
    mine, theirs = (statistics.median(column) / 1000 for column in zip(*found, strict=True))
    if is_alone:
        print(f"{name:44}{mine:8.0f}")
        return
    ratios = [one / other for one, other in found]
    line = f"{name:44}{mine:8.0f}{theirs:8.0f}   {statistics.median(ratios):.2f}"
    print(f"{line} ({min(ratios):.2f} to {max(ratios):.2f})" + (f", bar {bar}" if bar else ""), flush=True)
