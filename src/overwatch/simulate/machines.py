"""The machines of a simulated run: what each lane and the host read, once a second.

Must not know envs or the policy.
"""

from typing import Final

import numpy as np

from overwatch.catalog import Scope
from overwatch.events import Column, Event, LogLine, Measured, Severity, scalars
from overwatch.simulate.faults import Conditions
from overwatch.simulate.fleet import THROTTLED_CLOCK
from overwatch.simulate.settings import Dice, Floats, Settings, full_name

GIB: Final = 1 << 30
MEMORY: Final = 80 * GIB
RAM: Final = 256.0 * GIB
RAM_SHARE: Final = 121 / 256
DISK: Final = 2048.0 * GIB
CLOCK_HZ: Final = 1_980_000_000
POWER_LIMIT_W: Final = 700.0
LOADER: Final = 8
QUEUE: Final = 16
"""Batches of experience that may wait for the learner."""
CAPPED_CLOCK: Final = 0.65
"""Share of its clock that a lane has left whose power is capped."""


class Machines:
    """All lanes and their host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dice = Dice(settings.seed, 4)
        self._is_off = False

    def advance(self, at: int, now: Conditions) -> list[Event]:
        """The readings of one second."""
        return [*self._errors(at, now), self._lanes(at, now), self._host(at, now), self._tower(at)]

    def _errors(self, at: int, now: Conditions) -> list[Event]:
        """What the driver reports, once."""
        if now.gpu_state != "off-bus" or self._is_off:
            return []
        self._is_off, lane = True, self._settings.lanes[-1]
        message = f"Xid 79 on {lane}: GPU has fallen off the bus"
        fields = {"lane": lane, "xid": "79"}
        return [LogLine(at=at, severity=Severity.CRITICAL, subsystem="gpu", message=message, fields=fields)]

    def _lanes(self, at: int, now: Conditions) -> Measured:
        gpus = self._settings.gpus
        noise = self._dice.noise(4 * gpus).reshape(4, gpus)
        last = (np.arange(gpus) == gpus - 1).astype(np.float64)
        first = (np.arange(gpus) == 0).astype(np.float64)
        heat, capped = last * now.heat, last * now.capped
        busy = self._busy(last, now)
        clock = CLOCK_HZ * (1 - (1 - THROTTLED_CLOCK) * heat - (1 - CAPPED_CLOCK) * capped)
        drawn = 0.12 + (0.13 if now.launching else 0.6) * busy - 0.25 * heat - 0.2 * capped
        free = (0.28 - 0.01) * now.leak * first
        readings: dict[str, Floats] = {
            "utilization": np.clip(busy + 0.01 * noise[0], 0, 1),
            "memory_used_bytes": MEMORY * (0.72 + 0.002 * noise[1] * (1 - now.leak * first) + free),
            "memory_total_bytes": np.full(gpus, float(MEMORY)),
            "temperature_c": 45 + 22 * busy + 24 * heat + 0.5 * noise[2],
            "power_w": POWER_LIMIT_W * drawn + 4 * noise[3],
            "power_limit_w": np.full(gpus, POWER_LIMIT_W),
            "clock_hz": clock,
            "clock_max_hz": np.full(gpus, float(CLOCK_HZ)),
        }
        if now.ecc is not None:
            readings["ecc_uncorrected"] = last * now.ecc
        there = gpus - 1 if now.gpu_state else gpus
        values = {
            full_name(short, Scope.GPU): Column.of(column[:there]) for short, column in readings.items()
        }
        values[full_name("throttle", Scope.GPU)] = Column.of_labels(_throttles(heat, capped)[:there])
        keys = {"gpu_id": Column.of_labels(self._settings.lanes[:there])}
        return Measured(at=at, scope=Scope.GPU, keys=keys, values=values)

    def _busy(self, last: Floats, now: Conditions) -> Floats:
        """Utilisation of each lane: those that wait for a slow one rest meanwhile."""
        slow = max(now.heat, min(1.0, now.drag - 1))
        waiting: Floats = 0.94 - 0.34 * slow * (1 - last)
        return waiting * (1 - 0.65 * now.starved) * (1 - now.resting)

    def _host(self, at: int, now: Conditions) -> Measured:
        noise = iter(self._dice.noise(5).tolist())
        depth = (6 + min(1.0, 0.5 * next(noise))) * (1 - now.starved)
        readings = {
            "cpu_utilization": (0.62 + 0.02 * next(noise)) * (1 - 0.5 * now.starved),
            "ram_used_bytes": RAM * (RAM_SHARE + (1 - RAM_SHARE) * now.hoarded),
            "ram_total_bytes": RAM,
            "disk_used_bytes": DISK * now.disk,
            "disk_total_bytes": DISK,
            "disk_read_bytes_per_s": 12e6 * (1 + 0.1 * next(noise)) * (1 + 9 * now.starved),
            "disk_write_bytes_per_s": 48e6 * (1 + 0.1 * next(noise)),
            "network_bytes_per_s": 3e6 * (1 + 0.1 * next(noise)),
            "loader_depth": float(int(depth)),
            "loader_capacity": float(LOADER),
            "cpu_busiest": 1.0 if now.launching else 0.78,
        }
        if now.queue is not None:
            readings |= {"queue_depth": float(int(QUEUE * now.queue)), "queue_capacity": float(QUEUE)}
        values = {full_name(short, Scope.HOST): reading for short, reading in readings.items()}
        return Measured(at=at, scope=Scope.HOST, values=scalars(values))

    def _tower(self, at: int) -> Measured:
        values = scalars({full_name("sdk_dropped", Scope.TOWER): 0.0})
        return Measured(at=at, scope=Scope.TOWER, values=values)


def _throttles(heat: Floats, capped: Floats) -> list[str | None]:
    """What each lane reports that it is held down by."""
    words = zip(heat.tolist(), capped.tolist(), strict=True)
    return ["thermal" if hot > 0.2 else "power" if cap > 0.2 else None for hot, cap in words]
