"""Real control groups of memory, v1 or v2, and collectors that live in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.cgroup import ControlGroup


class MemoryGroup:
    """One group with a limit, made for a test below that of the test itself."""

    def __init__(self, folder: Path, *, is_v2: bool) -> None:
        self.folder = folder
        self._is_v2 = is_v2

    def limit(self, mib: int) -> None:
        """Set its limit."""
        (self.folder / ("memory.max" if self._is_v2 else "memory.limit_in_bytes")).write_text(f"{mib << 20}")

    def take(self, pid: int) -> None:
        """Have a process that runs allocate from it from now on."""
        (self.folder / "cgroup.procs").write_text(f"{pid}")

    @property
    def kills(self) -> int:
        """How often the kernel killed a process in it for want of memory."""
        counters = self.folder / ("memory.events" if self._is_v2 else "memory.oom_control")
        words = dict(line.split() for line in counters.read_text().splitlines())
        return int(words["oom_kill"])

    def command(self, command: list[str]) -> list[str]:
        """The same command as a process of this group."""
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return ["sh", "-c", enter, str(self.folder), *command]


@contextmanager
def memory_group(name: str, mib: int) -> Iterator[MemoryGroup]:
    """A group of so many MiB; the test is skipped where none can be made."""
    own = next(iter(ControlGroup()._folders("memory")), None)
    if own is None:
        pytest.skip("no control group of memory can be seen")
    folder, is_v2 = own[0] / name, own[1]
    group = MemoryGroup(folder, is_v2=is_v2)
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"{folder} cannot be made: {error.strerror}")
    try:
        try:
            group.limit(mib)
        except OSError as error:
            pytest.skip(f"{folder} takes no limit: {error.strerror}")
        yield group
    finally:
        folder.rmdir()
