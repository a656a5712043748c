"""One look a second at this machine: host through psutil, GPUs through NVML.

Rules: what cannot be read is absent, never zero; one process samples for a run on a machine, by a lock file
that the next takes over when its holder goes. Must not know how samples are sent.
"""

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import psutil

from overwatch import discovery
from overwatch.catalog import Scope
from overwatch.catalog.machine import CPU, DISK_READ, DISK_WRITE, NETWORK, RAM_TOTAL, RAM_USED
from overwatch.events import Column, Measured, scalars
from overwatch.sdk.exporter.nvml import Nvml

INTERVAL_S: Final = 1.0


class Sampler:
    """Samples into `say` from a thread of its own."""

    def __init__(self, run_id: str, say: Callable[[Measured], None]) -> None:
        self._say = say
        self._lock = SampleLock(run_id)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="overwatch-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a sample that is being taken is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        host, gpus = Host(), Nvml()
        while not self._stopped.wait(INTERVAL_S):
            if not self._lock.held():
                continue
            self._say_if_any(Scope.HOST, scalars(host.read()), {})
            lanes, readings = gpus.read()
            if lanes:
                values = {name: Column.of(column) for name, column in readings.items()}
                self._say_if_any(Scope.GPU, values, {"gpu_id": Column.of_labels(lanes)})

    def _say_if_any(self, scope: Scope, values: dict[str, Column], keys: dict[str, Column]) -> None:
        if values and not self._stopped.is_set():
            self._say(Measured(at=time.time_ns(), scope=scope, values=values, keys=keys))


class Host:
    """Readings of this host; rates are since the last reading."""

    def __init__(self) -> None:
        psutil.cpu_percent()
        self._last: dict[str, tuple[float, float]] = {}

    def read(self) -> dict[str, float]:
        """Values by catalogue name; what cannot be read is left out."""
        values: dict[str, float] = {}
        try:
            memory = psutil.virtual_memory()
            values[CPU.name] = min(psutil.cpu_percent() / 100, 1.0)
            values[RAM_TOTAL.name] = float(memory.total)
            values[RAM_USED.name] = float(memory.total - memory.available)
            values.update(self._disks())
            values.update(self._network())
        except (OSError, RuntimeError, psutil.Error):
            return values
        return values

    def _disks(self) -> dict[str, float]:
        total = psutil.disk_io_counters()
        if total is None:
            return {}
        return self._rates({DISK_READ.name: total.read_bytes, DISK_WRITE.name: total.write_bytes})

    def _network(self) -> dict[str, float]:
        cards = psutil.net_io_counters(pernic=True)
        moved = sum(card.bytes_sent + card.bytes_recv for name, card in cards.items() if name != "lo")
        return self._rates({NETWORK.name: moved}) if cards else {}

    def _rates(self, totals: dict[str, float]) -> dict[str, float]:
        """Per second since the last reading; none on the first, nor when a counter went back."""
        now = time.monotonic()
        rates = {}
        for name, total in totals.items():
            before = self._last.get(name)
            self._last[name] = (now, total)
            if before is not None and now > before[0] and total >= before[1]:
                rates[name] = (total - before[1]) / (now - before[0])
        return rates


class SampleLock:
    """Whether this process samples for a run on this machine. A lock goes with the process that holds it."""

    def __init__(self, run_id: str) -> None:
        name = hashlib.sha256(run_id.encode()).hexdigest()[:16]
        self._path = discovery.path().with_name(f"sampler-{name}.lock")
        self._file: IO[bytes] | None = None

    def held(self) -> bool:
        """Take the lock if it is free; a machine without a place for locks does without."""
        if self._file is not None:
            return True
        try:
            self._file = _locked(self._path)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _locked(path: Path) -> IO[bytes]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
