"""The trainer's side under every misfortune of its collector and its disk, as whole processes.

Every ending is checked for what all have in common: no exception, no traceback, `flush` and `close` in their
time, an account that adds up and states the truth (`chaos.assert_truthful`).

| row | fault | proved by |
|---|---|---|
| A1 | no collector | here |
| A2 | a collector that never answers | `sdk/test_run.py`, `delivery/test_http.py` |
| A3 | a collector that stands still | here |
| A4 | a collector killed while it takes | here |
| A5 | answers lost | here |
| A6-A9 | pauses asked for, refusals, evil replies | `delivery/test_{sender,http,grpc}.py` |
| A10 | a burst | here; a million in `test_storms.py` |
| A11 | the spool's disk is full | here |
| A12 | the spool is read-only, deleted, a link | here |
| A13 | malicious values | `sdk/test_run.py`, `sdk/test_values.py` |
| A14-A16, A18, A20 | forks, exits, recursion, threads and processes | `test_interpreter.py` |
| A17 | a trainer terminated or killed | `test_interpreter.py`, `test_kills.py` |
| A19 | clocks | `test_interpreter.py` |
| A21 | an exporter that fails, hangs, dies again and again | here, `test_poison.py`, `test_kills.py` |
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch.sdk.lifetime import EXIT_S
from tests.e2e.sdk.chaos import SHM, needs_mounts, recording, sync, training, wait_for
from tests.ports import free_port


def test_a_collector_that_was_never_there(tmp_path: Path) -> None:
    """All is kept, nothing is claimed, and it is logged once."""
    with training(tmp_path, f"http://127.0.0.1:{free_port()}", flush_s=3.0, close_s=1.0) as trainer:
        trainer.wait_steps(20)
        ending = trainer.ending()
        # As long as asked, and not as long as where nothing is asked.
        assert ending.flush_took_s > EXIT_S
        assert (ending.flushed, ending.delivered, ending.dropped) == (False, False, {})
        assert ending.kept == ending.accepted
        assert trainer.errors().count("does not take telemetry") <= 1


def test_a_collector_that_stands_still_for_a_while(tmp_path: Path) -> None:
    """What was emitted meanwhile drains afterwards, in order."""
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint, flush_s=10.0) as trainer:
        wait_for(lambda: collector.size, "the first request")
        collector.send(signal.SIGSTOP)
        trainer.wait_steps(300)
        collector.send(signal.SIGCONT)
        ending = trainer.ending()
        assert (ending.flushed, ending.delivered) == (True, True)
        collector.ear().assert_whole(ending.steps)


def test_a_collector_that_is_killed_while_it_takes(tmp_path: Path) -> None:
    """Its follower gets what it had not acknowledged; what comes again carries the same number."""
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint) as trainer:
        for _ in range(3):
            before = collector.size
            wait_for(lambda: collector.size > before, "a request")  # noqa: B023 called at once
            collector.kill()
            trainer.wait_steps(30)
            collector.start()
        ending = trainer.ending()
        assert ending.delivered
        collector.ear().assert_whole(ending.steps)


def test_answers_that_are_lost(tmp_path: Path) -> None:
    """What was stored without an answer comes again as the same records, and is one to a reader."""
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint) as trainer:
        wait_for(lambda: collector.size, "the first request")
        collector.mute(muted=True)
        before = collector.size
        wait_for(lambda: collector.size > before, "a request")
        trainer.wait_steps(30)
        collector.mute(muted=False)
        ending = trainer.ending()
        assert ending.delivered
        ear = collector.ear()
        assert ear.duplicates > 0
        ear.assert_whole(ending.steps)


def test_an_exporter_that_stands_still_at_the_end(tmp_path: Path) -> None:
    """It is ended in time; what it had not delivered is kept, and the next start's or `sync`'s to deliver."""
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint, close_s=3.0) as trainer:
        wait_for(lambda: collector.size, "the first request")
        for pid in trainer.exporters():
            os.kill(pid, signal.SIGSTOP)
        trainer.wait_steps(50)
        ending = trainer.ending()
        assert ending.close_took_s > EXIT_S
        assert ending.kept > 0
        assert ending.dropped == {}
        sync(tmp_path)
        collector.ear().assert_whole(ending.steps)


def test_a_burst_is_delivered_whole(tmp_path: Path) -> None:
    """Twenty thousand records without a pause, at the default settings: none is lost."""
    with (
        recording(tmp_path) as collector,
        training(tmp_path, collector.endpoint, steps=5000, pace_s=0.0, close_s=30.0) as trainer,
    ):
        wait_for(lambda: 5000 in trainer.numbers("a"), "the end of the burst")
        ending = trainer.ending()
        assert ending.delivered
        ear = collector.ear()
        assert ear.lines == [f"line {step}" for step in range(1, 5001)]
        assert ear.updates == 5000
        ear.assert_no_gap()


@needs_mounts
def test_a_spool_without_room(tmp_path: Path) -> None:
    """A disk of one megabyte: the rest waits in memory, and all of it drains when the collector comes."""
    spool = tmp_path / "spool"
    spool.mkdir()
    with (
        recording(tmp_path, started=False) as collector,
        training(tmp_path, collector.endpoint, small=spool, pace_s=0.0005, close_s=30.0) as trainer,
    ):
        wait_for(lambda: trainer.account().at_risk, "a full disk")
        trainer.wait_steps(500)
        collector.start()
        ending = trainer.ending()
        assert ending.delivered, (ending, trainer.errors())
        assert collector.ear().lines == [f"line {step}" for step in range(1, ending.steps + 1)]


@needs_mounts
def test_a_spool_without_room_and_no_collector(tmp_path: Path) -> None:
    """What only memory held is not called kept; what fits on the disk is."""
    spool = tmp_path / "spool"
    spool.mkdir()
    with training(
        tmp_path, f"http://127.0.0.1:{free_port()}", small=spool, pace_s=0.0005, close_s=1.0
    ) as trainer:
        wait_for(lambda: trainer.account().at_risk, "a full disk")
        trainer.wait_steps(500)
        ending = trainer.ending()
        assert not ending.delivered
        assert ending.dropped.get("not_kept", 0) > 0
        assert ending.kept + ending.dropped["not_kept"] == ending.accepted
        assert ending.kept > 0


@needs_mounts
def test_rings_without_room_in_memory_lie_elsewhere(tmp_path: Path) -> None:
    """A container's small /dev/shm costs nothing: the rings are files in the temporary folder."""
    with (
        recording(tmp_path) as collector,
        training(
            tmp_path,
            collector.endpoint,
            small=SHM,
        ) as trainer,
    ):
        trainer.wait_steps(20)
        ending = trainer.ending()
        assert ending.delivered
        collector.ear().assert_whole(ending.steps)


