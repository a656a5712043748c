"""Chunks whose every number states which step it is of."""

from typing import Final

import numpy as np

from overwatch_rl.replay.chunk import Chunk, Column, Encoding, End, encode

ENCODING: Final = Encoding(
    columns=(
        Column(name="observation", dtype="int64", shape=(2,)),
        Column(name="action", dtype="int64"),
        Column(name="reward", dtype="float32"),
        Column(name="final_observation", dtype="int64", shape=(2,), per_step=False),
    )
)


def chunk_of(
    first: int, steps: int, end: End = "cut", *, env: str = "a", version: tuple[int, int] = (1, 1)
) -> Chunk:
    """Observation k is (k, -k), its action 3 k, its reward k % 1000."""
    numbers = np.arange(first, first + steps)
    columns = {
        "observation": np.stack([numbers, -numbers], axis=1),
        "action": 3 * numbers,
        "reward": (numbers % 1000).astype(np.float32),
    }
    if end != "terminated":
        columns["final_observation"] = np.array([first + steps, -first - steps])
    return Chunk(
        run="run",
        env=env,
        episode=0,
        first_step=0,
        steps=steps,
        lineage=version[0],
        version=version[1],
        end=end,
        columns=encode(columns, ENCODING),
    )
