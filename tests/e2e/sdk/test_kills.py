"""Kill -9 of a trainer or of its exporter, at seeded random moments: what was accepted arrives once."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.sdk.chaos import Trainer, recording, training, wait_for

CYCLES = 4


def kill_exporter(trainer: Trainer, after_s: float) -> None:
    """Kill the exporter that lives `after_s` from now."""
    time.sleep(after_s)
    for pid in trainer.exporters():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", [1])
def test_exporters_killed_at_random_moments_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """Whatever it was doing, its follower goes on where it stopped."""
    moments = random.Random(seed)  # noqa: S311 a plan, not a secret
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint) as trainer:
        trainer.wait_steps(10)
        for _ in range(CYCLES):
            kill_exporter(trainer, moments.uniform(0.0, 1.0))
            wait_for(trainer.exporters, "another exporter")
        trainer.wait_steps(10)
        ending = trainer.ending()
        assert ending.delivered, (ending, trainer.errors())
        collector.ear().assert_whole(ending.steps)
