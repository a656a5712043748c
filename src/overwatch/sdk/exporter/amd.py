"""AMD's GPUs through `amdsmi`, when there is a driver for computing.

Rules: as of `nvml`; what amdsmi calls `N/A`, or gives as its largest number, is absent. Readings are turned
into the catalogue's units: amdsmi has percent, MHz, W, but uW of a cap. Must not know how they are sent.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from overwatch.catalog import machine
from overwatch.extras import AMD
from overwatch.sdk.exporter.gpu_sources import Codes, Look, Unread, Xid
from overwatch.sdk.exporter.lanes import Gpu, Numbering

DRIVER_FILES: Final = (Path("/dev/kfd"),)
"""Is there where AMD's driver for computing is loaded; one for pictures alone has none."""
ALL_GPUS: Final = "AMD GPUs"
MHZ: Final = 1e6
_LARGEST: Final = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""What stands for no value, by the width of its field."""
_CODES: Final = Codes(
    of=lambda error: getattr(error, "err_code", None),
    gone=frozenset({32, 34, 51}),  # not initialised, driver not loaded, no driver
    unknown=frozenset({2, 3, 20, 31, 40, 52}),  # not supported, not yet, and four words for not found
)
_RIGHTS_FIX: Final = "add the user to the groups render and video; look whether amd-smi works"
_LIBRARY_FIX: Final = "install amd-smi-lib of ROCm, or set ROCM_PATH to where its lib/libamd_smi.so lies"
_SLOWED: Final = {
    "active_ppt_pwr": "power", "active_prochot_thrm": "thermal-hw", "active_socket_thrm": "thermal",
    "active_vr_thrm": "thermal", "active_hbm_thrm": "thermal",
}  # fmt: skip
"""Signs of `amdsmi_get_violation_status` that mean a slower clock than asked for."""


class Amd:
    """The driver of this machine, and `pid`'s share of its GPUs."""

    def __init__(self, pid: int, files: Iterable[Path] = DRIVER_FILES, unread: Unread | None = None) -> None:
        self._pid, self._files = pid, tuple(files)
        self._smi: ModuleType | None = None
        self._handles: dict[str, Any] = {}
        self.unread = unread or Unread()

    def open(self) -> tuple[Gpu, ...]:
        """Find the GPUs anew."""
        self._close()
        is_there = any(path.exists() for path in self._files)
        smi = self._smi = _load(self.unread) if is_there else None
        if smi is None:
            return ()
        handles: Sequence[Any] = self.unread.read(
            "the number of AMD GPUs", smi.amdsmi_get_processor_handles, ()
        )
        return tuple(gpu for place, one in enumerate(handles) if (gpu := self._gpu(smi, place, one)))

    def _close(self) -> None:
        smi, self._smi, self._handles = self._smi, None, {}
        if smi is not None:
            with contextlib.suppress(Exception):
                smi.amdsmi_shut_down()

    def _gpu(self, smi: ModuleType, place: int, handle: Any) -> Gpu | None:
        """One GPU, by the name that HIP has for it; `None` where it gives none."""
        numbered: Mapping[str, Any] = {}
        with contextlib.suppress(Exception):  # older releases have no such question
            numbered = smi.amdsmi_get_gpu_enumeration_info(handle)
        unread = self.unread
        uuid = unread.text(
            f"AMD GPU {place}", lambda: numbered.get("hip_uuid") or smi.amdsmi_get_gpu_device_uuid(handle)
        )
        if not uuid:
            return None
        self._handles[uuid] = handle
        number = _number(numbered.get("hip_id"))
        asic = partial(smi.amdsmi_get_gpu_asic_info, handle)
        return Gpu(
            uuid=uuid,
            model=unread.text(f"the name of AMD GPU {place}", lambda: asic()["market_name"]),
            pci=unread.text(f"the bus of AMD GPU {place}", partial(smi.amdsmi_get_gpu_device_bdf, handle)),
            index=place if number is None else int(number),
            numbering=Numbering.UNKNOWN if number is None else Numbering.HIP,
        )

    def questions(self, uuids: frozenset[str]) -> tuple[Look, ...]:
        """One look a GPU."""
        smi = self._smi
        if smi is None:
            return ()
        known = [(uuid, self._handles[uuid]) for uuid in sorted(uuids & self._handles.keys())]
        return tuple(
            Look(
                name=uuid,
                codes=_CODES,
                unread=self.unread,
                own_memory=partial(_own_memory, smi, handle, self._pid),
                readings={name: partial(query, smi, handle) for name, query in _QUESTIONS.items()},
                throttle=partial(_throttle, smi, handle),
            )
            for uuid, handle in known
        )

    def xids(self) -> tuple[Xid, ...]:
        """None: these are NVIDIA's numbers."""
        return ()


