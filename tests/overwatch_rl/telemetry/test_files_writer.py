"""Files that grow by whole rows, and go on where a run does."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from overwatch_rl.telemetry.files_writer import Begin, Book, Events, Lines, Table
from tests.overwatch_rl.telemetry.test_files import curves


def test_a_run_that_goes_on_keeps_the_rows_that_it_goes_on_from(tmp_path: Path) -> None:
    """Later rows, and one that was cut off, are of a line that was left.

    An episode that ended in a rollout that was cut short, before the checkpoint that was made then, stays.
    """
    (tmp_path / "updates.csv").write_text("update,return\n1,0.5\n2,0.25\n3,0.125\n")
    (tmp_path / "episodes.csv").write_text(
        "env,update,step,return,length,ended\n0,2,9,1.0,4,truncated\n0,3,10,2.0,1,truncated\n"
        "0,3,11,3.0,1,truncated\n1,2,"
    )
    (tmp_path / "updates.jsonl").write_text('{"update":1}\n{"update":3}\n{"upd')
    book = Book(tmp_path, Begin(about={}, done=2, steps=10))
    book.close("completed", None, None)

    assert (tmp_path / "updates.csv").read_text() == "update,return\n1,0.5\n2,0.25\n"
    assert (tmp_path / "episodes.csv").read_text() == (
        "env,update,step,return,length,ended\n0,2,9,1.0,4,truncated\n0,3,10,2.0,1,truncated\n"
    )
    assert (tmp_path / "updates.jsonl").read_text() == '{"update":1}\n'
    assert json.loads((tmp_path / "summary.json").read_text())["episodes"] == 2


def test_a_new_run_begins_new_files(tmp_path: Path) -> None:
    """What lay there is gone."""
    (tmp_path / "updates.csv").write_text("update,return\n1,0.5\n")
    (tmp_path / "updates.jsonl").write_text('{"update":1}\n')
    Book(tmp_path, Begin(about={}, done=0))

    assert (tmp_path / "updates.csv").read_text() == "update\n"
    assert (tmp_path / "updates.jsonl").read_text() == ""


def test_a_column_that_comes_later_is_empty_before(tmp_path: Path) -> None:
    """And one that stays away is empty after; quotes and commas stay in their cell."""
    table = Table(tmp_path / "t.csv", ["update"], 0)
    table.write([{"update": 1, "a": 1.5}])
    table.write([{"update": 2, "b": 'x,"y'}, {"update": 3}])

    assert (tmp_path / "t.csv").read_text() == 'update,a,b\n1,1.5,\n2,,"x,""y"\n3,,\n'


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """What does not fit is not there in part."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system needs privileges that this machine does not give")
    try:
        lines = Lines(disk / "lines", "")
        lines.write("first\n")
        with pytest.raises(OSError, match="space"):
            lines.write("x" * 100_000 + "\n")
        assert (disk / "lines").read_text() == "first\n"
        lines.write("second\n")
        assert (disk / "lines").read_text() == "first\nsecond\n"
        events = Events(disk / "board", 0)
        events.write(1, {"a": 1.0})
        with pytest.raises(OSError, match="space"):
            events.write(2, {"x" * 100_000: 2.0})
        events.write(3, {"a": 3.0})
        assert curves(disk / "board") == {"a": [(1, 1.0), (3, 3.0)]}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
