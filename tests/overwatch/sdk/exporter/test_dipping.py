"""Dips of a scripted machine's GPUs, read by a process of its own."""

import json
import subprocess
import sys
from typing import Any

import psutil

from overwatch.sdk.exporter.dipping import INTERVAL_S
from tests.real.fake_nvml.machine import DEADLINE_S, NOT_SUPPORTED, Machine, Watched

SHARE, LENGTH = "overwatch.gpu.dips.share", "overwatch.gpu.dips.length"


def newest(seen: Watched, lane: str) -> dict[str, Any]:
    """The newest readings of a lane that have a share of dips; empty while none has."""
    return next((entry for entry in reversed(seen.stated("gpu", lane)) if SHARE in entry), {})


def test_dips_are_readings_of_their_gpu(machine: Machine) -> None:
    """A busy GPU has a share of 0 and no length; when it rests, both rise, and its neighbour's do not."""
    machine.gpus("GPU-a", "GPU-b", util=99)
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(newest(seen, "GPU-a") and newest(seen, "GPU-b")))
        assert newest(sampler, "GPU-a")[SHARE] == 0.0
        assert not any(LENGTH in entry for entry in sampler.stated("gpu"))
        machine.put({"1.util": 10})
        sampler.wait(lambda seen: newest(seen, "GPU-b").get(LENGTH, 0.0) > 0.2)
        assert 0.0 < newest(sampler, "GPU-b")[SHARE] < 1.0
        assert newest(sampler, "GPU-a")[SHARE] == 0.0


def test_a_gpu_without_utilisation_has_no_dips(machine: Machine) -> None:
    """Absent, not 0, beside one that has both."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"1.util": None})
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(newest(seen, "GPU-a")))
        sampler.wait_more("gpu", "GPU-b", count=10)
        assert newest(sampler, "GPU-a")[SHARE] == 1.0
        assert not any(SHARE in entry for entry in sampler.stated("gpu", "GPU-b"))


def test_a_call_that_hangs_leaves_the_dips_of_the_other_gpu(machine: Machine) -> None:
    """Each GPU is read by a thread of its own; what is old is not repeated."""
    machine.gpus("GPU-a", "GPU-b")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(newest(seen, "GPU-a") and newest(seen, "GPU-b")))
        machine.put({"1.stall.nvmlDeviceGetUtilizationRates": 1})
        before = newest(sampler, "GPU-a")["at"]
        sampler.wait(lambda seen: newest(seen, "GPU-a")["at"] > before + 5_000_000_000)
        assert newest(sampler, "GPU-b")["at"] < newest(sampler, "GPU-a")["at"]


def test_the_process_ends_with_the_one_that_asked_it_and_is_replaced_when_it_dies(machine: Machine) -> None:
    """Killed, it is started again; when the sampler is killed, it ends by itself."""
    machine.gpus("GPU-a")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(newest(seen, "GPU-a")))
        requesting = psutil.Process(sampler.process.pid)
        [first] = requesting.children()
        first.kill()
        sampler.wait(lambda _: bool(set(requesting.children()) - {first}))
        [second] = set(requesting.children()) - {first}
    assert second.wait(DEADLINE_S) is None  # it was no child of ours, so that it is gone is all that is known


def test_a_machine_without_a_driver_starts_no_process(machine: Machine) -> None:
    """Nothing is asked there, and nothing is 0."""
    machine.put({"error.nvmlInit": NOT_SUPPORTED})
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: len(seen.stated("host")) >= 5)
        assert (psutil.Process(sampler.process.pid).children(), sampler.stated("gpu")) == ([], [])


def test_the_process_writes_lines_until_its_input_ends(machine: Machine) -> None:
    """By itself: JSON by UUID; what it waits from one reading to the next is at most 50 ms."""
    assert INTERVAL_S <= 0.05
    machine.gpus("GPU-a", util=99)
    with subprocess.Popen(
        [sys.executable, "-m", "overwatch.sdk.exporter.dipping"],
        env=machine.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
    assert lines[-1] == {"GPU-a": {SHARE: 0.0}}
