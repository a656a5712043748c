"""Trainer, exporter and collector killed together: what was emitted is in the recording once, and whole."""

import random
from pathlib import Path

import pytest

from tests.e2e.sdk.chaos import Trainer, rings_of, sync, training
from tests.e2e.sdk.test_collector import RealCollector
from tests.e2e.sdk.test_kills import assert_arrived, kill


def kill_all_three(folder: Path, collector: RealCollector, seed: int) -> Trainer:
    """One life of each, ended by SIGKILL in any order; a new collector and `sync` bring the rest home."""
    plan = random.Random(seed)  # noqa: S311 a plan, not a secret
    collector.start()
    with training(folder, collector.endpoint) as trainer:
        trainer.wait_steps(plan.randrange(1, 200))
        ends = [lambda: kill([trainer.pid]), lambda: kill(trainer.exporters()), collector.kill]
        plan.shuffle(ends)
        # The trainer's children are no longer known by it once it is gone.
        exporters = trainer.exporters()
        for end in ends:
            end()
        kill(exporters)
        trainer.kill()
    collector.start()
    sync(folder)
    collector.kill()
    assert not rings_of(folder)
    return trainer


def survive(folder: Path, seeds: range) -> int:
    """So many cycles over one collector's folder; returns how many steps' telemetry was accepted."""
    folder.mkdir(parents=True)
    collector, trainers = RealCollector(folder), list[Trainer]()
    for seed in seeds:
        own = folder / str(seed)
        own.mkdir()
        trainers.append(kill_all_three(own, collector, seed))
    collector.start()
    collector.end()
    ear = collector.ear()
    for trainer in trainers:
        assert_arrived(ear.of_run(trainer.plan.run_id), trainer)
    return sum(len(trainer.numbers("a")) for trainer in trainers)


def test_three_killed_together_lose_and_double_nothing(tmp_path: Path) -> None:
    """Every line, episode and update that was accepted from a trainer is in the recording once."""
    assert survive(tmp_path / "0", range(2)) > 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_a_hundred_kills_of_all_three(tmp_path: Path, first: int) -> None:
    """A hundred cycles of trainer, exporter and collector, in pieces of a collector's folder each."""
    steps = survive(tmp_path / "0", range(first, first + 10))
    print(f"10 kills of trainer, exporter and collector: {steps} steps, none missing, altered or doubled")
