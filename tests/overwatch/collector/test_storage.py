"""A data folder with damaged files in it: the collector starts, goes on, and states what it missed."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from overwatch.collector import Service
from overwatch.collector.extensions.file_storage import FileStorageConfig
from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.service import StartError
from overwatch.collector.storage import Storage
from overwatch.journal import Signal
from tests.overwatch.collector.running import config, running

Damage: TypeAlias = Callable[[Path], object]


def life(folder: Path, *bodies: bytes) -> list[bytes]:
    """Take bodies in; all that a reader finds then."""
    storage = Storage(FileStorageConfig(directory=folder), 1 << 20, time.time_ns, Health(), LimitsConfig())
    storage.start()
    try:
        for body in bodies:
            storage.journal.append(Signal.LOGS, body)
        cursor = storage.journal.cursor("reader", 1)
        return [batch.body for batch in (*cursor.earlier(), *cursor.wait(0))]
    finally:
        storage.stop()


def a_folder(segment: Path) -> None:
    """Something else under its name."""
    segment.unlink()
    segment.mkdir()


def twice(segment: Path) -> None:
    """The same file again, as a newer one."""
    shutil.copy(segment, segment.with_name(segment.name.replace("0000000001", "0000000002", 1)))


def of_another(segment: Path) -> None:
    """A file of another collector, as a newer one."""
    life(segment.parents[1] / "other", b"x", b"y", b"z")
    (other,) = (segment.parents[1] / "other" / "journal").glob("journal-*")
    other.rename(segment.with_name(other.name.replace("0000000001", "0000000002", 1)))


@pytest.mark.parametrize(
    ("damage", "kept", "stated"),
    [
        (a_folder, [], "set aside as *.bad: journal-"),
        (lambda segment: segment.write_bytes(b""), [], ""),
        (twice, [b"a", b"b"], ""),
        (of_another, [b"x", b"y", b"z"], ""),
    ],
    ids=["folder", "empty", "duplicate", "other"],
)
def test_a_damaged_segment_needs_no_person(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Damage, kept: list[bytes], stated: str
) -> None:
    """Each start goes on behind what can be read, once, and what cannot be read is named."""
    life(tmp_path, b"a", b"b")
    (segment,) = (tmp_path / "journal").glob("journal-*")
    damage(segment)

    assert [life(tmp_path, body) for body in (b"c", b"d")] == [[*kept, b"c"], [*kept, b"c", b"d"]]
    assert stated in caplog.text


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """What somebody else's link leads to is neither emptied nor written."""
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(StartError, match="data/lock: Too many levels of symbolic links"):
        Service(config(tmp_path / "data")).start()
    assert (tmp_path / "other").read_bytes() == b"precious"


def test_a_disk_without_locks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot know whether another collector is at work does not begin."""

    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(StartError, match=f"{tmp_path}/lock: Operation not supported"):
        Service(config(tmp_path)).start()


HARMLESS = {("lock", "file"), ("journal", "folder"), ("journal/lock", "file"), ("journal/lock", "fifo")}


@pytest.mark.parametrize("kind", ["folder", "link", "file", "fifo"])
@pytest.mark.parametrize("name", ["lock", "journal/lock", "journal"])
def test_what_lies_in_the_way_is_refused_by_its_whole_path(tmp_path: Path, name: str, kind: str) -> None:
    """Or does not matter; where it does the message holds the path and the fix, and no number of an error."""
    with running(tmp_path / "data"):
        pass
    way = tmp_path / "data" / name
    shutil.rmtree(way) if way.is_dir() else way.unlink()
    {"folder": way.mkdir, "link": lambda: way.symlink_to("/none/x"), "file": way.touch,
     "fifo": lambda: os.mkfifo(way)}[kind]()  # fmt: skip
    service = Service(config(tmp_path / "data"))
    if (name, kind) in HARMLESS:
        service.start()
        service.stop()
        return
    with pytest.raises(StartError) as caught:
        service.start()
    assert str(caught.value).startswith(f"{way}: ")
    assert "move away what lies there" in str(caught.value)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("place", ["none/ready", "folder"])
def test_a_ready_file_that_cannot_be_written_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Not with a trace of calls."""
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("OVERWATCH_READY_FILE", str(tmp_path / place))
    service = Service(config(tmp_path / "data"))
    service.start()
    try:
        with pytest.raises(StartError, match=rf"OVERWATCH_READY_FILE: {tmp_path / place}: [A-Z]"):
            service.announce()
    finally:
        service.stop()
