"""Readings of GPUs through a libnvidia-ml built for the test."""

import ctypes
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from overwatch.sdk.exporter.nvml import DRIVER_FILES, Nvml, throttle_words
from tests.real.fake_nvml.machine import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    VERSION_MISMATCH,
    Machine,
)

without_driver = pytest.mark.skipif(
    any(path.exists() for path in DRIVER_FILES), reason="this machine has an NVIDIA driver"
)
LOOKS = "[ask(look) for look in nvml.questions(every)]"


def test_one_look_reads_a_gpu_in_the_units_of_the_catalogue(machine: Machine) -> None:
    """Shares within 0..1, bytes, Celsius, watts, hertz, bytes a second, words."""
    machine.gpus("GPU-a", throttle="0x24", ecc=3, process=f"4711 {GIB}")

    [looked] = machine.query(LOOKS)

    numbers, throttle, lost = looked["GPU-a"]
    assert numbers == {
        "hw.gpu.utilization": 0.37,
        "hw.gpu.memory.usage": 4.0 * GIB,
        "hw.gpu.memory.limit": 16.0 * GIB,
        "hw.temperature": 60.0,
        "hw.power": 250.5,
        "overwatch.gpu.power.limit": 300.0,
        "overwatch.gpu.clock": 1.2e9,
        "overwatch.gpu.clock.limit": 1.98e9,
        "hw.errors": 3.0,
        "overwatch.gpu.pcie.receive": 2048 * 1024.0,
        "overwatch.gpu.pcie.transmit": 1024 * 1024.0,
        "overwatch.gpu.process.memory": float(GIB),
    }
    assert throttle == "power,thermal"
    assert not lost


def test_what_a_gpu_cannot_report_is_left_out(machine: Machine) -> None:
    """Every call that the GPU does not know leaves its reading out, never a zero; the rest is read."""
    machine.gpus("GPU-a", "GPU-b")
    calls = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEccErrors")
    machine.put({f"1.error.{call}": NOT_SUPPORTED for call in calls})
    machine.put({"1.throttle": None, "1.memory": None})

    first, second = machine.query(LOOKS)

    missing = {"hw.power", "hw.errors", "hw.gpu.memory.usage", "hw.gpu.memory.limit"}
    assert first["GPU-a"][0].keys() - second["GPU-b"][0].keys() == missing
    assert (first["GPU-a"][1], second["GPU-b"][1]) == ("none", None)


def test_memory_of_another_program_is_not_the_trainers(machine: Machine) -> None:
    """Only the trainer's own process is counted; where it holds nothing there is no number."""
    machine.gpus("GPU-a", process=f"99 {GIB}")

    [looked] = machine.query(LOOKS)

    assert "overwatch.gpu.process.memory" not in looked["GPU-a"][0]


def test_a_gpu_that_another_process_samples_reports_only_our_own_memory(machine: Machine) -> None:
    """Nothing else is asked of it."""
    machine.gpus("GPU-a", process=f"4711 {GIB}")

    [looked] = machine.query("[ask(look, frozenset()) for look in nvml.questions(every)]")

    assert looked["GPU-a"][0] == {"overwatch.gpu.process.memory": float(GIB)}


def test_nvlink_is_a_rate_from_the_second_look_on(machine: Machine) -> None:
    """The driver counts; what did not move between two looks is a rate of 0, and the first has none."""
    machine.gpus("GPU-a", nvlink_rx=1000, nvlink_tx=500)

    first, second = machine.query("[ask(look) for look in nvml.questions(every) * 2]")

    names = {"overwatch.gpu.nvlink.receive", "overwatch.gpu.nvlink.transmit"}
    assert not names & first["GPU-a"][0].keys()
    assert {second["GPU-a"][0][name] for name in names} == {0.0}


def test_a_gpu_that_is_gone_reports_only_that(machine: Machine) -> None:
    """The driver's word that a GPU is lost ends its look."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"1.error.nvmlDeviceGetPowerUsage": GPU_IS_LOST})

    first, second = machine.query(LOOKS)

    assert not first["GPU-a"][2]
    assert second["GPU-b"] == [{}, None, True]


def test_gpus_report_who_they_are(machine: Machine) -> None:
    """UUID, model, bus and the UUIDs of their parts; one that does not answer is passed over."""
    machine.gpus("GPU-a", "GPU-b", "GPU-c")
    machine.put({"0.bus": 9, "0.mig": 1, "mig0.uuid": "MIG-x", "mig1.uuid": "MIG-y", "1.error": GPU_IS_LOST})

    found = machine.query("[[g.uuid, g.model, g.pci, g.index, g.partitioned, g.parts] for g in gpus]")

    assert found == [
        ["GPU-a", "NVIDIA H200", "00000000:09:00.0", 0, True, ["MIG-x", "MIG-y"]],
        ["GPU-c", "NVIDIA H200", "00000000:02:00.0", 2, False, []],
    ]


def test_xids_are_reported_with_the_gpu_even_when_it_fell_off_the_bus(machine: Machine) -> None:
    """The driver's events name a GPU that itself no longer answers; each is reported once."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"xid": "1 1 79"})

    reported = machine.query("[[[x.uuid, x.code] for x in nvml.xids()] for _ in range(2)]")

    assert reported == [[["GPU-b", 79]], []]


