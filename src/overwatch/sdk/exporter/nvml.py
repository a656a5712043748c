"""GPUs through NVML, when there is a driver.

Rules: what is not there is absent, not zero; what is there and cannot be read has its reason, and takes no
other reading and no other GPU with it, whatever a call raises. Any call may hang: each GPU is read by a
thread of its own. Must not know how readings are sent.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from overwatch.catalog import machine
from overwatch.extras import GPU
from overwatch.platform import PROC
from overwatch.sdk.exporter import dips
from overwatch.sdk.exporter.gpu_sources import Codes, Found, Look, Rates, Unread, Xid, as_text
from overwatch.sdk.exporter.lanes import Gpu

MHZ: Final = 1e6
KIB: Final = 1024.0
ALL_LINKS: Final = 0xFFFFFFFF
MOST_XIDS: Final = 64
"""Most events taken at one look."""
LIBRARY: Final = "libnvidia-ml.so.1"
DRIVER_FILES: Final = (PROC / "driver/nvidia/version", Path("/dev/nvidiactl"))
"""Either is there where an NVIDIA driver is loaded."""
ALL_GPUS: Final = "NVIDIA GPUs"
_NOT_LOADED: Final = 9
_NO_LIBRARY: Final = 12
_MISMATCH: Final = 18
_LIBRARY_FIX: Final = (
    f"put the driver's own {LIBRARY}, of this machine's word size, on the library path; "
    "a container needs NVIDIA_DRIVER_CAPABILITIES=utility"
)
_MISSING: Final = "cannot open shared object file"
FORGOTTEN: Final = frozenset({1, _NOT_LOADED, _MISMATCH})
"""Errors after which the driver must be opened anew: the first, it is not initialised."""
_LOST: Final = 15
"""The GPU fell off the bus."""
UNKNOWN_TO_IT: Final = frozenset({3, 6, 13})
"""Not supported, not found, no such function: the GPU has no such reading, which is no trouble."""
_CODES: Final = Codes(
    of=lambda error: getattr(error, "value", None), gone=FORGOTTEN | {_LOST}, unknown=UNKNOWN_TO_IT
)

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


def load(files: Iterable[Path], unread: Unread) -> ModuleType | None:
    """NVIDIA's bindings with the library opened; `None` where there is no driver, or it cannot be read."""
    try:
        import pynvml
    except ImportError:
        if any(path.exists() for path in files) or _library_error() is None:
            unread.lacks(GPU)
        else:
            unread.missing("no NVIDIA driver is loaded here")
        return None
    except Exception as error:  # noqa: BLE001 the border: a package of others
        unread.note(ALL_GPUS, error, GPU.install)
        return None
    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 the border: a driver may do anything
        _refused(error, files, unread)
        return None
    module: ModuleType = pynvml
    return module


def _refused(error: Exception, files: Iterable[Path], unread: Unread) -> None:
    """Distinguish a driver that is not there from one that cannot be read."""
    is_there = any(path.exists() for path in files)
    match getattr(error, "value", None):
        case code if code == _NO_LIBRARY:
            why = _library_error() or str(error)
            if not is_there and why.startswith(LIBRARY) and _MISSING in why:
                unread.missing("no NVIDIA driver is installed here")
            else:
                unread.note(ALL_GPUS, why, _LIBRARY_FIX)
        case code if code == _NOT_LOADED and not is_there:
            unread.missing("no NVIDIA driver is loaded here")
        case code if code == _MISMATCH:
            fix = "restart the machine, or load the driver's kernel module anew"
            unread.note(ALL_GPUS, "the driver and its library are of different versions", fix)
        case _:
            unread.note(ALL_GPUS, error, "look whether nvidia-smi works for this user")