def make_plain(spool: Path, _elsewhere: Path) -> None:
    """A plain file where the folder was."""
    delete(spool, _elsewhere)
    spool.write_bytes(b"")


def delete(spool: Path, _elsewhere: Path) -> None:
    """No folder any more."""
    shutil.rmtree(spool)


def link(spool: Path, elsewhere: Path) -> None:
    """A link to another folder where the producer's was."""
    (folder,) = spool.iterdir()
    shutil.rmtree(folder)
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize("harm", [make_plain, delete, link])
def test_a_spool_that_is_taken_away(tmp_path: Path, harm: Callable[[Path, Path], None]) -> None:
    """Nothing is written anywhere else, and what comes afterwards is delivered all the same."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint, flush_s=10.0) as trainer:
        wait_for(lambda: collector.size, "the first request")
        trainer.wait_steps(20)
        harm(trainer.spool, elsewhere)
        trainer.wait_steps(100)
        ending = trainer.ending()
        assert list(elsewhere.iterdir()) == []
        ear = collector.ear()
        lost = sum(ending.dropped.values())
        assert ending.kept == 0
        received = len(ear.lines) + len(ear.episodes) + ear.updates
        assert 0 <= 3 * ending.steps - received <= lost
        assert ending.flushed is (lost == 0) or ending.flushed


@needs_mounts
def test_an_exporter_that_dies_with_a_full_memory(tmp_path: Path) -> None:
    """Where no disk takes anything, its death costs what it held: counted, never called kept."""
    spool = tmp_path / "spool"
    spool.write_bytes(b"")
    with recording(tmp_path) as collector, training(tmp_path, collector.endpoint) as trainer:
        wait_for(lambda: collector.size, "the first request")
        trainer.wait_steps(50)
        collector.send(signal.SIGSTOP)
        trainer.wait_steps(100)
        for pid in trainer.exporters():
            os.kill(pid, signal.SIGKILL)
        collector.send(signal.SIGCONT)
        trainer.wait_steps(300)
        ending = trainer.ending()
        ear = collector.ear()
        received = len(ear.lines) + len(ear.episodes) + ear.updates
        assert ending.kept == 0
        assert 3 * ending.steps - received <= sum(ending.dropped.values())
