"""The machine's readings: the host as it is, GPUs by a library built for the test."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import overwatch.sdk
from overwatch.catalog import Scope
from overwatch.events import Measured
from overwatch.sdk.exporter.sampler import Host, SampleLock
from tests.overwatch.sdk.sink import http_sink

COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the fake NVML with")


@pytest.fixture(scope="module")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml of two GPUs."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_nvml.c")
    assert COMPILER is not None
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return folder


def read_nvml(environment: dict[str, str]) -> list[object]:
    """What the GPU reader of a fresh process reads."""
    script = "import json; from overwatch.sdk.exporter.nvml import Nvml; print(json.dumps(Nvml().read()))"
    outer = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**outer, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[object] = json.loads(done.stdout)
    return found


@needs_compiler
def test_gpus_are_read_through_nvml(fake_nvml: Path) -> None:
    """Utilisation within 0..1, bytes, Celsius, watts; a reading one GPU lacks is NaN in its column."""
    lanes, readings = read_nvml({"LD_LIBRARY_PATH": str(fake_nvml)})
    assert lanes == ["cuda:0", "cuda:1"]
    assert isinstance(readings, dict)
    power = readings.pop("hw.power")
    assert power[0] == 250.5
    assert power[1] != power[1]
    assert readings == {
        "hw.gpu.utilization": [0.37, 1.0],
        "hw.gpu.memory.usage": [float(4 << 30)] * 2,
        "hw.gpu.memory.limit": [float(16 << 30)] * 2,
        "hw.temperature": [60.0, 81.0],
    }


@needs_compiler
def test_lanes_are_numbered_as_the_trainer_sees_them(fake_nvml: Path) -> None:
    """`cuda:0` is the first visible device; an invalid entry ends the list, an empty one hides all."""
    library = {"LD_LIBRARY_PATH": str(fake_nvml)}
    lanes, readings = read_nvml({**library, "CUDA_VISIBLE_DEVICES": "1,7,0"})
    assert isinstance(readings, dict)
    assert (lanes, readings["hw.temperature"]) == (["cuda:0"], [81.0])
    lanes, readings = read_nvml({**library, "CUDA_VISIBLE_DEVICES": "1,0"})
    assert isinstance(readings, dict)
    assert (lanes, readings["hw.temperature"]) == (["cuda:0", "cuda:1"], [81.0, 60.0])
    assert read_nvml({**library, "CUDA_VISIBLE_DEVICES": ""}) == [[], {}]


def test_a_machine_without_a_driver_has_no_gpus(tmp_path: Path) -> None:
    """A library that is none: nothing, rather than zeros."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    assert read_nvml({"LD_LIBRARY_PATH": str(tmp_path)}) == [[], {}]


@needs_compiler
def test_samples_arrive_as_measurements(fake_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host and GPU readings of the exporter process reach the collector, GPUs keyed by lane."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with http_sink() as sink:
        run = overwatch.sdk.start(endpoint=sink.endpoint)
        sink.wait(lambda sink: {Scope.HOST, Scope.GPU} <= {event.scope for event in sink.events(Measured)})
        assert run.close(5.0).delivered
        gpu = next(event for event in sink.events(Measured) if event.scope is Scope.GPU)
        host = next(event for event in sink.events(Measured) if event.scope is Scope.HOST)
    assert gpu.keys["gpu_id"].words() == ["cuda:0", "cuda:1"]
    assert gpu.values["hw.temperature"].array().tolist() == [60.0, 81.0]
    assert 0 < host.values["system.memory.usage"].first() < host.values["system.memory.limit"].first()


def test_rates_begin_with_the_second_reading() -> None:
    """The first reading has no rates; the second has, and they are not negative."""
    host = Host()
    first, second = host.read(), host.read()
    assert "overwatch.host.network" not in first
    assert 0.0 <= second["system.cpu.utilization"] <= 1.0
    assert all(value >= 0 for value in second.values())


def test_one_process_samples_for_a_run() -> None:
    """The lock of one run is held once, another run's beside it; released, it is taken over."""
    first, second, other = SampleLock("run"), SampleLock("run"), SampleLock("other")
    try:
        assert first.held()
        assert not second.held()
        assert other.held()
        first.release()
        assert second.held()
    finally:
        for lock in (first, second, other):
            lock.release()
