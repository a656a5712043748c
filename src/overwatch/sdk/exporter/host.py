"""Readings of this host through psutil; rates are since the last reading, what cannot be read is left out."""

import time

import psutil

from overwatch.catalog.machine import CPU, CPU_BUSIEST, DISK_READ, DISK_WRITE, NETWORK, RAM_TOTAL, RAM_USED


class Host:
    """Readings of this host."""

    def __init__(self) -> None:
        psutil.cpu_percent()
        psutil.cpu_percent(percpu=True)
        self._last: dict[str, tuple[float, float]] = {}

    def read(self) -> dict[str, float]:
        """Values by catalogue name; what cannot be read is left out."""
        values: dict[str, float] = {}
        try:
            memory = psutil.virtual_memory()
            values[CPU.name] = min(psutil.cpu_percent() / 100, 1.0)
            values[CPU_BUSIEST.name] = min(max(psutil.cpu_percent(percpu=True), default=0.0) / 100, 1.0)
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
