"""The files of a log of snapshots: rotated, packed, thinned, within their room, and read as one log."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.inputs import open_input
from overwatch.feeds.snapshotlog import SnapshotLog, log_files
from overwatch.recordings.pieces import rotated
from overwatch.serve.snapshotfiles import SnapshotFiles
from tests import fakes
from tests.overwatch.serve.framed import Frames

SECOND = 10**9


class Log:
    """A log whose time and room are set by the test; its lines are short, of a run that has only begun."""

    def __init__(self, folder: Path, room: int = 1 << 30, whole_hours: float = 6) -> None:
        self.path = folder / "snapshots.jsonl"
        self.now, self.room = 1_000_000 * SECOND, room
        self.files = SnapshotFiles(self.path, lambda: self.now, lambda: self.room, whole_hours)
        self.removed: list[tuple[str, int]] = []
        self.files.removed = lambda what, size: self.removed.append((what, size))
        frames = Frames()
        frame = frames.report("run-1", [fakes.started(frames.now)])
        while not frame.recorded:
            frame = frames.skip(1)
        line = json.loads(codec.encode(frame.recorded[0]))
        self._rest = json.dumps({key: value for key, value in line.items() if key != "time"})[1:]

    def take(self, seconds: int, padding: int = 0) -> None:
        """One line a second; `padding` makes each so much longer, with what cannot be packed."""
        for _ in range(seconds):
            self.now += SECOND
            extra = os.urandom(padding // 2).hex()
            line = f'{{"time": {self.now / SECOND}, "padding": "{extra}", {self._rest}\n'
            self.files.append(line.encode())
            self.files.tidy()

    @property
    def bytes(self) -> int:
        """On disk."""
        return sum(file.stat().st_size for file in self.path.parent.iterdir())

    def times(self) -> list[float]:
        """Of the lines that a reader finds."""
        opened = open_input(self.path)
        assert isinstance(opened, SnapshotLog)
        return [snapshot.time for snapshot in opened.recorded()]


def test_a_log_of_several_files_is_read_as_one(tmp_path: Path) -> None:
    """Whatever was rotated in between, each line is read once and in order, by file and by folder."""
    log = Log(tmp_path)
    log.take(7400)

    assert len(log_files(log.path)) >= 3
    assert len(list(tmp_path.glob("*.zst"))) >= 2
    expected = [1_000_000 + second for second in range(1, 7401)]
    assert log.times() == expected
    assert [snapshot.time for snapshot in open_input(tmp_path).recorded()] == expected


def test_what_is_old_has_a_line_a_minute_and_what_is_young_one_a_second(tmp_path: Path) -> None:
    """Age thins, and the last line of a file stays."""
    log = Log(tmp_path, whole_hours=1)
    log.take(9000)
    times = log.times()
    gaps = [after - before for before, after in pairwise(times)]

    assert max(gaps) <= 60
    old = [time for time in times if time <= 1_000_000 + 2400]
    ends = {one.second for one in rotated(log.path.name, (file.name for file in tmp_path.iterdir()))}
    # The last of each minute, and of each file.
    assert [time for time in old if (time + 1) % 60 and time not in ends] == []
    assert sum((time + 1) % 60 == 0 for time in old) == 40
    assert set(gaps[-3000:]) == {1}


def test_files_stay_within_their_room_for_as_long_as_lines_come(tmp_path: Path) -> None:
    """The oldest go; the newest are there."""
    log = Log(tmp_path, room=1 << 20)
    for _ in range(20):
        log.take(40, padding=4000)
        assert log.bytes <= log.room

    assert log.times()[-1] == log.now / SECOND
    assert len(log.times()) > 40


def test_room_that_shrinks_is_given_back(tmp_path: Path) -> None:
    """The next line is within the new room; without any none is written, and an error names it."""
    log = Log(tmp_path, room=1 << 20)
    log.take(200, padding=4000)
    log.room = 1 << 17
    log.take(1, padding=4000)
    assert log.bytes <= log.room

    log.room = 0
    with pytest.raises(OSError, match="the disk leaves 0 bytes"):
        log.take(1)
    assert log.bytes == 0
    assert {path for path, _ in log.removed} >= {str(log.path)}

    log.room = 1 << 20
    log.take(3)
    assert len(log.times()) == 3


def test_a_volume_that_others_filled_takes_no_line_and_loses_none(tmp_path: Path) -> None:
    """What was written stays, and lines are written again once there is room."""
    log = Log(tmp_path, room=1 << 20)
    log.take(100, padding=4000)
    before = log.times()
    log.files.free = lambda: 0
    with pytest.raises(OSError, match="the disk leaves 0 bytes"):
        log.take(1)

    log.files.free = lambda: 1 << 20
    log.take(1)
    assert log.times() == [*before, log.now / SECOND]


@pytest.mark.parametrize("left", ["copy", "part"])
def test_what_an_interrupted_pass_left_is_not_read_twice(tmp_path: Path, left: str) -> None:
    """A file and what was made of it, or half of that: each line is read once, and a new life cleans up."""
    log = Log(tmp_path)
    log.take(3605)
    log.files.close()
    packed = min(tmp_path.glob("*.zst"))
    before = log.times()
    leftover = packed.with_suffix("") if left == "copy" else tmp_path / "snapshots.jsonl.part"
    leftover.write_bytes(packed.read_bytes())

    assert log.times() == before
    Log(tmp_path).take(1)
    assert not leftover.exists()


def test_a_file_that_somebody_else_removed_holds_nothing_up(tmp_path: Path) -> None:
    """Lines go on, and what else is due is done."""
    log = Log(tmp_path, whole_hours=1)
    log.take(3605)
    for file in tmp_path.glob("*.zst"):
        file.unlink()
    log.take(60)
    log.now += 3700 * SECOND
    with pytest.raises(FileNotFoundError):
        log.take(1)
    log.take(5)

    assert log.times()[-1] == log.now / SECOND