def test_a_machine_without_a_driver_has_no_gpus(machine: Machine, tmp_path: Path) -> None:
    """A library that is none, or a driver that is not loaded: nothing, rather than zeros."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    machine.gpus("GPU-a")

    assert machine.query("len(gpus)", LD_LIBRARY_PATH=str(tmp_path)) == 0
    machine.put({"error.nvmlInit": DRIVER_NOT_LOADED})
    assert machine.query("len(gpus)") == 0


def test_flags_that_slow_nobody_down_are_no_reason() -> None:
    """Idling and clocks that somebody set are not throttling."""
    assert throttle_words(0x1 | 0x2 | 0x100) == "none"
    assert throttle_words(0x8 | 0x40 | 0x80) == "slowdown,thermal-hw,power-brake"


NOTES = "[[note.text, note.trouble] for note in nvml.unread.take()]"


def test_a_gpu_whose_name_cannot_be_decoded_hides_nothing(machine: Machine) -> None:
    """Its readings, and the other GPU, are there; the bytes that are no text are marked."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"0.name": "NVIDIA \udcc8GeForce"})

    found, looked = machine.query(f"[[[g.uuid, g.model] for g in gpus], {LOOKS}]")

    assert found == [["GPU-a", "NVIDIA \ufffdGeForce"], ["GPU-b", "NVIDIA H200"]]
    assert [look[uuid][0]["hw.power"] for look, uuid in zip(looked, ("GPU-a", "GPU-b"), strict=True)] == [
        250.5, 250.5,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "hidden", "reason"),
    [
        ({"1.error.nvmlDeviceGetHandleByIndex": NO_PERMISSION}, {"GPU-b"}, "GPU 1 cannot be read"),
        ({"1.error.nvmlDeviceGetUUID": NO_PERMISSION}, {"GPU-b"}, "GPU 1 cannot be read"),
        ({"1.error.nvmlDeviceGetName": NO_PERMISSION}, set(), "the name of GPU 1 cannot be read"),
        ({"1.error.nvmlDeviceGetPciInfo": NO_PERMISSION}, set(), "the bus of GPU 1 cannot be read"),
        ({"1.error.nvmlDeviceRegisterEvents": NO_PERMISSION}, set(), "Xid errors of GPU-b cannot be read"),
    ],
)
def test_a_gpu_that_cannot_be_identified_hides_itself_alone(
    machine: Machine, lines: dict[str, object], hidden: set[str], reason: str
) -> None:
    """One GPU at a time, with its reason."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put(lines)

    found, notes = machine.query(f"[[g.uuid for g in gpus], {NOTES}]")

    assert set(found) == {"GPU-a", "GPU-b"} - hidden
    [[text, trouble]] = notes
    assert text.startswith(reason)
    assert trouble


@without_driver
@pytest.mark.parametrize(
    ("lines", "reason", "trouble"),
    [
        ({"error.nvmlInit": VERSION_MISMATCH}, "of different versions", True),
        ({"error.nvmlInit": NO_PERMISSION}, "NVIDIA GPUs cannot be read", True),
        ({"error.nvmlDeviceGetCount": NO_PERMISSION}, "the number of GPUs cannot be read", True),
        ({"error.nvmlInit": DRIVER_NOT_LOADED}, "no NVIDIA driver is loaded here", False),
    ],
)
def test_a_driver_that_cannot_be_read_is_not_one_that_is_not_there(
    machine: Machine, lines: dict[str, object], reason: str, *, trouble: bool
) -> None:
    """Each has its own reason, reported once however often it is opened."""
    machine.gpus("GPU-a")
    machine.put(lines)

    [[text, is_trouble]] = machine.query(f"[nvml.open(), {NOTES}][1]")

    assert reason in text
    assert is_trouble is trouble


@without_driver
def test_a_library_that_cannot_be_loaded_is_not_one_that_is_not_there(
    machine: Machine, tmp_path: Path
) -> None:
    """A file that is no library of this machine has the loader's reason; no file is no driver."""
    other, empty = tmp_path / "other", tmp_path / "empty"
    other.mkdir()
    empty.mkdir()
    elf32 = b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x03\x00\x03\x00\x01" + bytes(100)
    (other / "libnvidia-ml.so.1").write_bytes(elf32)

    [[wrong, is_trouble]] = machine.query(NOTES, LD_LIBRARY_PATH=str(other))
    [[missing, trouble]] = machine.query(NOTES, LD_LIBRARY_PATH=str(empty))

    assert "wrong ELF class" in wrong
    assert is_trouble
    assert (missing, trouble) == ("no NVIDIA driver is installed here", False)


