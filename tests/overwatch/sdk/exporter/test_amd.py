"""Readings of AMD's GPUs through `amdsmi`: what its documentation states of shapes and units."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from overwatch.extras import AMD
from overwatch.sdk.exporter.amd import Amd
from overwatch.sdk.exporter.gpu_sources import Unread
from overwatch.sdk.exporter.gpus import VENDORS, Apple, Local
from overwatch.sdk.exporter.lanes import Gpu, Numbering, visible_devices
from overwatch.sdk.launch import torch_lanes
from tests.real.fake_amdsmi.library import build

GIB = 1 << 30
NOT_SUPPORTED, NO_PERMISSION, NOT_INITIALISED = 2, 10, 32
ABSENT = "N/A"


class SmiError(Exception):
    """As `AmdSmiLibraryException`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.err_code = code


class Smi(ModuleType):
    """AMD's bindings over some GPUs; `answers` takes the place of what a call gives, by its name."""

    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")
    AmdSmiTemperatureType = SimpleNamespace(EDGE="edge", HOTSPOT="hotspot")
    AmdSmiClkType = SimpleNamespace(GFX="gfx")
    AmdSmiMemoryType = SimpleNamespace(VRAM="vram")

    def __init__(self, gpus: int = 1, **answers: Any) -> None:
        super().__init__("amdsmi")
        signs = {"active_ppt_pwr": True, "active_socket_thrm": False, "active_vr_thrm": ABSENT}
        self._answers: dict[str, Any] = {
            "init": None, "shut_down": None, "get_processor_handles": list(range(gpus)),
            "get_gpu_device_uuid": lambda gpu: f"{gpu}4ff74a1-0000-1000-80d2-0123456789ab",
            "get_gpu_device_bdf": lambda gpu: f"0000:{9 - gpu}3:00.0",
            "get_gpu_enumeration_info": lambda gpu: {"hip_id": gpu, "hip_uuid": f"GPU-{gpu:016x}"},
            "get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
            "get_gpu_activity": {"gfx_activity": 37, "umc_activity": 5, "mm_activity": ABSENT},
            "get_power_info": {"current_socket_power": 250, "average_socket_power": ABSENT},
            "get_power_cap_info": {"power_cap": 750_000_000},
            "get_clock_info": {"clk": 1200, "max_clk": 2100},
            "get_temp_metric": 60,
            "get_gpu_total_ecc_count": {"correctable_count": 9, "uncorrectable_count": 3},
            "get_gpu_memory_usage": 4 * GIB, "get_gpu_memory_total": 192 * GIB,
            "get_gpu_process_list": [{"pid": 4711, "memory_usage": {"vram_mem": GIB}},
                                     {"pid": 99, "memory_usage": {"vram_mem": 7 * GIB}}],
            "get_violation_status": signs,
        } | answers  # fmt: skip

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answer = self._answers.get(name.removeprefix("amdsmi_"), AttributeError(name))
        if isinstance(answer, AttributeError):
            raise answer

        def call(*requested: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*requested) if callable(answer) else answer

        return call


def _opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smi: ModuleType | None
) -> tuple[Amd, tuple[Gpu, ...]]:
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    driver = tmp_path / "kfd"
    driver.touch()
    amd = Amd(4711, [driver])
    return amd, amd.open()


def _requested(amd: Amd, gpus: tuple[Gpu, ...], *, whole: bool = True) -> dict[str, Any]:
    every = frozenset(gpu.uuid for gpu in gpus)
    found: dict[str, Any] = {}
    for look in amd.questions(every):
        found |= look.query(every if whole else frozenset())
    return found


