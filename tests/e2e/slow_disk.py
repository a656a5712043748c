"""A disk that is slow: ext4 on a loop device whose one file takes its time for each write and each flush.

So the kernel's own page cache, journal and locks lie between a program and the slowness, as with a real
disk: a write returns at once while there is room to keep it, what waits for the disk (`fdatasync`, a rename
that needs the file system's journal, a read of what is not in memory) takes long. `tests/e2e/one_file.py` is
the file. Needs the rights to mount, `/dev/fuse`, a free loop device and `mkfs.ext4`; a test is skipped with
the reason where one is missing.
"""

import math
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

SERVER = Path(__file__).parent / "one_file.py"


class SlowDisk:
    """A file system, and how slow its disk is."""

    def __init__(self, folder: Path, control: Path) -> None:
        self.folder = folder
        """Where its files lie."""
        self._control = control
        self._write_s(0.0)

    @contextmanager
    def slow(self, write_s: float) -> Iterator[None]:
        """Every write of at most 128 KiB and every flush takes so long, one after the other."""
        self._write_s(write_s)
        try:
            yield
        finally:
            self._write_s(0.0)

    def stalled(self) -> AbstractContextManager[None]:
        """No write and no flush ends."""
        return self.slow(math.inf)

    def _write_s(self, seconds: float) -> None:
        with self._control.open("r+b", buffering=0) as file:
            file.write(struct.pack("<d", seconds))


@contextmanager
def slow_disk(place: Path, size_mib: int) -> Iterator[SlowDisk]:
    """A disk that is as fast as memory until it is asked to be slow."""
    image, control, folder = (place / name for name in ("image", "control", "files"))
    folder.mkdir(parents=True)
    image.touch()
    control.write_bytes(bytes(8))
    with ExitStack() as stack:
        server = subprocess.Popen(
            [sys.executable, "-S", str(SERVER), str(image), str(size_mib << 20), str(control)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        stack.enter_context(server)
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stderr is not None
        if server.stdout.readline() != "mounted\n":
            pytest.skip(f"no file system of this test's own: {server.stderr.read().strip().splitlines()[-1]}")
        stack.callback(_run, "umount", "-l", str(image))
        device = _made("losetup", "--find", "--show", str(image))
        stack.callback(_run, "losetup", "--detach", device)
        _made("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        _made("mount", "-t", "ext4", device, str(folder))
        stack.callback(_run, "umount", "-l", str(folder))
        folder.chmod(0o700)
        yield SlowDisk(folder, control)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True)


def _made(*words: str) -> str:
    """What a command prints; the test is skipped where it cannot be done."""
    try:
        done = _run(*words)
    except FileNotFoundError:
        pytest.skip(f"a slow disk needs the program {words[0]}")
    if done.returncode:
        pytest.skip(f"no slow disk can be made here: {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
