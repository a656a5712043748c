"""A lock is held by one, and by each process that it was passed to."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from overwatch_rl.handover.locks import held_lock


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """Another gives up after its patience, with what the first one does."""
    fd = held_lock(tmp_path / "run" / ".lock", 0.0, "writes it")
    with pytest.raises(ValueError, match=r"another process writes it in .*run; end it, or name"):
        held_lock(tmp_path / "run" / ".lock", 0.06, "writes it")
    os.close(fd)
    os.close(held_lock(tmp_path / "run" / ".lock", 0.0, "writes it"))


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    """Until its holder ends."""
    fd = held_lock(tmp_path / ".lock", 0.0, "writes it")
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(held_lock(tmp_path / ".lock", 60.0, "writes it")))
    waiting.start()
    assert found == []
    os.close(fd)
    waiting.join()
    os.close(found[0])


def test_a_process_that_was_given_it_holds_it(tmp_path: Path) -> None:
    """After the first one let go, until it ends."""
    fd = held_lock(tmp_path / ".lock", 0.0, "writes it")
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[fd]) as child:
        os.close(fd)
        with pytest.raises(ValueError, match="another process"):
            held_lock(tmp_path / ".lock", 0.0, "writes it")
        child.communicate(b"\n")
    os.close(held_lock(tmp_path / ".lock", 0.0, "writes it"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With the fix."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file cannot be written: .*; name another --out folder"):
        held_lock(tmp_path / "file" / ".lock", 0.0, "writes it")