def test_one_look_reads_a_gpu_in_the_units_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From percent, MHz, watts, microwatts and bytes."""
    amd, gpus = _opened(monkeypatch, tmp_path, Smi())

    reading = _requested(amd, gpus)["GPU-0000000000000000"]

    assert reading.numbers == pytest.approx(
        {
            "hw.gpu.utilization": 0.37,
            "hw.gpu.memory.usage": 4.0 * GIB,
            "hw.gpu.memory.limit": 192.0 * GIB,
            "hw.temperature": 60.0,
            "hw.power": 250.0,
            "overwatch.gpu.power.limit": 750.0,
            "overwatch.gpu.clock": 1.2e9,
            "overwatch.gpu.clock.limit": 2.1e9,
            "hw.errors": 3.0,
            "overwatch.gpu.process.memory": float(GIB),
        }
    )
    assert (reading.throttle, reading.lost) == ("power", False)
    assert amd.unread.take() == ()


ASK = """
import json, pathlib, sys
from overwatch.sdk.exporter.amd import Amd
amd = Amd(4711, [pathlib.Path(sys.executable)])
gpus = amd.open()
every = frozenset(gpu.uuid for gpu in gpus)
[look] = amd.questions(every)
[(uuid, reading)] = look.query(every).items()
notes = [note.text for note in amd.unread.take()]
print(json.dumps([uuid, gpus[0].model, gpus[0].pci, gpus[0].index, reading.numbers, reading.throttle, notes]))
"""


def test_amds_own_package_reads_its_library(tmp_path: Path) -> None:
    """The real `amdsmi` over a library built for the test: its shapes, and what it gives for no value."""
    environment = {**os.environ, "ROCM_HOME": str(build(tmp_path))}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert not done.returncode, done.stderr
    uuid, model, pci, index, numbers, throttle, notes = json.loads(done.stdout)
    assert (uuid, model, pci, index) == ("GPU-60ff61d9a2b3c4e5", "AMD Instinct MI300X", "0000:c1:00.0", 0)
    assert numbers == pytest.approx(
        {
            "hw.gpu.utilization": 0.37,
            "hw.gpu.memory.usage": 4.0 * GIB,
            "hw.gpu.memory.limit": 192.0 * GIB,
            "hw.temperature": 60.0,
            "hw.power": 251.0,
            "overwatch.gpu.power.limit": 750.0,
            "overwatch.gpu.clock": 1.2e9,
            "overwatch.gpu.process.memory": float(GIB),
        }
    )
    assert (throttle, notes) == (None, [])


def test_what_a_gpu_has_not_is_left_out_and_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether it is `N/A`, the largest number or an error that means so; the rest is read another way."""

    def temperature(_: int, kind: str, __: str) -> int:
        if kind == "edge":
            raise SmiError(NOT_SUPPORTED)
        return 71

    smi = Smi(
        get_power_info={"current_socket_power": ABSENT, "average_socket_power": 120},
        get_clock_info={"clk": ABSENT, "max_clk": 0xFFFFFFFF},
        get_gpu_total_ecc_count=SmiError(NOT_SUPPORTED), get_temp_metric=temperature,
        get_violation_status={"active_ppt_pwr": ABSENT}, get_gpu_process_list=[],
    )  # fmt: skip
    amd, gpus = _opened(monkeypatch, tmp_path, smi)

    reading = _requested(amd, gpus)["GPU-0000000000000000"]

    absent = {"overwatch.gpu.clock", "overwatch.gpu.clock.limit", "hw.errors", "overwatch.gpu.process.memory"}
    assert not absent & reading.numbers.keys()
    assert (reading.numbers["hw.power"], reading.numbers["hw.temperature"]) == (120.0, 71.0)
    assert reading.throttle is None
    assert amd.unread.take() == ()


def test_what_cannot_be_read_has_its_reason_once_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A right that is missing is one; a driver that is gone is a lost GPU."""
    amd, gpus = _opened(monkeypatch, tmp_path, Smi(get_power_cap_info=SmiError(NO_PERMISSION)))
    first, _ = _requested(amd, gpus), _requested(amd, gpus)
    assert "hw.power" in first["GPU-0000000000000000"].numbers
    [note] = amd.unread.take()
    assert note.text.startswith("overwatch.gpu.power.limit of GPU-0000000000000000 cannot be read")

    amd, gpus = _opened(monkeypatch, tmp_path, Smi(get_gpu_activity=SmiError(NOT_INITIALISED)))
    assert _requested(amd, gpus)["GPU-0000000000000000"].lost


def test_a_gpu_that_another_process_samples_is_asked_for_our_own_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing else is asked of it."""
    amd, gpus = _opened(monkeypatch, tmp_path, Smi())
    [reading] = _requested(amd, gpus, whole=False).values()
    assert reading.numbers == {"overwatch.gpu.process.memory": float(GIB)}


@pytest.mark.parametrize(
    ("smi", "reason"),
    [
        (None, AMD.need),
        (Smi(init=SmiError(NO_PERMISSION)), "AMD GPUs cannot be read"),
        (Smi(get_processor_handles=SmiError(NO_PERMISSION)), "the number of AMD GPUs cannot be read"),
    ],
    ids=["no package", "no right", "no number"],
)
def test_a_driver_that_cannot_be_read_has_its_reason_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smi: ModuleType | None, reason: str
) -> None:
    """However often it is opened."""
    amd, gpus = _opened(monkeypatch, tmp_path, smi)
    assert (gpus, amd.open()) == ((), ())
    [note] = amd.unread.take()
    assert note.trouble
    assert note.text.startswith(reason)