def _library_error() -> str | None:
    """Why the driver's library cannot be opened: NVIDIA's bindings keep that to themselves."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return str(error)
    return None


class Nvml:
    """The driver of this machine, and `pid`'s share of its GPUs."""

    def __init__(self, pid: int, files: Iterable[Path] = DRIVER_FILES, unread: Unread | None = None) -> None:
        self._pid, self._files = pid, tuple(files)
        self._nvml: ModuleType | None = None
        self._events: Any = None
        self._handles: dict[str, Any] = {}
        self._uuids: dict[int | None, str] = {}
        """By the handle's address: a GPU that fell off the bus no longer gives its name."""
        self.unread = unread or Unread()

    def open(self) -> tuple[Gpu, ...]:
        """Find the GPUs anew."""
        self._close()
        nvml = self._nvml = load(self._files, self.unread)
        if nvml is None:
            return ()
        count = self.unread.read("the number of GPUs", nvml.nvmlDeviceGetCount, 0)
        found = [gpu for index in range(count) if (gpu := self._gpu(nvml, index)) is not None]
        self._uuids = {_address(handle): uuid for uuid, handle in self._handles.items()}
        self._listen(nvml)
        return tuple(found)

    def _close(self) -> None:
        nvml, self._nvml, self._events, self._handles = self._nvml, None, None, {}
        if nvml is None:
            return
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()

    def _gpu(self, nvml: ModuleType, index: int) -> Gpu | None:
        """One GPU; `None` where it does not give its UUID."""
        unread = self.unread
        handle = unread.read(f"GPU {index}", partial(nvml.nvmlDeviceGetHandleByIndex, index), None)
        if handle is None:
            return None
        uuid = unread.text(f"GPU {index}", partial(nvml.nvmlDeviceGetUUID, handle))
        if not uuid:
            return None
        model = unread.text(f"the name of GPU {index}", partial(nvml.nvmlDeviceGetName, handle))
        pci = unread.text(f"the bus of GPU {index}", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
        self._handles[uuid] = handle
        split = _is_split(nvml, handle)
        parts = _parts(nvml, handle) if split else {}
        self._handles.update(parts)
        return Gpu(uuid=uuid, model=model, pci=pci, index=index, partitioned=split, parts=tuple(parts))

    def _listen(self, nvml: ModuleType) -> None:
        """Wait for errors of GPUs; those that have no such events are read without."""
        try:
            self._events = nvml.nvmlEventSetCreate()
        except Exception as error:  # noqa: BLE001 the border: a driver may do anything
            self._note_unless_unknown("Xid errors", error)
            return
        for uuid, handle in self._handles.items():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except Exception as error:  # noqa: BLE001 the border: a driver may do anything
                self._note_unless_unknown(f"Xid errors of {uuid}", error)

    def _note_unless_unknown(self, what: str, error: Exception) -> None:
        if getattr(error, "value", None) not in UNKNOWN_TO_IT:
            self.unread.note(what, error)

    def questions(self, uuids: frozenset[str]) -> tuple[Look, ...]:
        """One look a GPU."""
        nvml = self._nvml
        if nvml is None:
            return ()
        return tuple(self._look(nvml, uuid) for uuid in sorted(uuids & self._handles.keys()))

    def _look(self, nvml: ModuleType, uuid: str) -> Look:
        handle = self._handles[uuid]
        return Look(
            name=uuid,
            codes=_CODES,
            unread=self.unread,
            own_memory=partial(_own_memory, nvml, handle, self._pid),
            readings={
                machine.UTILIZATION.name: partial(_utilization, nvml, handle, uuid),
                **{name: partial(ask, nvml, handle) for name, ask in _QUESTIONS.items()},
                "NVLink": partial(_links, nvml, handle, Rates()),
            },
            throttle=lambda: throttle_words(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        )

    def xids(self) -> tuple[Xid, ...]:
        """Errors that the driver has reported since the last look."""
        nvml, found = self._nvml, []
        if nvml is None or self._events is None:
            return ()
        for _ in range(MOST_XIDS):
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
                uuid, code = self._uuids.get(_address(event.device)), int(event.eventData)
            except Exception:  # noqa: BLE001 the border: mostly that there is none
                break
            if uuid is not None:
                found.append(Xid(uuid=uuid, code=code))
        return tuple(found)


def _links(nvml: ModuleType, gpu: Any, rates: Rates) -> dict[str, float]:
    """NVLink counts KiB since it began; what moved since the last look is a rate."""
    asked = {
        machine.NVLINK_TRANSMIT.name: nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        machine.NVLINK_RECEIVE.name: nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    }
    fields = nvml.nvmlDeviceGetFieldValues(gpu, [(code, ALL_LINKS) for code in asked.values()])
    found = zip(asked, fields, strict=True)
    return rates.of(
        {name: field.value.ullVal * KIB for name, field in found if field.nvmlReturn == nvml.NVML_SUCCESS}
    )


def _own_memory(nvml: ModuleType, gpu: Any, pid: int) -> float | None:
    found = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    held = [process.usedGpuMemory for process in found if process.pid == pid]
    return float(sum(held)) if held and None not in held else None


def _utilization(nvml: ModuleType, gpu: Any, uuid: str) -> dict[str, float]:
    """With its dips, which are read all the time once they are asked for."""
    value = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100
    return {machine.UTILIZATION.name: value, **dips.SHARED.of(uuid)}


def _memory(nvml: ModuleType, gpu: Any) -> dict[str, float]:
    info = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return {machine.MEMORY_TOTAL.name: float(info.total), machine.MEMORY_USED.name: float(info.used)}


_Question: TypeAlias = Callable[[ModuleType, Any], Found]
_QUESTIONS: Final[dict[str, _Question]] = {
    machine.TEMPERATURE.name: lambda nvml, gpu: float(
        nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
    ),
    machine.POWER.name: lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    machine.POWER_LIMIT.name: lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    machine.CLOCK.name: lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * MHZ,
    machine.CLOCK_MAX.name: lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * MHZ,
    machine.ECC_UNCORRECTED.name: lambda nvml, gpu: float(
        nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    ),
    machine.PCIE_RECEIVE.name: lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES) * KIB
    ),
    machine.PCIE_TRANSMIT.name: lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) * KIB
    ),
    machine.MEMORY_USED.name: _memory,
}


def _is_split(nvml: ModuleType, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except Exception:  # noqa: BLE001 the border: most GPUs have no such mode
        return False


def _parts(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    """MIG devices of one GPU, by UUID."""
    found: dict[str, Any] = {}
    try:
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except Exception:  # noqa: BLE001 the border: then it has none
        return found
    for index in range(most):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found[as_text(partial(nvml.nvmlDeviceGetUUID, part))] = part
        except Exception:  # noqa: BLE001, S112 the border: a place without a part
            continue
    return found


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
