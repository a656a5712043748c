"""GPUs through NVML, when there is a driver.

Rules: no library, no driver or no device means nothing, not zeros; what one GPU cannot tell is left out of
its reading. Any call may hang: each GPU is read by a thread of its own. Must not know how readings are sent.
"""

import ctypes
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final, TypeAlias

from overwatch.catalog.machine import (
    CLOCK,
    CLOCK_MAX,
    ECC_UNCORRECTED,
    MEMORY_TOTAL,
    MEMORY_USED,
    NVLINK_RECEIVE,
    NVLINK_TRANSMIT,
    PCIE_RECEIVE,
    PCIE_TRANSMIT,
    POWER,
    POWER_LIMIT,
    PROCESS_MEMORY,
    TEMPERATURE,
    UTILIZATION,
)
from overwatch.sdk.exporter.lanes import Gpu
from overwatch.sdk.exporter.readings import Reading, Xid

MHZ: Final = 1e6
KIB: Final = 1024.0
ALL_LINKS: Final = 0xFFFFFFFF
MOST_XIDS: Final = 64
"""Most events taken at one look."""

_WORDS: Final = {
    0x4: "power",
    0x8: "slowdown",
    0x10: "sync-boost",
    0x20: "thermal",
    0x40: "thermal-hw",
    0x80: "power-brake",
}
"""Flags that mean a slower clock than asked for; idling and set clocks are nobody's fault."""


def throttle_words(flags: int) -> str:
    """NVML's flags as words: `thermal,power`; `none` where no flag matters."""
    return ",".join(word for bit, word in _WORDS.items() if flags & bit) or "none"


