"""Readings of this host, of the disk that a run writes to, and of the busiest processes.

Rules: rates are since the last reading, what cannot be read is left out; in a container the host is what its
control group may use, not the node. A process is named, never shown with its command line, which may hold
secrets. Must not know how readings are sent.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import psutil

from overwatch.catalog import machine
from overwatch.catalog.processes import BUSIEST, Busy
from overwatch.cgroup import ControlGroup
from overwatch.platform import working_folder
from overwatch.sdk.exporter.gpu_sources import Rates, Unread

log: Final = logging.getLogger("overwatch.exporter")

MOST: Final = 4096
"""Processes that are looked at; of a host with more, the others are not among the busiest."""
_LEAST: Final = 0.005
"""Share of a core below which a process is not busy."""


class Host:
    """Readings of this host."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Control groups are looked for below `root`."""
        with contextlib.suppress(OSError, RuntimeError, psutil.Error):
            psutil.cpu_percent(percpu=True)
        self._unread = Unread()
        self._group = ControlGroup(root)
        self._rates = Rates()

    def read(self) -> dict[str, float]:
        """Values by catalogue name; what cannot be read is left out, logged once, and costs no other part."""
        values: dict[str, float] = {}
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "memory": self._memory, "CPU": self._cpu, "disks": self._disks, "network": self._network,
        }  # fmt: skip
        for name, part in parts.items():
            try:
                values.update(part())
            except (OSError, RuntimeError, psutil.Error) as error:
                self._unread.note(f"the host's {name}", error)
        for note in self._unread.take():
            log.warning("%s", note.text)
        return values

    def _memory(self) -> dict[str, float]:
        memory, group = psutil.virtual_memory(), self._group.memory()
        if group is None or group.limit >= memory.total:
            used = float(memory.total - memory.available)
            return {machine.RAM_TOTAL.name: float(memory.total), machine.RAM_USED.name: used}
        in_use = {} if group.used is None else {machine.RAM_USED.name: float(group.used)}
        return {machine.RAM_TOTAL.name: float(group.limit), **in_use}

    def _cpu(self) -> dict[str, float]:
        """Of the CPUs that may be used; of a quota, where it is less than they are."""
        usage, allowed = psutil.cpu_percent(percpu=True), self._group.cpus()
        cores = [busy for cpu, busy in enumerate(usage) if allowed is None or cpu in allowed] or usage
        if not cores:
            return {}
        values = {machine.CPU_BUSIEST.name: min(max(cores) / 100, 1.0)}
        quota = self._group.cpu()
        if quota is None or quota.cores >= len(cores):
            return {**values, machine.CPU.name: min(sum(cores) / len(cores) / 100, 1.0)}
        used = {} if quota.used_s is None else self._rates.of({machine.CPU.name: quota.used_s})
        return {**values, **{name: min(rate / quota.cores, 1.0) for name, rate in used.items()}}

    def _disks(self) -> dict[str, float]:
        total = psutil.disk_io_counters()
        if total is None:
            return {}
        return self._rates.of(
            {machine.DISK_READ.name: total.read_bytes, machine.DISK_WRITE.name: total.write_bytes}
        )

    def _network(self) -> dict[str, float]:
        cards = psutil.net_io_counters(pernic=True)
        moved = sum(card.bytes_sent + card.bytes_recv for name, card in cards.items() if name != "lo")
        return self._rates.of({machine.NETWORK.name: moved}) if cards else {}


class Disk:
    """How full the disk of one run of the process `pid` is: of its newest checkpoint, else of its folder.

    A checkpoint at an address changes nothing. A disk may hang: a thread of its own asks.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder: Path | None = None

    def saved(self, path: str) -> None:
        """The run saved a checkpoint here."""
        if "://" not in path and path:
            self._folder = Path(path).parent

    def read(self) -> dict[str, float]:
        """Values by catalogue name: what this user may have of the disk, and what is used of that."""
        folder = working_folder(self._pid)
        if self._folder is not None:
            folder = folder / self._folder
        there = next(place for place in (folder, *folder.parents) if place.exists())
        usage = psutil.disk_usage(str(there))
        return {
            machine.DISK_USED.name: float(usage.used),
            machine.DISK_TOTAL.name: float(usage.used + usage.free),
        }


class Processes:
    """How much of a core each process took since the last look."""

    def __init__(
        self,
        running: Callable[[], Iterable[psutil.Process]] = psutil.process_iter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._running, self._clock = running, clock
        self._before: dict[int, float] = {}
        self._at: float | None = None

    def read(self) -> tuple[Busy, ...]:
        """The busiest, the worst first; none on the first look."""
        now, before = self._clock(), self._before
        elapsed = None if self._at is None else now - self._at
        used: dict[int, float] = {}
        shares: list[tuple[float, psutil.Process]] = []
        for process, _ in zip(self._running(), range(MOST), strict=False):
            try:
                times = process.cpu_times()
            except (psutil.Error, OSError):
                continue
            used[process.pid] = times.user + times.system
            if elapsed and process.pid in before:
                shares.append(((used[process.pid] - before[process.pid]) / elapsed, process))
        self._before, self._at = used, now
        shares.sort(key=lambda pair: -pair[0])
        return tuple(filter(None, (_busy(*pair) for pair in shares[:BUSIEST] if pair[0] >= _LEAST)))


def _busy(cpu: float, process: psutil.Process) -> Busy | None:
    try:
        return Busy(pid=process.pid, name=process.name(), cpu=cpu, ram_bytes=float(process.memory_info().rss))
    except (psutil.Error, OSError):
        return None
