"""The recording of snapshots: every line, in order, and honest about what was lost."""

import time
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.serve.recorder import Recorder
from overwatch.serve.snapshotfiles import SnapshotFiles
from overwatch.snapshot import Snapshot
from tests.overwatch.collector.running import eventually
from tests.overwatch.serve.framed import Frames, busy_run


class Reports:
    """What a recorder reported."""

    def __init__(self) -> None:
        self.written = 0
        self.lost = 0
        self.errors: list[str] = []

    def __call__(self, written: int, lost: int, error: str | None) -> None:
        """Take one report."""
        self.written += written
        self.lost += lost
        if error is not None:
            self.errors.append(error)


def files(path: Path) -> SnapshotFiles:
    """With room for all lines."""
    return SnapshotFiles(path, time.time_ns, lambda: 1 << 40, 6)


def record(path: Path, ticks: int) -> tuple[list[Snapshot], Reports]:
    """Publish the frames of a run; returns what they recorded and what the recorder reported."""
    reports = Reports()
    recorder = Recorder(files(path), reports)
    recorder.start()
    frames = Frames()
    published = [busy_run(frames), *(frames.skip(1) for _ in range(ticks))]
    for frame in published:
        recorder.publish(frame)
    recorder.close()
    recorder.close()
    return [snapshot for frame in published for snapshot in frame.recorded], reports


def test_every_recorded_snapshot_is_a_line(tmp_path: Path) -> None:
    """Lines are the frames' recorded snapshots, in order, and read back as they were."""
    path = tmp_path / "out" / "snapshots.jsonl"
    expected, reports = record(path, 60)

    lines = path.read_bytes().splitlines()
    assert len(expected) >= 6
    assert [codec.decode(line) for line in lines] == expected
    assert (reports.written, reports.lost, reports.errors) == (len(expected), 0, [])


def test_a_disk_that_fails_is_counted(tmp_path: Path) -> None:
    """Where the folder cannot be made, every lost line is counted and the reason is reported."""
    (tmp_path / "out").write_text("not a folder")
    expected, reports = record(tmp_path / "out" / "snapshots.jsonl", 60)

    assert (reports.written, reports.lost) == (0, len(expected))
    assert str(tmp_path / "out" / "snapshots.jsonl") in reports.errors[0]


def test_a_recorder_that_never_began_can_be_closed(tmp_path: Path) -> None:
    """A start that failed elsewhere leaves a recorder that closes."""
    Recorder(files(tmp_path / "snapshots.jsonl"), Reports()).close()

    assert list(tmp_path.iterdir()) == []


def test_an_error_of_ours_takes_its_snapshots_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are counted as lost, and the recorder goes on."""
    real, encoded = codec.encode, []

    def encode(snapshot: Snapshot) -> bytes:
        encoded.append(snapshot)
        if len(encoded) == 1:
            raise ZeroDivisionError("this very snapshot")
        return real(snapshot)

    monkeypatch.setattr(codec, "encode", encode)
    reports = Reports()
    recorder = Recorder(files(tmp_path / "snapshots.jsonl"), reports)
    recorder.start()
    frames = Frames()
    recorder.publish(busy_run(frames))
    while not frames.skip(1).slow:
        continue
    recorder.publish(frames.skip(10))
    assert eventually(lambda: reports.lost)
    recorder.publish(frames.skip(10))
    recorder.close()

    assert reports.written > 0
    assert "ZeroDivisionError" in reports.errors[0]
    assert [record.exc_info is not None for record in caplog.records] == [True]
