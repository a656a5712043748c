"""What the control group of this process may use and does use: memory and CPU time, v1 and v2, at any depth.

Rules: a limit holds for everything below it, so the smallest of a group and its ancestors counts, with what
is used by all that it holds for; a file that is missing or cannot be read limits nothing. Everything is read
below `root`, as a process sees it there. Must not know what a limit is used for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

UNLIMITED: Final = 1 << 60
"""Bytes from which on a limit of v1 is none: it writes the largest number of pages."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The group with the smallest limit."""

    limit: int
    """Bytes that it may use."""
    used: int | None
    """Bytes that it does use, without file cache that can go at once; `None` where that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """The group with the smallest quota."""

    cores: float
    """CPU seconds that it may use in a second."""
    used_s: float | None
    """CPU seconds that it has used so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """Where groups can be seen."""

    point: Path
    within: str
    """The group that lies at `point`, as its namespace names it."""
    controllers: frozenset[str] | None
    """Of v1; `None` of v2, which has all of them."""


class ControlGroup:
    """The control group of the process that asks."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._paths = dict(_paths(_text(root / "proc/self/cgroup")))
        self._mounts = tuple(_mounts(_text(root / "proc/self/mountinfo"), root))

    def memory(self) -> Memory | None:
        """The smallest limit of memory, `None` where there is none."""
        found: Memory | None = None
        for folder, is_v2 in self._folders("memory"):
            stat = _table(folder / "memory.stat")
            limits = [_number(folder / ("memory.max" if is_v2 else "memory.limit_in_bytes"))]
            if not is_v2:
                limits.append(stat.get("hierarchical_memory_limit"))
            limit = min((one for one in limits if one is not None and one < UNLIMITED), default=None)
            # Of equal limits the outer one counts: more is held to it.
            if limit is None or (found is not None and limit > found.limit):
                continue
            used = _number(folder / ("memory.current" if is_v2 else "memory.usage_in_bytes"))
            cache = stat.get("inactive_file" if is_v2 else "total_inactive_file", 0)
            found = Memory(limit=limit, used=None if used is None else max(0, used - cache))
        return found

    def oom_kills(self) -> int:
        """Processes that the kernel killed for want of memory, counted by the groups that can be seen."""
        return sum(
            _table(folder / ("memory.events" if is_v2 else "memory.oom_control")).get("oom_kill", 0)
            for folder, is_v2 in self._folders("memory")
        )

    def cpu(self) -> CpuTime | None:
        """The smallest quota of CPU time, `None` where there is none."""
        found: CpuTime | None = None
        for folder, is_v2 in self._folders("cpu"):
            cores = _quota(folder, is_v2=is_v2)
            if cores is not None and (found is None or cores <= found.cores):
                found = CpuTime(cores=cores, used_s=self._used_s(folder, is_v2=is_v2))
        return found

    def cpus(self) -> frozenset[int] | None:
        """Numbers of the CPUs that it may run on; `None` where that is not given."""
        for folder, is_v2 in self._folders("cpuset"):
            names = ("cpuset.cpus.effective",) if is_v2 else ("cpuset.effective_cpus", "cpuset.cpus")
            for name in names:
                cpus = frozenset(_ranges(_text(folder / name)))
                if cpus:
                    return cpus
        return None

    def _used_s(self, folder: Path, *, is_v2: bool) -> float | None:
        if is_v2:
            used_us = _table(folder / "cpu.stat").get("usage_usec")
            return None if used_us is None else used_us / 1e6
        # Time is counted by a controller of its own, in a group of the same depth.
        depth = [one for one, _ in self._folders("cpu")].index(folder)
        counted = [one for one, _ in self._folders("cpuacct")]
        used_ns = _number(counted[depth] / "cpuacct.usage") if depth < len(counted) else None
        return None if used_ns is None else used_ns / 1e9

    def _folders(self, controller: str) -> Iterator[tuple[Path, bool]]:
        """The group's folder, then those of its ancestors as far as they can be seen; and whether of v2."""
        for mount in self._mounts:
            is_v2 = mount.controllers is None
            if mount.controllers is not None and controller not in mount.controllers:
                continue
            path = self._paths.get("" if is_v2 else controller)
            if path is None:
                continue
            folder = _below(mount, path)
            while True:
                yield folder, is_v2
                if folder == mount.point:
                    break
                folder = folder.parent


def _below(mount: _Mount, path: str) -> Path:
    """Where a group lies; one that lies outside of what can be seen is at least below the mount's own."""
    group, within = PurePosixPath(path), PurePosixPath(mount.within)
    if ".." in group.parts:
        return mount.point
    inner = group.relative_to(within) if group.is_relative_to(within) else group.relative_to("/")
    folder = mount.point / inner
    return folder if folder.is_dir() else mount.point


def _paths(text: str) -> Iterator[tuple[str, str]]:
    """Controllers with the path of their group, from `/proc/self/cgroup`; v2's is under the empty name."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/") and (controllers or number == "0"):
            yield from ((controller, path) for controller in controllers.split(","))


def _mounts(text: str, root: Path) -> Iterator[_Mount]:
    """Mounts of control groups, from `/proc/self/mountinfo`."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(more) < 3 or more[0] not in ("cgroup", "cgroup2"):
            continue
        within, point = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), word) for word in fields[3:5])
        controllers = None if more[0] == "cgroup2" else frozenset(more[2].split(","))
        yield _Mount(point=root / point.lstrip("/"), within=within, controllers=controllers)


def _quota(folder: Path, *, is_v2: bool) -> float | None:
    """CPU seconds a second that a group may use."""
    names = ("cpu.max",) if is_v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    words = " ".join(_text(folder / name) for name in names).split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1]) or None


def _ranges(text: str) -> Iterator[int]:
    """The numbers in `0-3,8`."""
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), int(last or first) + 1)


def _table(path: Path) -> dict[str, int]:
    """Numbers by name, one a line."""
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(path: Path) -> int | None:
    """The number in a file; `None` for `max`, and where there is none."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
