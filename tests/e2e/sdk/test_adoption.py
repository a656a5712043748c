"""Whose rings and spools may be delivered by somebody else: a dead trainer's, once, by one at a time."""

import os
import signal
from pathlib import Path

from overwatch.events import RunStarted
from tests.e2e.sdk.chaos import (
    needs_mounts,
    recording,
    rings_of,
    sync,
    training,
    wait_for,
)


def unseen() -> tuple[str, ...]:
    """What starts a program in a process namespace of its own, under a number that is nobody's outside."""
    free = next(pid for pid in range(100, 1000) if not Path(f"/proc/{pid}").exists())
    skip = f'for i in $(seq {free - 2}); do /bin/true; done; "$0" "$@"; exit $?'
    return ("unshare", "--pid", "--fork", "--kill-child", "sh", "-c", skip)


@needs_mounts
def test_a_living_trainer_in_another_container_is_left_alone(tmp_path: Path) -> None:
    """Containers share /dev/shm and not their process ids: who is not seen is not dead."""
    other = tmp_path / "other"
    other.mkdir()
    with (
        recording(tmp_path) as collector,
        training(tmp_path, collector.endpoint, prefix=unseen()) as trainer,
    ):
        trainer.wait_steps(50)
        assert trainer.plan.run_id not in sync(other, rings=tmp_path)
        trainer.wait_steps(50)
        ending = trainer.ending()
        assert ending.delivered
        collector.ear().assert_whole(ending.steps)


def test_an_exporter_that_still_reads_is_left_alone(tmp_path: Path) -> None:
    """Its trainer is dead, it is not: whoever looks elsewhere for spools does not read beside it."""
    other = tmp_path / "other"
    other.mkdir()
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint) as trainer:
        wait_for(lambda: collector.size, "the first request")
        trainer.wait_steps(20)
        exporters = trainer.exporters()
        for pid in exporters:
            os.kill(pid, signal.SIGSTOP)
        trainer.kill()
        assert trainer.plan.run_id not in sync(other, rings=tmp_path)
        for pid in exporters:
            os.kill(pid, signal.SIGCONT)
        stated = len(trainer.numbers("a"))
        wait_for(lambda: len(collector.ear().lines) >= stated, "all that was emitted")
        wait_for(lambda: not rings_of(tmp_path), "the exporter's end")


def test_numbers_go_on_where_another_spool_knows_nothing_of_them(tmp_path: Path) -> None:
    """Rings outlive both processes; who delivers them from another place does not begin at one again."""
    other = tmp_path / "other"
    other.mkdir()
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint) as trainer:
        trainer.wait_steps(50)
        wait_for(lambda: collector.ear().lines, "the first lines")
        for pid in [trainer.pid, *trainer.exporters()]:
            os.kill(pid, signal.SIGKILL)
        trainer.kill()
        sync(other, rings=tmp_path)
        sync(tmp_path)
        ear = collector.ear()
        stated = len(trainer.numbers("a"))
        assert set(ear.lines) >= {f"line {step}" for step in range(1, stated + 1)}
        assert sum(isinstance(record.event, RunStarted) for record in ear.records) == 1