def _load(unread: Unread) -> ModuleType | None:
    """AMD's bindings with the library opened; `None` where they cannot be."""
    try:
        # Without the library they print so and fail at a name.
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi
    except ModuleNotFoundError:
        unread.lacks(AMD)
        return None
    except Exception:  # noqa: BLE001 the border: a package of others
        unread.note(ALL_GPUS, "libamd_smi.so cannot be opened", _LIBRARY_FIX)
        return None
    try:
        amdsmi.amdsmi_init()
    except Exception as error:  # noqa: BLE001 the border: a driver may do anything
        unread.note(ALL_GPUS, error, _RIGHTS_FIX)
        return None
    module: ModuleType = amdsmi
    return module


def _own_memory(smi: ModuleType, gpu: Any, pid: int) -> float | None:
    held = [
        _number(one["memory_usage"]["vram_mem"])
        for one in smi.amdsmi_get_gpu_process_list(gpu)
        if one["pid"] == pid
    ]
    known = [part for part in held if part is not None]
    return sum(known) if known else None


def _throttle(smi: ModuleType, gpu: Any) -> str | None:
    """Words as of NVIDIA; `None` where the GPU has no such signs."""
    signs = smi.amdsmi_get_violation_status(gpu)
    if not any(isinstance(signs.get(sign), int) for sign in _SLOWED):
        return None
    active = dict.fromkeys(word for sign, word in _SLOWED.items() if signs.get(sign) in (True, 1))
    return ",".join(active) or "none"


def _number(value: object) -> float | None:
    """A number, where it is one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value not in _LARGEST
    return float(value) if is_number and isinstance(value, int | float) else None


def _times(value: object, by: float) -> float | None:
    number = _number(value)
    return None if number is None else number * by


def _power(smi: ModuleType, gpu: Any) -> float | None:
    """MI300 and later have the present power, others its mean."""
    found = smi.amdsmi_get_power_info(gpu)
    now = _number(found.get("current_socket_power"))
    return _number(found.get("average_socket_power")) if now is None else now


def _temperature(smi: ModuleType, gpu: Any) -> float | None:
    """At the edge; GPUs of data centres have the hottest spot only."""
    current = smi.AmdSmiTemperatureMetric.CURRENT
    try:
        return _number(smi.amdsmi_get_temp_metric(gpu, smi.AmdSmiTemperatureType.EDGE, current))
    except Exception as error:
        if _CODES.of(error) not in _CODES.unknown:
            raise
        return _number(smi.amdsmi_get_temp_metric(gpu, smi.AmdSmiTemperatureType.HOTSPOT, current))


def _clock(smi: ModuleType, gpu: Any, which: str) -> float | None:
    return _times(smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.GFX)[which], MHZ)


_Question: TypeAlias = Callable[[ModuleType, Any], float | None]
_QUESTIONS: Final[dict[str, _Question]] = {
    machine.UTILIZATION.name: lambda smi, gpu: _times(smi.amdsmi_get_gpu_activity(gpu)["gfx_activity"], 0.01),
    machine.TEMPERATURE.name: _temperature,
    machine.POWER.name: _power,
    machine.POWER_LIMIT.name: lambda smi, gpu: _times(smi.amdsmi_get_power_cap_info(gpu)["power_cap"], 1e-6),
    machine.CLOCK.name: lambda smi, gpu: _clock(smi, gpu, "clk"),
    machine.CLOCK_MAX.name: lambda smi, gpu: _clock(smi, gpu, "max_clk"),
    machine.ECC_UNCORRECTED.name: lambda smi, gpu: _number(
        smi.amdsmi_get_gpu_total_ecc_count(gpu)["uncorrectable_count"]
    ),
    machine.MEMORY_USED.name: lambda smi, gpu: _number(
        smi.amdsmi_get_gpu_memory_usage(gpu, smi.AmdSmiMemoryType.VRAM)
    ),
    machine.MEMORY_TOTAL.name: lambda smi, gpu: _number(
        smi.amdsmi_get_gpu_memory_total(gpu, smi.AmdSmiMemoryType.VRAM)
    ),
}
