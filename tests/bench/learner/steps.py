"""A table of steps in process, beside cpprb 11.0.0: steps for each second of CPU.

cpprb runs in a process of its own, in its best form: `next_of`, the same dtypes, whole batches, its own
priorities' settings the same. Both hold 2^18 steps and are full. Turns alternate; a ratio is of two turns
beside each other. A batch is of consecutive steps of one env, one chunk of ours; with `next_of` cpprb would
have to be given where one ends, which it is spared.
`OVERWATCH_BENCH_CPPRB` names a Python that has cpprb.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from overwatch_rl.replay.base import Capacity, TableConfig
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, encode
from overwatch_rl.replay.steps import Steps
from tests.bench.learner.cpprb_steps import CAPACITY, CHUNKS, KINDS, SAMPLES, rate

COMPARATOR: Final = "OVERWATCH_BENCH_CPPRB"
BARS: Final = {"add": 1.5, "sample": 1.0, "prioritised sample": 1.0, "priority update": 0.5}


def section(*, quick: bool) -> None:
    """Measure and print."""
    python = os.environ.get(COMPARATOR)
    pairs = 3 if quick else 7
    if not python:
        print(f"cpprb is left out: {COMPARATOR} names no Python that has cpprb 11.0.0")
    print(f"{'million steps a second of CPU':44}{'ours':>8}{'cpprb':>8}   ratio (least to most)")
    for kind, (dtype, shape) in KINDS.items():
        work = ours(dtype, shape)
        other = None if python is None else _started(python, kind)
        for name, (steps, call) in work.items():
            mine, theirs = [], []
            for _ in range(pairs):
                mine.append(rate(call, steps))
                if other is not None:
                    theirs.append(_requested(other, name))
            _print(f"{kind}: {name}", mine, theirs)
        if other is not None:
            _end(other)


def ours(dtype: str, shape: tuple[int, ...]) -> dict[str, tuple[int, Callable[[], object]]]:
    """What is measured: steps of one call, and the call."""
    encoding = Encoding(
        columns=(
            Column(name="observation", dtype=dtype, shape=shape),
            Column(name="action", dtype="int64"),
            Column(name="reward", dtype="float32"),
            Column(name="final_observation", dtype=dtype, shape=shape, per_step=False),
        )
    )
    random = np.random.default_rng(0)
    chunks = {steps: [_chunk(encoding, steps, random)] for steps in CHUNKS}
    tables = {}
    for selector in ("uniform", "prioritised"):
        capacity = Capacity(items=CAPACITY, bytes=1 << 40)
        tables[selector] = Steps(
            TableConfig(name="t", selector=selector, capacity=capacity, seed=0), encoding
        )
        for _ in range(CAPACITY // CHUNKS[0] + 1):
            tables[selector].append(chunks[CHUNKS[0]], None, 0)
    uniform, prioritised = tables.values()
    found: dict[str, tuple[int, Callable[[], object]]] = {
        f"add {steps}": (steps, partial(uniform.append, some, None, 0)) for steps, some in chunks.items()
    }
    for count in SAMPLES:
        found |= _drawn(uniform, prioritised, count, random)
    return found


def _drawn(
    uniform: Steps, prioritised: Steps, count: int, random: np.random.Generator
) -> dict[str, tuple[int, Callable[[], object]]]:
    some = prioritised.sample(count)
    assert some is not None
    priorities = random.random(count)

    def both() -> None:
        drawn = prioritised.sample(count)
        assert drawn is not None
        prioritised.update_priorities(drawn.slots, drawn.generations, priorities)

    update = prioritised.update_priorities
    return {
        f"sample {count}": (count, lambda: uniform.sample(count)),
        f"prioritised sample {count}": (count, lambda: prioritised.sample(count)),
        f"priority update {count}": (count, lambda: update(some.slots, some.generations, priorities)),
        f"prioritised sample and update {count}": (count, both),
    }


def _chunk(encoding: Encoding, steps: int, random: np.random.Generator) -> Chunk:
    observation, final = encoding.by_name["observation"], encoding.by_name["final_observation"]
    columns = {
        "observation": random.integers(0, 9, (steps, *observation.shape)).astype(observation.dtype),
        "action": np.zeros(steps, np.int64),
        "reward": np.zeros(steps, np.float32),
        "final_observation": np.zeros(final.shape, final.dtype),
    }
    return Chunk(
        run="bench", env="0", episode=0, first_step=0, steps=steps, lineage=1, version=1, end="cut",
        columns=encode(columns, encoding),
    )  # fmt: skip


def _started(python: str, kind: str) -> "subprocess.Popen[str]":
    script = Path(__file__).with_name("cpprb_steps.py")
    return subprocess.Popen(
        [python, str(script), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _requested(other: "subprocess.Popen[str]", name: str) -> float:
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdin.write(json.dumps(name) + "\n")
    other.stdin.flush()
    found: Any = json.loads(other.stdout.readline())
    return float(found)


def _end(other: "subprocess.Popen[str]") -> None:
    assert other.stdin is not None
    other.stdin.close()
    other.wait(60)


def _print(name: str, mine: list[float], theirs: list[float]) -> None:
    line = f"{name:44}{statistics.median(mine):8.2f}"
    if theirs:
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        bar = BARS.get(name.partition(": ")[2].rstrip("0123456789 "))
        line += f"{statistics.median(theirs):8.2f}   {statistics.median(ratios):.2f}"
        line += f" ({min(ratios):.2f} to {max(ratios):.2f})" + (f", bar {bar}" if bar else "")
    print(line)
