"""Readings of machines, and what is kept of them beyond the newest: peaks, rest, faults, who reads them.

Rules: producer's time only; a hole between readings is not filled with a guess; a host is known by its node,
a lane by its name; what a driver reports of a lane stays until it reports the lane back, or the run starts
anew. Must not know how any of it is judged.
"""

from typing import Final

import msgspec

from overwatch.catalog.processes import Busy, read_fields
from overwatch.catalog.xids import XIDS, Kind
from overwatch.events import LogLine
from overwatch.state.arrays import Ring

BUCKET_NS = 5_000_000_000
PEAKS = 64
"""Buckets remembered: somewhat over five minutes."""
LONGEST_GAP_NS = 30_000_000_000
"""Between two readings of utilisation; over a longer one it is not known what the lane did."""


class Peaks(msgspec.Struct, kw_only=True):
    """The highest reading of each five seconds; what goes up and down with each update has level peaks."""

    at: Ring[int] = msgspec.field(default_factory=lambda: Ring(PEAKS))
    """When each of them was read."""
    highest: Ring[float] = msgspec.field(default_factory=lambda: Ring(PEAKS))
    before: float = 0.0
    """The highest of all before these."""

    def note(self, at: int, value: float) -> None:
        """Fold one reading; one that comes late counts in the newest bucket."""
        times, peaks = self.at.items, self.highest.items
        if not times or at // BUCKET_NS > times[-1] // BUCKET_NS:
            if len(peaks) == PEAKS:
                self.before = max(self.before, peaks[0])
            self.at.push(at)
            self.highest.push(value)
        elif value > peaks[-1]:
            times[-1], peaks[-1] = max(times[-1], at), value


class Rested(msgspec.Struct, kw_only=True):
    """How long a lane rested and worked, seconds, as far as it was read."""

    idle_s: float = 0.0
    busy_s: float = 0.0
    at: int = 0
    """Of the newest reading."""

    def note(self, at: int, utilization: float) -> None:
        """Fold one reading: the share of the time since the one before in which something ran."""
        past_ns = at - self.at if self.at else 0
        if 0 < past_ns <= LONGEST_GAP_NS:
            busy = min(1.0, max(0.0, utilization))
            self.busy_s += busy * past_ns / 1e9
            self.idle_s += (1.0 - busy) * past_ns / 1e9
        self.at = max(self.at, at)


READINGS = 10
HOSTS: Final = 1024
_CPU_OF: Final = "process_cpu "
_RAM_OF: Final = "process_ram "
"""A process's readings are named so, then by its pid and name."""
GPU_SUBSYSTEM: Final = "gpu"
"""Of the lines that a sampler logs about GPUs."""


class Gauge(msgspec.Struct, kw_only=True):
    """One machine reading."""

    value: float
    at: int
    stamp: int
    history: Ring[float | None] = msgspec.field(default_factory=lambda: Ring(READINGS))
    times: Ring[int] = msgspec.field(default_factory=lambda: Ring(READINGS))
    """Producer's time of each reading in `history`."""


class Throttle(msgspec.Struct, kw_only=True):
    """Why a lane runs slower than it could, as last reported; no reason means that it does not."""

    reasons: list[str]
    at: int
    stamp: int


class HostReadings(msgspec.Struct, kw_only=True):
    """One machine of the run, by what its sampler reads."""

    gauges: dict[str, Gauge] = {}
    """By short name."""
    peaks: dict[str, Peaks] = {}
    """Of what fills up, by short name."""


class LaneHealth(msgspec.Struct, kw_only=True):
    """What is known of a lane beside its readings."""

    read_by: str = ""
    """Key of the source that last read it."""
    lost_at: int = 0
    """Producer's time at which the driver reported it lost; 0 while it did not."""
    lost: str = ""
    """The driver's words for it."""
    memory_at: int = 0
    """Producer's time of the newest memory error that could not be corrected; 0 while there was none."""
    memory: str = ""
    """The driver's words for it; empty where only the counter rose."""
    errors: float | None = None
    """Such errors by the driver's counter, as it was when the run first read it."""
    newest_errors: float = 0.0
    fault_at: int = 0
    """Producer's time of the newest other fault of the device."""
    fault: str = ""

    def count_errors(self, total: float, at: int) -> None:
        """Fold the driver's counter of memory errors; one that fell began again."""
        first = total if self.errors is None else min(self.errors, total)
        if total > max(first, self.newest_errors):
            self.memory_at = at
        self.errors, self.newest_errors = first, total

    def note(self, line: LogLine) -> None:
        """Fold a line that a sampler logged about this lane."""
        match line.fields.get("state"):
            case "lost":
                self.lost_at, self.lost = line.at, self.lost or line.message
            case "back":
                self.lost_at, self.lost = 0, ""
            case _:
                self._note_xid(line)

    def _note_xid(self, line: LogLine) -> None:
        code = line.fields.get("xid", "")
        xid = XIDS.get(int(code)) if code.isdecimal() and len(code) < 10 else None
        match None if xid is None else xid.kind:
            case Kind.LOST:
                self.lost_at, self.lost = line.at, line.message
            case Kind.MEMORY:
                self.memory_at, self.memory = line.at, line.message
            case Kind.DEVICE:
                self.fault_at, self.fault = line.at, line.message
            case Kind.PROGRAM | None:
                pass

    def begin(self) -> None:
        """The run starts anew: only what is reported from here on is held against the lane."""
        self.lost_at = self.memory_at = self.fault_at = 0
        self.lost = self.memory = self.fault = ""
        self.errors, self.newest_errors = None, 0.0


def note_processes(readings: dict[str, Gauge], event: LogLine, stamp: int) -> None:
    """The busiest processes of the run's host in the place of those before; an older line changes nothing."""
    known = [name for name in readings if name.startswith((_CPU_OF, _RAM_OF))]
    if any(readings[name].at > event.at for name in known):
        return
    for name in known:
        del readings[name]
    for one in read_fields(event.fields):
        of = f"{one.pid} {one.name}"
        readings[_CPU_OF + of] = Gauge(value=one.cpu, at=event.at, stamp=stamp)
        readings[_RAM_OF + of] = Gauge(value=one.ram_bytes, at=event.at, stamp=stamp)


def processes(readings: dict[str, Gauge]) -> list[tuple[Busy, Gauge]]:
    """Those processes, the busiest first, each with its reading."""
    found = []
    for name, gauge in readings.items():
        if name.startswith(_CPU_OF):
            pid, _, called = name.removeprefix(_CPU_OF).partition(" ")
            ram = readings[_RAM_OF + name.removeprefix(_CPU_OF)].value
            found.append((Busy(int(pid), called, gauge.value, ram), gauge))
    return sorted(found, key=lambda pair: (-pair[0].cpu, pair[0].pid))
