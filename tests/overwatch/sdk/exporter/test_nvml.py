"""Readings of GPUs through a libnvidia-ml built for the test."""

from pathlib import Path

from overwatch.sdk.exporter.nvml import throttle_words
from tests.real.fake_nvml.machine import DRIVER_NOT_LOADED, GIB, GPU_IS_LOST, NOT_SUPPORTED, Machine

LOOKS = "[ask(look) for look in nvml.questions(every)]"


def test_one_look_reads_a_gpu_in_the_units_of_the_catalogue(machine: Machine) -> None:
    """Shares within 0..1, bytes, Celsius, watts, hertz, bytes a second, words."""
    machine.gpus("GPU-a", throttle="0x24", ecc=3, process=f"4711 {GIB}")

    [looked] = machine.ask(LOOKS)

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


def test_what_a_gpu_cannot_tell_is_left_out(machine: Machine) -> None:
    """Every call that the GPU does not know leaves its reading out, never a zero; the rest is read."""
    machine.gpus("GPU-a", "GPU-b")
    calls = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEccErrors")
    machine.put({f"1.error.{call}": NOT_SUPPORTED for call in calls})
    machine.put({"1.throttle": None, "1.memory": None})

    first, second = machine.ask(LOOKS)

    missing = {"hw.power", "hw.errors", "hw.gpu.memory.usage", "hw.gpu.memory.limit"}
    assert first["GPU-a"][0].keys() - second["GPU-b"][0].keys() == missing
    assert (first["GPU-a"][1], second["GPU-b"][1]) == ("none", None)


def test_memory_of_another_program_is_not_the_trainers(machine: Machine) -> None:
    """Only the trainer's own process is counted; where it holds nothing there is no number."""
    machine.gpus("GPU-a", process=f"99 {GIB}")

    [looked] = machine.ask(LOOKS)

    assert "overwatch.gpu.process.memory" not in looked["GPU-a"][0]


def test_a_gpu_that_another_process_samples_tells_only_our_own_memory(machine: Machine) -> None:
    """Nothing else is asked of it."""
    machine.gpus("GPU-a", process=f"4711 {GIB}")

    [looked] = machine.ask("[ask(look, frozenset()) for look in nvml.questions(every)]")

    assert looked["GPU-a"][0] == {"overwatch.gpu.process.memory": float(GIB)}


def test_nvlink_is_a_rate_from_the_second_look_on(machine: Machine) -> None:
    """The driver counts; what did not move between two looks is a rate of 0, and the first has none."""
    machine.gpus("GPU-a", nvlink_rx=1000, nvlink_tx=500)

    first, second = machine.ask("[ask(look) for look in nvml.questions(every) * 2]")

    names = {"overwatch.gpu.nvlink.receive", "overwatch.gpu.nvlink.transmit"}
    assert not names & first["GPU-a"][0].keys()
    assert {second["GPU-a"][0][name] for name in names} == {0.0}


def test_a_gpu_that_is_gone_says_only_that(machine: Machine) -> None:
    """The driver's word that a GPU is lost ends its look."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"1.error.nvmlDeviceGetPowerUsage": GPU_IS_LOST})

    first, second = machine.ask(LOOKS)

    assert not first["GPU-a"][2]
    assert second["GPU-b"] == [{}, None, True]


def test_gpus_say_who_they_are(machine: Machine) -> None:
    """UUID, model, bus and the UUIDs of their parts; one that does not answer is passed over."""
    machine.gpus("GPU-a", "GPU-b", "GPU-c")
    machine.put({"0.bus": 9, "0.mig": 1, "mig0.uuid": "MIG-x", "mig1.uuid": "MIG-y", "1.error": GPU_IS_LOST})

    found = machine.ask("[[g.uuid, g.model, g.pci, g.index, g.partitioned, g.parts] for g in gpus]")

    assert found == [
        ["GPU-a", "NVIDIA H200", "00000000:09:00.0", 0, True, ["MIG-x", "MIG-y"]],
        ["GPU-c", "NVIDIA H200", "00000000:02:00.0", 2, False, []],
    ]


def test_xids_are_told_with_the_gpu_even_when_it_fell_off_the_bus(machine: Machine) -> None:
    """The driver's events name a GPU that itself no longer answers; each is told once."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"xid": "1 1 79"})

    told = machine.ask("[[[x.uuid, x.code] for x in nvml.xids()] for _ in range(2)]")

    assert told == [[["GPU-b", 79]], []]


def test_a_machine_without_a_driver_has_no_gpus(machine: Machine, tmp_path: Path) -> None:
    """A library that is none, or a driver that is not loaded: nothing, rather than zeros."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    machine.gpus("GPU-a")

    assert machine.ask("len(gpus)", LD_LIBRARY_PATH=str(tmp_path)) == 0
    machine.put({"error.nvmlInit": DRIVER_NOT_LOADED})
    assert machine.ask("len(gpus)") == 0


def test_flags_that_slow_nobody_down_are_no_reason() -> None:
    """Idling and clocks that somebody set are not throttling."""
    assert throttle_words(0x1 | 0x2 | 0x100) == "none"
    assert throttle_words(0x8 | 0x40 | 0x80) == "slowdown,thermal-hw,power-brake"
