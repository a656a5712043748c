"""Kill -9 of a trainer, of its exporter, of both, at seeded random moments.

What the diary lists as accepted arrives once by number: at once, from the exporter that outlives its trainer,
or by `overwatch sync`. Of the step that the kill has cut each call may have been accepted or not.
"""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.sdk.chaos import Collector, Ear, Trainer, recording, rings_of, sync, training, wait_for

EXPORTERS = 4
"""Kills of exporters in one trainer's life; after five in a minute it is left alone."""


def kill(pids: list[int]) -> None:
    """End processes without a word."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_arrived(ear: Ear, trainer: Trainer) -> None:
    """All that was accepted is there once and in order; at most the step that was cut besides."""
    stated, begun = len(trainer.numbers("a")), len(trainer.numbers("b"))
    for numbers in ([int(line.split()[1]) for line in ear.lines], ear.episodes):
        assert numbers in (list(range(1, stated + 1)), list(range(1, begun + 1)))
    assert ear.updates in (stated, begun)


def has_arrived(collector: Collector, trainer: Trainer) -> bool:
    """Whether all that was accepted is there."""
    stated, ear = len(trainer.numbers("a")), collector.ear()
    return min(len(ear.lines), len(ear.episodes), ear.updates) >= stated


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    with contextlib.suppress(OSError):
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    return True


def kill_exporters(folder: Path, seed: int) -> None:
    """Kill the exporters of one trainer, one after the other, starting or busy; nothing is lost."""
    moments = random.Random(seed)  # noqa: S311 a plan, not a secret
    with recording(folder) as collector, training(folder, collector.endpoint) as trainer:
        trainer.wait_steps(10)
        for _ in range(EXPORTERS):
            time.sleep(moments.uniform(0.0, 1.0))
            victims = trainer.exporters()
            kill(victims)
            wait_for(lambda: set(trainer.exporters()) - set(victims), "another exporter")  # noqa: B023 called at once
        trainer.wait_steps(10)
        ending = trainer.ending()
        assert ending.delivered, (ending, trainer.errors())
        assert_arrived(collector.ear(), trainer)


def kill_trainer(folder: Path, seed: int) -> None:
    """Kill a trainer; its exporter delivers the rest by itself and ends."""
    moment = random.Random(seed).uniform(0.0, 1.5)  # noqa: S311 a plan, not a secret
    with recording(folder) as collector, training(folder, collector.endpoint) as trainer:
        wait_for(lambda: trainer.numbers("p"), "the start")
        time.sleep(moment)
        exporters = trainer.exporters()
        trainer.kill()
        wait_for(lambda: all(map(is_gone, exporters)), "the exporter's end")
        assert has_arrived(collector, trainer), (seed, trainer.errors())
        assert_arrived(collector.ear(), trainer)
        assert not rings_of(folder)


def kill_both(folder: Path, seed: int) -> None:
    """Kill both, with a collector or without; `overwatch sync` delivers what is left, and leaves nothing."""
    plan = random.Random(seed)  # noqa: S311 a plan, not a secret
    moment, is_there = plan.uniform(0.0, 1.5), plan.random() < 0.5
    with (
        recording(folder, started=is_there) as collector,
        training(folder, collector.endpoint) as trainer,
    ):
        wait_for(lambda: trainer.numbers("p"), "the start")
        time.sleep(moment)
        victims = [trainer.pid, *trainer.exporters()]
        plan.shuffle(victims)
        kill(victims)
        trainer.kill()
        if not is_there:
            collector.start()
            wait_for(collector.is_there, "the collector")
        sync(folder)
        assert_arrived(collector.ear(), trainer)
        assert not rings_of(folder)
        assert not list((folder / "spool").iterdir())
        assert sync(folder) == "nothing to deliver\n"
        assert_arrived(collector.ear(), trainer)


CYCLES = {"exporters": kill_exporters, "trainer": kill_trainer, "both": kill_both}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
def test_killed_exporters_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """Whatever one was doing, its follower goes on where it stopped: eight kills."""
    kill_exporters(tmp_path, seed)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_trainers_exporter_delivers_the_rest(tmp_path: Path, seed: int) -> None:
    """The rings outlive their writer."""
    kill_trainer(tmp_path, seed)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_sync_delivers_what_killed_processes_left(tmp_path: Path, seed: int) -> None:
    """Rings and spool outlive both, killed early, late or beside a collector; a second sync finds nothing."""
    kill_both(tmp_path, seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "cycles"), [("exporters", 25), ("trainer", 50), ("both", 50)])
def test_a_hundred_kills_of_each(tmp_path: Path, kind: str, cycles: int) -> None:
    """100 kills of exporters, 50 of trainers, 50 of both, each with its own seed."""
    for seed in range(100, 100 + cycles):
        folder = tmp_path / str(seed)
        folder.mkdir()
        CYCLES[kind](folder, seed)