class Nvml:
    """The driver of this machine, and `pid`'s share of its GPUs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._nvml: ModuleType | None = None
        self._events: Any = None
        self._handles: dict[str, Any] = {}
        self._uuids: dict[int | None, str] = {}
        """By the handle's address: a GPU that fell off the bus no longer says its name."""

    def open(self) -> tuple[Gpu, ...]:
        """Find the GPUs anew."""
        self._close()
        try:
            import pynvml
        except ImportError:
            return ()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return ()
        self._nvml = pynvml
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            return ()
        found = [gpu for index in range(count) if (gpu := self._gpu(pynvml, index)) is not None]
        self._uuids = {_address(handle): uuid for uuid, handle in self._handles.items()}
        self._listen(pynvml)
        return tuple(found)

    def _close(self) -> None:
        nvml, self._nvml, self._events, self._handles = self._nvml, None, None, {}
        if nvml is None:
            return
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            return

    def _gpu(self, nvml: ModuleType, index: int) -> Gpu | None:
        """One GPU; `None` where it does not say who it is."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, model = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
            pci = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
        except nvml.NVMLError:
            return None
        self._handles[uuid] = handle
        split = _is_split(nvml, handle)
        parts = _parts(nvml, handle) if split else {}
        self._handles.update(parts)
        return Gpu(uuid=uuid, model=model, pci=pci, index=index, partitioned=split, parts=tuple(parts))

    def _listen(self, nvml: ModuleType) -> None:
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        for handle in self._handles.values():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except nvml.NVMLError:
                continue

    def questions(self, uuids: frozenset[str]) -> tuple["Look", ...]:
        """One look a GPU."""
        if self._nvml is None:
            return ()
        known = sorted(uuids & self._handles.keys())
        return tuple(Look(self._nvml, uuid, self._handles[uuid], self._pid) for uuid in known)

    def xids(self) -> tuple[Xid, ...]:
        """Errors that the driver has told since the last look."""
        nvml, found = self._nvml, []
        if nvml is None or self._events is None:
            return ()
        for _ in range(MOST_XIDS):
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
            except nvml.NVMLError:
                break
            uuid = self._uuids.get(_address(event.device))
            if uuid is not None:
                found.append(Xid(uuid=uuid, code=int(event.eventData)))
        return tuple(found)


class Look:
    """Reads one GPU."""

    def __init__(self, nvml: ModuleType, uuid: str, handle: Any, pid: int) -> None:
        self._nvml, self._uuid, self._handle, self._pid = nvml, uuid, handle, pid
        self._moved: dict[str, tuple[float, float]] = {}
        self._gone = frozenset(
            {
                nvml.NVML_ERROR_GPU_IS_LOST,
                nvml.NVML_ERROR_UNINITIALIZED,
                nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            }
        )

    @property
    def name(self) -> str:
        """The GPU's UUID."""
        return self._uuid

    def ask(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Everything where this GPU is among `uuids`, else what the trainer's process holds of it."""
        nvml, numbers, throttle = self._nvml, dict[str, float](), None
        try:
            self._note(numbers, PROCESS_MEMORY.name, self._own_memory)
            if self._uuid in uuids:
                for name, question in _QUESTIONS.items():
                    self._note(numbers, name, partial(question, nvml, self._handle))
                self._note(numbers, MEMORY_USED.name, lambda: self._memory(numbers))
                self._links(numbers)
                throttle = self._throttle()
        except nvml.NVMLError:
            return {self._uuid: Reading(lost=True)}
        return {self._uuid: Reading(numbers=numbers, throttle=throttle)}

    def _note(self, numbers: dict[str, float], name: str, ask: Callable[[], float | None]) -> None:
        """Ask for one number; raises `NVMLError` when the GPU or its driver is gone."""
        try:
            value = ask()
        except self._nvml.NVMLError as error:
            if error.value in self._gone:
                raise
            return
        if value is not None and math.isfinite(value):
            numbers[name] = value

    def _memory(self, numbers: dict[str, float]) -> float:
        info = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        numbers[MEMORY_TOTAL.name] = float(info.total)
        return float(info.used)

    def _own_memory(self) -> float | None:
        found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        held = [process.usedGpuMemory for process in found if process.pid == self._pid]
        return float(sum(held)) if held and None not in held else None

    def _throttle(self) -> str | None:
        try:
            return throttle_words(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        except self._nvml.NVMLError as error:
            if error.value in self._gone:
                raise
            return None

    def _links(self, numbers: dict[str, float]) -> None:
        """NVLink counts KiB since it began; what moved since the last look is a rate."""
        nvml = self._nvml
        asked = {
            NVLINK_TRANSMIT.name: nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            NVLINK_RECEIVE.name: nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        }
        try:
            fields = nvml.nvmlDeviceGetFieldValues(
                self._handle, [(code, ALL_LINKS) for code in asked.values()]
            )
        except nvml.NVMLError as error:
            if error.value in self._gone:
                raise
            return
        now = time.monotonic()
        for name, field in zip(asked, fields, strict=True):
            if field.nvmlReturn != nvml.NVML_SUCCESS:
                continue
            total, before = field.value.ullVal * KIB, self._moved.get(name)
            self._moved[name] = (now, total)
            if before is not None and now > before[0] and total >= before[1]:
                numbers[name] = (total - before[1]) / (now - before[0])


_Question: TypeAlias = Callable[[ModuleType, Any], float]
_QUESTIONS: Final[dict[str, _Question]] = {
    UTILIZATION.name: lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    TEMPERATURE.name: lambda nvml, gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    POWER.name: lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    POWER_LIMIT.name: lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    CLOCK.name: lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * MHZ,
    CLOCK_MAX.name: lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * MHZ,
    ECC_UNCORRECTED.name: lambda nvml, gpu: float(
        nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    ),
    PCIE_RECEIVE.name: lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES) * KIB
    ),
    PCIE_TRANSMIT.name: lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) * KIB
    ),
}


def _is_split(nvml: ModuleType, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


def _parts(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    """MIG devices of one GPU, by UUID."""
    found: dict[str, Any] = {}
    try:
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return found
    for index in range(most):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found[_text(nvml.nvmlDeviceGetUUID(part))] = part
        except nvml.NVMLError:
            continue
    return found


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(word: str | bytes) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else word
