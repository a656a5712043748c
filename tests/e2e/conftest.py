"""Recordings of simulated storms, made once a session and shared."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.overwatch.simulate.runs import record

SIZES = {"1x4x3": ("1", "4", "3"), "2x32x6": ("2", "32", "6")}
BEGINS_S = 30

StormMaker = Callable[[str, str, int], tuple[Path, int]]


@pytest.fixture(scope="session")
def storm(tmp_path_factory: pytest.TempPathFactory) -> StormMaker:
    """From (fault, size, seconds after its beginning) to a recording and the second to look at."""
    made: dict[tuple[str, str], Path] = {}

    def make(fault: str, size: str, after_s: int) -> tuple[Path, int]:
        at = BEGINS_S + after_s
        if (fault, size) not in made:
            gpus, envs, slots = SIZES[size]
            out = tmp_path_factory.mktemp("storms") / f"{fault}-{size}"
            words = ("--gpus", gpus, "--envs", envs, "--slots", slots, "--seconds", f"{at + 5}")
            record(out, *words, "--seed", "5", "--fault", f"{fault}@{at - after_s}")
            made[fault, size] = out
        return made[fault, size], at

    return make