def test_a_package_whose_library_is_missing_names_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It prints so and fails at a name: neither comes out of the process."""
    (tmp_path / "amdsmi.py").write_text("print('Unable to find libamd_smi.so')\n{}['libamd_smi.so']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    driver = tmp_path / "kfd"
    driver.touch()
    amd = Amd(1, [driver])
    assert amd.open() == ()
    [note] = amd.unread.take()
    assert "libamd_smi.so cannot be opened; install amd-smi-lib" in note.text
    assert capfd.readouterr().out == ""


def test_a_machine_without_such_a_driver_has_no_trouble(tmp_path: Path) -> None:
    """The package is not even looked for."""
    amd = Amd(1, [tmp_path / "kfd"])
    assert amd.open() == ()
    assert amd.unread.take() == ()


@pytest.mark.parametrize(
    ("env", "labels"),
    [
        ({}, {"cuda:0": 0, "cuda:1": 1, "cuda:2": 2}),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, {"cuda:0": 2, "cuda:1": 0}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"cuda:0": 1}),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, {"cuda:0": 0}),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, {"cuda:0": 2}),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000001"}, {"gpu0": 0, "gpu1": 1, "gpu2": 2}),
    ],
)
def test_lanes_are_called_as_hip_numbers_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: dict[str, str], labels: dict[str, int]
) -> None:
    """Whatever the order of the bus; a choice that is not by number leaves the driver's numbers."""
    _, gpus = _opened(monkeypatch, tmp_path, Smi(3))
    seen = visible_devices(gpus, env)
    assert {lane.label: lane.id for lane in seen.lanes} == {
        label: f"GPU-{number:016x}" for label, number in labels.items()
    }


def test_where_hip_gives_no_numbers_no_lane_is_called_by_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Older releases of amdsmi have no such question: the UUID is the driver's."""
    _, gpus = _opened(monkeypatch, tmp_path, Smi(2, get_gpu_enumeration_info=AttributeError("older")))
    assert {gpu.numbering for gpu in gpus} == {Numbering.UNKNOWN}
    seen = visible_devices(gpus, {})
    assert not seen.certain
    assert [lane.label for lane in seen.lanes] == ["gpu0", "gpu1"]
    assert seen.lanes[0].id == "04ff74a1-0000-1000-80d2-0123456789ab"


def test_torch_and_the_driver_call_a_gpu_of_amd_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch writes the codes of HIP's sixteen letters as if they were a UUID."""
    letters = b"60ff61d9a2b3c4e5".hex()
    uuid = "-".join((letters[:8], letters[8:12], letters[12:16], letters[16:20], letters[20:]))
    cuda = SimpleNamespace(
        is_initialized=lambda: True, get_device_properties=lambda _: SimpleNamespace(uuid=uuid)
    )
    torch = SimpleNamespace(cuda=cuda, device=str, version=SimpleNamespace(hip="6.4"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert torch_lanes(["cuda:0"]) == {"GPU-60ff61d9a2b3c4e5": "cuda:0"}


class Source(Amd):
    """A vendor that has some GPUs, or none."""

    def __init__(self, *uuids: str) -> None:
        super().__init__(1, ())
        self.uuids = uuids

    def open(self) -> tuple[Gpu, ...]:
        """Those."""
        return tuple(Gpu(uuid=uuid) for uuid in self.uuids)


def test_the_first_vendor_with_a_gpu_is_the_machines() -> None:
    """And while it has one no other is asked; when it has none any more, the next is."""
    sources = Source(), Source("GPU-a"), Source("GPU-b")
    local = Local(1, [lambda _, __, source=source: source for source in sources])
    assert [gpu.uuid for gpu in local.open()] == ["GPU-a"]
    sources[1].uuids = ()
    assert [gpu.uuid for gpu in local.open()] == ["GPU-b"]
    assert local.xids() == ()


def test_a_mac_has_one_line_and_no_rows() -> None:
    """Its counters are root's; elsewhere there is nothing to report."""
    unread = Unread()
    mac = Apple(1, unread, lambda: "Darwin")
    assert [mac.open(), mac.open(), Apple(1, Unread(), lambda: "Linux").open()] == [(), (), ()]
    [note] = unread.take()
    assert "root only" in note.text
    assert not note.trouble
    assert list(VENDORS) == ["NVIDIA", "AMD", "Apple"]
