"""Keeping a recording small: what is packed, thinned and let go of, and what survives a kill anywhere."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from overwatch.events import Measured
from overwatch.feeds.recording import Recording
from overwatch.journal import Signal
from overwatch.otlp.thin import RetentionLevel
from overwatch.recordings import compaction
from overwatch.recordings.compaction import Rules
from overwatch.recordings.tidy import LOCK, CompactionJob, Report
from tests.fakes import SECOND
from tests.overwatch.collector.running import eventually
from tests.overwatch.recordings.folders import Recorder, batches, facts, names, records

QUICK = Rules(whole_minutes=1, second_hours=0.1)


def recorded(folder: Path, rules: Rules = QUICK, pieces: int = 3, each_s: int = 20) -> Recorder:
    """Some pieces of 20 s, and 2 s that are being written."""
    recorder = Recorder(folder, rules)
    for number in range(pieces):
        recorder.steps(each_s * number, each_s * (number + 1))
        recorder.writer.rotate()
    recorder.steps(each_s * pieces, each_s * pieces + 2)
    return recorder


def test_what_is_packed_is_read_as_it_was(tmp_path: Path) -> None:
    """Bodies, order and stamps are the same before, after, and for who opened the recording before."""
    recorder = recorded(tmp_path)
    whole, early = batches(tmp_path), Recording(tmp_path)
    segments = early.segments()
    report = recorder.tidy()

    assert report.error is None
    assert report.pieces == 3
    assert not [name for name in names(tmp_path) if name.endswith("-0.jsonl")]
    assert batches(tmp_path) == whole
    assert not [path for path in tmp_path.iterdir() if path.stat().st_mode & 0o007]
    assert early.read(segments[0].entries) == whole
    assert early.bad_batches == 0
    assert Recording(tmp_path).segments() == Recording(tmp_path).segments()


def test_files_stay_plain_where_nothing_is_packed(tmp_path: Path) -> None:
    """The same without compression."""
    recorder = recorded(tmp_path, Rules(packs=False))
    whole = batches(tmp_path)

    assert recorder.tidy().pieces == 3
    assert not [name for name in names(tmp_path) if name.endswith(".zst")]
    assert batches(tmp_path) == whole


def test_age_thins_numbers_and_keeps_facts(tmp_path: Path) -> None:
    """After a minute one number a second is left, later one a minute, and all facts are."""
    recorder = recorded(tmp_path)
    whole = batches(tmp_path)
    recorder.tidy(now=recorder.newest + 70 * SECOND)
    seconds = batches(tmp_path)
    recorder.tidy(now=recorder.newest + 3600 * SECOND)
    minutes = batches(tmp_path)

    assert [record.event for record in facts(minutes)] == [record.event for record in facts(whole)]
    assert [record.event for record in facts(seconds)] == [record.event for record in facts(whole)]
    policy = [numbers(found, "policy") for found in (whole, seconds, minutes)]
    # What is written to is whole in all of them: 20 updates.
    assert [len(found) - 20 for found in policy] == [600, 60, 3]
    for found in policy:
        assert sum(1 if event.conflated is None else event.conflated.n for event in found) == 620
    thinned = Recording(tmp_path)
    thinned.segments()
    assert set(thinned.notes.thinned) == {"run-1"}
    assert set(thinned.notes.thinned["run-1"]) == {RetentionLevel.MINUTE}


def numbers(found: list, scope: str) -> list[Measured]:
    """The measurements of a scope."""
    reported = (record.event for record in records(found))
    return [event for event in reported if isinstance(event, Measured) and event.scope.value == scope]


def test_what_stands_around_a_finding_is_left_whole(tmp_path: Path) -> None:
    """From before it was true to after it opened no number is missing."""
    recorder = Recorder(tmp_path, QUICK)
    recorder.steps(0, 20)
    at = recorder.newest
    recorder.writer.raised(
        {"finding": "kl:policy:", "run": "run-1", "tick": at, "since": at, "severity": "critical"}
    )
    recorder.steps(20, 400, hz=2)
    whole = batches(tmp_path)
    recorder.writer.rotate()
    recorder.tidy(now=recorder.newest + 3600 * SECOND)
    left = batches(tmp_path)

    near = [batch for batch in whole if batch.stamp <= at + 30 * SECOND]
    assert left[: len(near)] == near
    assert len(left) < len(whole)
    assert [finding.finding for finding in _opened(tmp_path).notes.findings] == ["kl:policy:"]


def _opened(folder: Path) -> Recording:
    recording = Recording(folder)
    recording.segments()
    return recording


def test_a_run_beyond_its_budget_gives_numbers_first_then_its_oldest_pieces(tmp_path: Path) -> None:
    """It fits afterwards, the newest is there, and what went is in the index with its numbers."""
    recorder = recorded(tmp_path, Rules(whole_minutes=0.1, second_hours=10), pieces=6)
    whole = batches(tmp_path)
    before = recorder.tidy()
    fits = before.bytes * 0.35 / (1 << 20)
    after = recorder.tidy(rules=msgspec.structs.replace(recorder.rules, run_mib=fits))

    assert after.bytes <= before.bytes * 0.35
    assert after.runs["run-1"] <= after.bytes
    left, opened = batches(tmp_path), _opened(tmp_path)
    assert left[-20:] == whole[-20:]
    lost = len(facts(whole)) - len(facts(left))
    if lost:
        assert opened.notes.gone
        assert after.gone["run-1"] >= lost
        assert facts(left) == facts(whole)[lost:]
    else:
        assert opened.notes.gone == []


def test_where_the_clean_up_falls_behind_the_oldest_pieces_go_before_anything_else(tmp_path: Path) -> None:
    """What is rotated while it is at work counts too, and the folder is within its budget."""
    rules = Rules(whole_minutes=0.1)
    recorder = recorded(tmp_path, rules, pieces=8, each_s=8)
    whole = batches(tmp_path)
    mib = sum(one.stat().st_size for one in tmp_path.glob("*-0.jsonl")) / 8 / (1 << 20)
    behind = msgspec.structs.replace(rules, folder_mib=mib * 5, piece_mib=mib * 0.9)
    report = recorder.tidy(through=6, rules=behind)
    left = batches(tmp_path)

    assert left[-1] == whole[-1]
    assert report.gone["run-1"] > 0
    assert all("records of run 'run-1' up to 20" in what for what, _ in report.removed)
    assert sum(size for _, size in report.removed) > 0
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl*")) <= mib * 5 * (1 << 20)


def test_a_clean_up_that_keeps_up_loses_no_fact_to_the_folders_budget(tmp_path: Path) -> None:
    """The same budget and nothing that came meanwhile: numbers go, and facts stay."""
    rules = Rules(whole_minutes=0.1)
    recorder = recorded(tmp_path, rules, pieces=8, each_s=8)
    whole = batches(tmp_path)
    mib = sum(one.stat().st_size for one in tmp_path.glob("*-0.jsonl")) / 8 / (1 << 20)
    report = recorder.tidy(rules=msgspec.structs.replace(rules, folder_mib=mib * 5, piece_mib=mib * 0.9))

    assert report.gone == {}
    assert report.removed == []
    assert facts(batches(tmp_path)) == facts(whole)


def test_when_even_facts_are_too_many_the_oldest_pieces_go_and_it_is_reported(tmp_path: Path) -> None:
    """A budget of next to nothing leaves the newest, states what went, and the recording plays."""
    recorder = recorded(tmp_path, Rules(whole_minutes=0.1), pieces=5)
    whole = batches(tmp_path)
    report = recorder.tidy(rules=msgspec.structs.replace(recorder.rules, run_mib=0.004))
    opened = _opened(tmp_path)
    left = batches(tmp_path)

    assert [gone.gone for gone in opened.notes.gone] == ["run-1"] * len(opened.notes.gone)
    assert sum(gone.records for gone in opened.notes.gone) == report.gone["run-1"] > 0
    assert facts(left) == facts(whole)[-len(facts(left)) :]
    assert len(list(opened.recorded())) >= 2


def test_days_limit_what_is_kept(tmp_path: Path) -> None:
    """`max_days` lets go of whatever is older, whatever the budget."""
    recorder = recorded(tmp_path)
    rules = msgspec.structs.replace(QUICK, max_days=1)
    report = recorder.tidy(now=recorder.newest + 2 * 86_400 * SECOND, rules=rules)

    assert report.gone["run-1"] > 0
    assert len(batches(tmp_path)) == 20
    assert _opened(tmp_path).segments()[0].first > recorder.newest - 3 * SECOND


def test_many_small_pieces_become_one(tmp_path: Path) -> None:
    """Eight neighbours that are alike are one file each afterwards, with nothing lost."""
    recorder = Recorder(tmp_path)
    for number in range(17):
        recorder.steps(number, number + 1)
        recorder.writer.rotate()
    whole = batches(tmp_path)
    report = recorder.tidy()

    assert report.pieces == 3
    assert batches(tmp_path) == whole


def test_a_piece_that_may_still_be_cut_is_not_touched(tmp_path: Path) -> None:
    """Only what a restart does not cut any more is rewritten."""
    recorder = recorded(tmp_path)
    recorder.tidy(through=2)

    assert "logs-000003-000003-0.jsonl" in names(tmp_path)
    assert "logs-000002-000002-1.jsonl.zst" in names(tmp_path)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def test_killed_at_any_moment_either_the_old_or_the_new_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every call that changes the disk: facts are all there once, and the next clean-up ends the same."""
    recorder = recorded(tmp_path / "whole", QUICK, pieces=2, each_s=2)
    whole = facts(batches(tmp_path / "whole"))
    late = recorder.newest + 3600 * SECOND
    shutil.copytree(tmp_path / "whole", tmp_path / "done")
    recorder.folder = tmp_path / "done"
    recorder.tidy(now=late)
    done = batches(tmp_path / "done")
    moments = 0
    while True:
        folder = tmp_path / f"killed-{moments}"
        shutil.copytree(tmp_path / "whole", folder)
        recorder.folder = folder
        with monkeypatch.context() as patch:
            left = [moments]
            _count_down(patch, left)
            try:
                recorder.tidy(now=late)
            except KilledError:
                pass
            else:
                break
        assert facts(batches(folder)) == whole
        recorder.tidy(now=late)
        assert batches(folder) == done
        assert names(folder) == names(tmp_path / "done")
        shutil.rmtree(folder)
        moments += 1
    assert moments > 20


