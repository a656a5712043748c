"""A collector on a slow disk: trainers are never held up, nothing is lost or counted twice, all is shown.

The disk is real (`tests/e2e/slow_disk.py`): ext4 on a loop device, whose writes and flushes take long. While
it stalls no write ends at all, so that what goes on then cannot wait for it, however fast this machine is.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector, Sender
from tests.e2e.sdk.chaos import Trainer, training
from tests.e2e.slow_disk import SlowDisk, slow_disk
from tests.e2e.test_namespaces import recorded, shown_updates
from tests.overwatch.collector.running import http

SIZE_MIB = 256
WRITE_S = 0.05
"""Of each write and each flush: one commit of the journal is some six of them, behind those of others."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowDisk]:
    """A disk of this test's own."""
    with slow_disk(tmp_path / "disk", SIZE_MIB) as made:
        yield made


@pytest.fixture
def collector(disk: SlowDisk) -> Iterator[Collector]:
    """All that it writes is there."""
    made = Collector(disk.folder)
    yield made
    made.kill()


def value(endpoints: Endpoints, name: str) -> float:
    """One of the collector's own numbers."""
    answer = http(f"{endpoints.telemetry}/metrics")
    assert answer.status == 200
    lines = answer.body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_a_slow_disk_holds_up_acknowledgements_alone(
    disk: SlowDisk, collector: Collector, tmp_path: Path
) -> None:
    """Slow for a while, then not answering at all, then well again; slow once more while it ends."""
    folder = tmp_path / "trainer"
    folder.mkdir()
    endpoints = collector.start()
    first, later = Sender("first", collector), Sender("later", collector)
    with training(folder, endpoints.otlp_http, pace_s=0.005, close_s=60.0) as trainer:
        try:
            first.start()
            run_id = trainer.plan.run_id
            until(lambda: snapshot_of(endpoints, run_id), "the run to be shown")
            slow(disk, endpoints, first, trainer)
            stalled(disk, endpoints, later, trainer)
            acknowledged = first.acknowledged
            until(lambda: first.acknowledged > acknowledged, "requests to be acknowledged again")
            until(lambda: b'"healthy":false' not in http(str(endpoints.health)).body, "health")
        finally:
            first.stop()
            later.stop()
        ending = trainer.ending()
    with disk.slow(WRITE_S):
        collector.stop()

    assert ending.delivered
    ears = recorded([collector])
    ears[run_id].assert_whole(ending.steps)
    assert shown_updates([collector])[run_id] == ending.steps
    for sender in (first, later):
        lines = ears[sender.run_id].lines
        assert [int(line.split()[1]) for line in lines] == list(range(1, sender.acknowledged + 1))
        assert set(sender.refusals) <= {503}
    assert "the disk is slow" in collector.log
    assert "Traceback" not in collector.log


def slow(disk: SlowDisk, endpoints: Endpoints, sender: Sender, trainer: Trainer) -> None:
    """Acknowledgements wait for commits that take long, and come."""
    commits, took_s = (
        value(endpoints, f"overwatch_journal_commit{name}_total") for name in ("s", "_seconds")
    )
    acknowledged = sender.acknowledged
    with disk.slow(WRITE_S):
        until(lambda: sender.acknowledged > acknowledged + 100, "three acknowledgements")
        trainer.wait_steps(50)
        assert value(endpoints, "overwatch_journal_commits_total") > commits
        assert value(endpoints, "overwatch_journal_commit_seconds_total") - took_s > 6 * WRITE_S


def stalled(disk: SlowDisk, endpoints: Endpoints, later: Sender, trainer: Trainer) -> None:
    """The trainer goes on, the past is shown, and after a while what comes is refused with the reason."""
    view = str(endpoints.view).replace("ws:", "http:")
    with disk.stalled():
        trainer.wait_steps(200)
        until(
            lambda: value(endpoints, "overwatch_journal_waiting_seconds") > 5, "a disk that does not answer"
        )
        later.start()
        until(lambda: later.refusals[503] > 2, "a refusal that may be retried")
        for path in ("snapshot", "history", "heat", "timeline"):
            answer = http(f"{view}/api/v1/{path}?run={trainer.plan.run_id}")
            assert answer.status == 200, (path, answer)
        ready = http(f"{endpoints.health}/ready")
        assert ready.status == 503
        assert b"the journal's disk has not answered for" in ready.body
        assert http(f"{endpoints.health}/live").status == 200
        assert http(f"{endpoints.metrics}/metrics").status == 200
        trainer.wait_steps(200)
        assert later.acknowledged == 0
    until(lambda: later.acknowledged > 0, "an acknowledgement after the stall")
