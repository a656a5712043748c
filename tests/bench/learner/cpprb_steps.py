"""cpprb's part of the section `steps`: answers the name of a measurement with its rate, a line each.

Runs under a Python that has cpprb and numpy, nothing else; the names are those of `steps.ours`.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

CAPACITY: Final = 1 << 18
CHUNKS: Final = (64, 1024)
"""Consecutive steps of a batch that is added."""
SAMPLES: Final = (32, 256)
"""Steps of a sample."""
TURN_S: Final = 0.3
"""CPU of a turn."""
KINDS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "int8": ("int8", (121,)),
    "float32": ("float32", (726,)),
}
"""An observation: codes of a grid, and the same as channels."""


def work(dtype: str, shape: tuple[int, ...]) -> dict[str, tuple[int, Callable[[], object]]]:
    """What is measured: steps of one call, and the call."""
    import cpprb

    columns: dict[str, Any] = {
        "obs": {"shape": shape, "dtype": np.dtype(dtype)},
        "act": {"shape": 1, "dtype": np.int64},
        "rew": {"dtype": np.float32},
        "done": {"dtype": np.bool_},
    }
    uniform = cpprb.ReplayBuffer(CAPACITY, columns, next_of="obs")
    prioritised = cpprb.PrioritizedReplayBuffer(CAPACITY, columns, next_of="obs", alpha=0.6, eps=1e-6)
    random = np.random.default_rng(0)
    batches = {steps: _steps(steps, dtype, shape, random) for steps in CHUNKS}
    for _ in range(CAPACITY // CHUNKS[-1] + 1):
        uniform.add(**batches[CHUNKS[-1]])
        prioritised.add(**batches[CHUNKS[-1]])
    found: dict[str, tuple[int, Callable[[], object]]] = {
        f"add {steps}": (steps, partial(uniform.add, **some)) for steps, some in batches.items()
    }
    for count in SAMPLES:
        found |= _drawn(uniform, prioritised, count, random)
    return found


def _drawn(
    uniform: Any, prioritised: Any, count: int, random: np.random.Generator
) -> dict[str, tuple[int, Callable[[], object]]]:
    places = random.integers(0, CAPACITY, count)
    priorities = random.random(count)

    def both() -> None:
        drawn = prioritised.sample(count, 0.4)
        prioritised.update_priorities(drawn["indexes"], priorities)

    return {
        f"sample {count}": (count, lambda: uniform.sample(count)),
        f"prioritised sample {count}": (count, lambda: prioritised.sample(count, 0.4)),
        f"priority update {count}": (count, lambda: prioritised.update_priorities(places, priorities)),
        f"prioritised sample and update {count}": (count, both),
    }


def _steps(count: int, dtype: str, shape: tuple[int, ...], random: np.random.Generator) -> dict[str, Any]:
    seen = random.integers(0, 9, (count, *shape)).astype(dtype)
    return {
        "obs": seen,
        "next_obs": seen,
        "act": np.zeros((count, 1), np.int64),
        "rew": np.zeros(count, np.float32),
        "done": np.zeros(count, np.bool_),
    }


def rate(call: Callable[[], object], steps: int) -> float:
    """Million steps for each second of CPU, over a turn."""
    call()
    calls, began = 0, time.process_time_ns()
    while (used := time.process_time_ns() - began) < TURN_S * 1e9:
        for _ in range(20):
            call()
        calls += 20
    return calls * steps / used * 1e3


def main() -> None:
    """Answer until nobody asks any more."""
    found = work(*KINDS[sys.argv[1]])
    for line in sys.stdin:
        steps, call = found[json.loads(line)]
        print(json.dumps(rate(call, steps)), flush=True)


if __name__ == "__main__":
    main()
