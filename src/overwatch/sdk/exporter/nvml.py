"""GPU readings through NVML, when there is a driver.

Rules: no library, no driver or no device means nothing, not zeros; one reading that fails is NaN in its
column, a column without any reading is left out; lanes are numbered as the
trainer sees them (`CUDA_VISIBLE_DEVICES`). Must not know how readings are sent.
"""

import math
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from overwatch.catalog.machine import MEMORY_TOTAL, MEMORY_USED, POWER, TEMPERATURE, UTILIZATION


class Nvml:
    """Readings of all GPUs of this machine."""

    def __init__(self) -> None:
        self._nvml, self._devices = _load()

    def read(self) -> tuple[list[str], dict[str, list[float]]]:
        """Lane ids `cuda:<i>`, and by catalogue name one value a lane."""
        nvml = self._nvml
        if nvml is None or not self._devices:
            return [], {}
        columns: dict[str, list[float]] = {}
        for name, ask in _QUESTIONS.items():
            column = [_ask(nvml, ask, device) for device in self._devices]
            if any(math.isfinite(value) for value in column):
                columns[name] = column
        lanes = [f"cuda:{index}" for index in range(len(self._devices))]
        return (lanes, columns) if columns else ([], {})


_QUESTIONS: Final[dict[str, Callable[[ModuleType, Any], float]]] = {
    UTILIZATION.name: lambda nvml, device: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100,
    MEMORY_USED.name: lambda nvml, device: float(nvml.nvmlDeviceGetMemoryInfo(device).used),
    MEMORY_TOTAL.name: lambda nvml, device: float(nvml.nvmlDeviceGetMemoryInfo(device).total),
    TEMPERATURE.name: lambda nvml, device: float(
        nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    ),
    POWER.name: lambda nvml, device: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
}


def _ask(nvml: ModuleType, ask: Callable[[ModuleType, Any], float], device: object) -> float:
    try:
        return ask(nvml, device)
    except nvml.NVMLError:
        return math.nan


def _load() -> tuple[ModuleType | None, list[Any]]:
    """The library and the handles of its devices; nothing where there is no driver."""
    try:
        import pynvml
    except ImportError:
        return None, []
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        return pynvml, _visible(pynvml, count, os.environ.get("CUDA_VISIBLE_DEVICES"))
    except pynvml.NVMLError:
        return None, []


def _visible(nvml: ModuleType, count: int, chosen: str | None) -> list[Any]:
    """Handles in the order in which CUDA numbers them for the trainer.

    As CUDA does, the list of visible devices ends at the first entry that names none.
    """
    if chosen is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    handles: list[Any] = []
    for entry in (word.strip() for word in chosen.split(",")):
        if entry.isdecimal() and int(entry) < count:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(int(entry)))
        elif entry.startswith("GPU-"):
            handles.append(nvml.nvmlDeviceGetHandleByUUID(entry.encode()))
        else:
            break
    return handles