def _count_down(patch: pytest.MonkeyPatch, left: list[int]) -> None:
    """Kill at the given call of those that change the disk, before it or half-way through it."""

    def dying(call):  # noqa: ANN001, ANN202 any function
        def called(*args, **kwargs):  # noqa: ANN002, ANN003, ANN202
            if left[0] == 0:
                raise KilledError
            left[0] -= 1
            return call(*args, **kwargs)

        return called

    patch.setattr(compaction, "sync_folder", dying(compaction.sync_folder))
    patch.setattr(Path, "rename", dying(Path.rename))
    patch.setattr(Path, "unlink", dying(Path.unlink))
    patch.setattr(compaction.LineWriter, "append", dying(compaction.LineWriter.append))
    patch.setattr(compaction.LineWriter, "close", dying(compaction.LineWriter.close))


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_where_a_disk_has_no_room_to_rewrite_the_oldest_piece_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Whichever piece could not be packed, for a while: nothing is missing between what is left."""
    recorder = recorded(tmp_path)
    whole = batches(tmp_path)
    append = compaction.LineWriter.append

    def full(writer: compaction.LineWriter, line: bytes) -> int:
        if writer.path.name == f"logs-00000{refused}-00000{refused}-1.jsonl.zst":
            left.append(writer.path.name)
            if len(left) == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(writer, line)

    left: list[str] = []
    monkeypatch.setattr(compaction.LineWriter, "append", full)
    report = recorder.tidy(rules=msgspec.structs.replace(QUICK, folder_mib=0.008))

    assert left
    assert report.error is not None
    assert "No space left on device" in report.error
    kept = facts(batches(tmp_path))
    assert 0 < len(kept) < len(facts(whole))
    assert kept == facts(whole)[-len(kept) :]


def test_a_disk_without_any_room_ends_a_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and the next one goes on."""
    recorder = recorded(tmp_path)
    whole = batches(tmp_path)

    def full(writer: compaction.LineWriter, line: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rules = msgspec.structs.replace(QUICK, folder_mib=0.06)
    with monkeypatch.context() as patch:
        patch.setattr(compaction.LineWriter, "append", full)
        report = recorder.tidy(rules=rules)
    assert (report.jobs, report.pieces) == (0, 3)
    assert report.error is not None
    assert batches(tmp_path) == whole
    assert recorder.tidy(rules=rules).error is None


def test_a_damaged_piece_is_left_and_reported(tmp_path: Path) -> None:
    """Its neighbours are thinned all the same."""
    recorder = recorded(tmp_path)
    recorder.tidy()
    (tmp_path / "index-000002-000002-1.jsonl.zst").write_bytes(b"no zstd")
    report = recorder.tidy(now=recorder.newest + 3600 * SECOND)

    assert report.error is not None
    assert "index-000002-000002-1.jsonl.zst" in report.error
    assert (report.jobs, report.pieces) == (2, 2)
    assert "logs-000002-000002-1.jsonl.zst" in names(tmp_path)


def test_points_of_others_are_thinned_to_the_newest_and_spans_stay(tmp_path: Path) -> None:
    """Of cumulative points the last of a period is left as it came; a delta is an increment and stays."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

    recorder = Recorder(tmp_path, QUICK)
    sent = []
    for temporality in (
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
    ):
        for step in range(30):
            message = ExportMetricsServiceRequest()
            metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="tokens")
            metric.sum.aggregation_temporality = temporality
            metric.sum.data_points.add(as_int=step, time_unix_nano=recorder.newest + 1)
            sent.append(
                recorder.write(recorder.sequence / 30, Signal.METRICS, message.SerializeToString()).body
            )
    recorder.writer.rotate()
    recorder.tidy(now=recorder.newest + 3600 * SECOND)
    left = [
        each.SerializeToString()
        for batch in batches(tmp_path)
        for each in ExportMetricsServiceRequest.FromString(batch.body).resource_metrics
    ]
    wanted = [
        each.SerializeToString()
        for body in (sent[29], *sent[30:])
        for each in ExportMetricsServiceRequest.FromString(body).resource_metrics
    ]
    assert left == wanted


def test_it_runs_as_a_process(tmp_path: Path) -> None:
    """CompactionJob go in as JSON, a report comes out as JSON."""
    recorder = recorded(tmp_path)
    orders = CompactionJob(folder=str(tmp_path), now=recorder.newest, through=3, rules=QUICK)
    command = [sys.executable, "-m", "overwatch.recordings.tidy", msgspec.json.encode(orders).decode()]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)

    report = msgspec.json.decode(done.stdout, type=Report)
    assert (report.pieces, report.error) == (3, None)
    assert report.jobs >= 3


def test_a_process_gives_way_and_yet_gets_on(tmp_path: Path) -> None:
    """Beside others that use every core it has a share, by which a clean-up ends."""
    with (tmp_path / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        orders = msgspec.json.encode(CompactionJob(folder=str(tmp_path), now=1, through=1)).decode()
        process = subprocess.Popen([sys.executable, "-m", "overwatch.recordings.tidy", orders])
        try:
            eventually(lambda: os.sched_getscheduler(process.pid) == os.SCHED_BATCH)
            nice = os.getpriority(os.PRIO_PROCESS, process.pid) - os.getpriority(os.PRIO_PROCESS, 0)
        finally:
            process.kill()
            process.wait()
    assert 0 < nice <= 10
