"""One holder at a time, in one process or in several, and no longer than its process."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from overwatch.file_lock import lock_within, locked, try_lock, unlock

HOLDER = """
import os, sys
from overwatch.file_lock import try_lock
assert try_lock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT))
print("held", flush=True)
sys.stdin.read()
"""


def opened(path: Path) -> int:
    """A descriptor of its own."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def test_one_holds_it_or_several_share_it(tmp_path: Path) -> None:
    """Who lets go of it, by a word or by closing, leaves it to the next."""
    first, second, third = (opened(tmp_path / "lock") for _ in range(3))
    assert try_lock(first)
    assert not try_lock(second)
    assert not try_lock(second, shared=True)
    unlock(first)
    assert try_lock(second, shared=True)
    assert try_lock(third, shared=True)
    assert not try_lock(first)
    os.close(second)
    os.close(third)
    assert try_lock(first)
    os.close(first)


def test_waiting_ends_with_patience_or_with_the_holder(tmp_path: Path) -> None:
    """Without patience it is one try."""
    first, second = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    assert try_lock(first)
    assert not lock_within(second, 0.0)
    assert not lock_within(second, 0.05)
    threading.Timer(0.05, unlock, (first,)).start()
    assert lock_within(second, 20.0)
    os.close(first)
    os.close(second)


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """Nobody has to tidy up after it."""
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        fd = opened(path)
        assert not try_lock(fd)
        holder.kill()
    assert lock_within(fd, 20.0)
    os.close(fd)


def test_who_waits_for_a_file_is_next(tmp_path: Path) -> None:
    """The file is made; a link in its place is not followed."""
    order = []

    def wait() -> None:
        with locked(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock", 0o640):
        waiting = threading.Thread(target=wait)
        waiting.start()
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    with pytest.raises(OSError, match="symbolic"), locked(tmp_path / "link"):
        pass
