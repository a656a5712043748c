"""`python -m overwatch.sdk.exporter.dipping`: reads NVIDIA GPUs' utilisation 25 times a second.

Each second it writes a line of JSON: per UUID the dips of the newest minute. It ends with its standard input.

Rules: each GPU is read by a thread of its own, since any call may hang; a GPU that was not read for a second
is not in the line. A driver that was loaded anew ends the process. Must not know who started it.
"""

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from overwatch.sdk.exporter.dips import Dips
from overwatch.sdk.exporter.gpu_sources import Unread
from overwatch.sdk.exporter.nvml import DRIVER_FILES, FORGOTTEN, UNKNOWN_TO_IT, load

INTERVAL_S: Final = 0.04
LINE_S: Final = 1.0
"""From one line to the next; a reading counts for so long."""


class Watched:
    """One GPU, read by a thread of its own."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._dips = Dips()
        self._lock = threading.Lock()
        self._newest_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def numbers(self) -> dict[str, float]:
        """Its dips; empty while it is not read."""
        with self._lock:
            is_read = time.monotonic() - self._newest_s <= LINE_S
            return self._dips.numbers() if is_read else {}

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                utilization = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
            except Exception as error:  # noqa: BLE001 the border: a driver may do anything
                code = getattr(error, "value", None)
                if code in FORGOTTEN:
                    os._exit(1)
                if code in UNKNOWN_TO_IT:
                    return
                due += LINE_S
            else:
                with self._lock:
                    self._newest_s = time.monotonic()
                    self._dips.add(self._newest_s, utilization)
            due = max(due + INTERVAL_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


def gpus(nvml: ModuleType) -> Iterator[tuple[str, Any]]:
    """UUID and handle of each GPU that gives them."""
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(Exception):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            yield uuid if isinstance(uuid, str) else uuid.decode(), handle


def main() -> int:
    """Read until standard input ends; the exit code, 1 where there is no driver."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    nvml = load(DRIVER_FILES, Unread())
    if nvml is None:
        return 1
    watched = {uuid: Watched(nvml, handle) for uuid, handle in gpus(nvml)}
    while not select.select([sys.stdin], [], [], LINE_S)[0]:
        found = {uuid: one.numbers() for uuid, one in watched.items()}
        print(json.dumps({uuid: numbers for uuid, numbers in found.items() if numbers}), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    os._exit(main())
