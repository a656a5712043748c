"""Files that grow by whole lines."""

import os
import stat
from pathlib import Path

import pytest

from overwatch.serve.files import LineFile


def test_offsets_follow_the_bytes(tmp_path: Path) -> None:
    """Each append returns where its first byte lies."""
    file = LineFile(tmp_path / "deep" / "a.jsonl")
    offsets = [file.append(b"one\n"), file.append(b"two two\n"), file.append(b"3\n")]
    file.close()

    assert offsets == [0, 4, 12]
    assert (tmp_path / "deep" / "a.jsonl").read_bytes() == b"one\ntwo two\n3\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"whole\n", b"whole\n"),
        (b"whole\ntorn", b"whole\n"),
        (b"torn", b""),
        (b"a\n" + b"x" * 200_000, b"a\n"),
    ],
)
def test_a_torn_line_is_cut_on_opening(tmp_path: Path, before: bytes, after: bytes) -> None:
    """What an earlier life left half written goes; whole lines stay."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(before)
    file = LineFile(path)
    offset = file.append(b"new\n")
    file.close()

    assert offset == len(after)
    assert path.read_bytes() == after + b"new\n"


def test_a_file_that_was_moved_away_is_begun_again(tmp_path: Path) -> None:
    """Rotation by renaming loses no line and splits none."""
    path = tmp_path / "a.jsonl"
    file = LineFile(path)
    file.append(b"one\n")
    path.rename(tmp_path / "old.jsonl")
    offset = file.append(b"two\n")
    file.close()

    assert offset == 0
    assert (tmp_path / "old.jsonl").read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"


def test_a_full_disk_leaves_no_half_line() -> None:
    """A device without room raises, and states why."""
    file = LineFile(Path("/dev/full"))
    try:
        with pytest.raises(OSError, match="No space left"):
            file.append(b"line\n")
    finally:
        file.close()


def test_the_disk_is_asked_for_what_is_new_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has not grown is not synced again, its folder once; one that was cut is."""
    requested: list[bool] = []

    def synced(fd: int) -> None:
        requested.append(stat.S_ISDIR(os.fstat(fd).st_mode))

    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(os, "fsync", synced)
    file = LineFile(tmp_path / "a.jsonl")
    file.append(b"one\n")
    mark = file.mark()
    for _ in range(3):
        file.sync()
    assert requested == [False, True]
    file.append(b"two\n")
    file.sync()
    assert requested == [False, True, False]
    file.cut(mark)
    file.sync()
    assert requested[3:] == [False, True]
    file.close()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system cannot be asked to begin writing")
def test_many_bytes_are_begun_before_they_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half MiB once, so that a sync finds little left to do, and those of others do not wait for it."""
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *requested: begun.append(requested[1:3]))
    file = LineFile(tmp_path / "a.jsonl")
    line = b"x" * ((200 << 10) - 1) + b"\n"
    for _ in range(7):
        file.append(line)
    file.close()
    assert begun == [(0, 600 << 10), (600 << 10, 600 << 10)]