@pytest.mark.parametrize("driver", [True, False])
def test_bindings_that_are_not_installed_matter_where_there_is_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, driver: bool
) -> None:
    """With a driver it is what must be installed; without one it is a machine without GPUs."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    version = tmp_path / "version"
    if driver:
        version.write_text("NVRM version")
    else:
        monkeypatch.setattr("overwatch.sdk.exporter.nvml.LIBRARY", "libnvidia-ml-of-no-machine.so")
    nvml = Nvml(1, [version])

    assert nvml.open() == ()
    [note] = nvml.unread.take()
    assert note.trouble is driver
    assert ('pip install "esper-overwatch[gpu]"' in note.text) is driver


class Bindings(ModuleType):
    """NVIDIA's bindings over two GPUs; `raises` holds what a call on the first one raises, by its name."""

    class NVMLError(Exception):
        """What a driver answers."""

        def __init__(self, value: int) -> None:
            self.value = value
            super().__init__(value)

    NVML_SUCCESS = 0

    def __init__(self, raises: dict[str, Exception]) -> None:
        super().__init__("pynvml")
        self._raises = raises

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name == "nvmlEventTypeXidCriticalError":
            return 0
        return partial(self._answer, name)

    def _answer(self, name: str, *given: Any) -> Any:
        first = bool(given) and isinstance(given[0], ctypes.c_void_p) and given[0].value == 1000
        if name in self._raises and (first or not given):
            raise self._raises[name]
        if name not in ANSWERS:
            raise self.NVMLError(NOT_SUPPORTED)
        answer = ANSWERS[name]
        return answer(*given) if callable(answer) else answer


ANSWERS: dict[str, Any] = {
    "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 2, "nvmlDeviceGetName": "NVIDIA X",
    "nvmlDeviceGetHandleByIndex": lambda index: ctypes.c_void_p(1000 + index),
    "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu.value - 1000}",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"0000:01:00.0"),
    "nvmlDeviceGetTemperature": 60, "nvmlDeviceGetPowerUsage": 100_000,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=8, used=1),
    "nvmlDeviceGetComputeRunningProcesses": [],
}  # fmt: skip


def read_all(monkeypatch: pytest.MonkeyPatch, raises: dict[str, Exception]) -> tuple[list[set[str]], str]:
    """Names that are read of each GPU, and the notes as one text."""
    monkeypatch.setitem(sys.modules, "pynvml", Bindings(raises))
    nvml = Nvml(1)
    every = frozenset(gpu.uuid for gpu in nvml.open())
    read = [set(reading.numbers) for look in nvml.questions(every) for reading in look.query(every).values()]
    return read, "; ".join(note.text for note in nvml.unread.take())


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("nvmlDeviceGetUtilizationRates", "hw.gpu.utilization"),
        ("nvmlDeviceGetPowerUsage", "hw.power"),
        ("nvmlDeviceGetMemoryInfo", "hw.gpu.memory.usage"),
        ("nvmlDeviceGetComputeRunningProcesses", "overwatch.gpu.process.memory"),
        ("nvmlDeviceGetFieldValues", "NVLink"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "overwatch.gpu.throttle"),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad struct"),
        AttributeError("undefined symbol"),
        OSError("denied"),
        Bindings.NVMLError(NO_PERMISSION),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_query_that_raises_anything_hides_only_its_reading(
    monkeypatch: pytest.MonkeyPatch, call: str, name: str, error: Exception
) -> None:
    """The GPU's other readings and the other GPU are there, and the reason names both."""
    (first, second), notes = read_all(monkeypatch, {call: error})

    assert second - first <= {name, "hw.gpu.memory.limit"}
    assert "hw.temperature" in first
    assert f"{name} of GPU-0 cannot be read: {type(error).__name__}" in notes


@pytest.mark.parametrize("error", [OSError("wrong ELF class"), RuntimeError("anything")])
def test_a_driver_that_raises_anything_when_opened_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Nothing is raised into the sampler."""
    read, notes = read_all(monkeypatch, {"nvmlInit": error})

    assert read == []
    assert f"NVIDIA GPUs cannot be read: {type(error).__name__}: {error}" in notes
