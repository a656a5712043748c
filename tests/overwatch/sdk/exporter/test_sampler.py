"""The machine's readings: the host as it is, GPUs by a libnvidia-ml built for the test."""

import fcntl
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

import overwatch.sdk
from overwatch.catalog import Scope
from overwatch.events import Event, Measured
from overwatch.sdk.exporter.gpus import SampleLimits, Trainer
from overwatch.sdk.exporter.host import Disk, Host
from overwatch.sdk.exporter.probe import SampleLock
from overwatch.sdk.exporter.sampler import Sampler
from tests.overwatch.sdk.sink import http_sink
from tests.real.fake_nvml.machine import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    VERSION_MISMATCH,
    Machine,
)


def errors_in(body: bytes) -> list[dict[str, str]]:
    """The attributes of the `hw.errors` counters of one request for third parties."""
    return [
        {pair.key: pair.value.string_value for pair in point.attributes}
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "hw.errors" and metric.sum.is_monotonic
        for point in metric.sum.data_points
    ]


def test_samples_arrive_as_measurements(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host and GPU readings of the exporter process reach the collector, GPUs by UUID with a label."""
    machine.gpus("GPU-a", "GPU-b")
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)
    with http_sink() as sink:
        run = overwatch.sdk.start(endpoint=sink.endpoint)
        sink.wait(lambda sink: {Scope.HOST, Scope.GPU} <= {event.scope for event in sink.events(Measured)})
        assert run.close(5.0).delivered
        gpu = next(event for event in sink.events(Measured) if event.scope is Scope.GPU)
        host = next(event for event in sink.events(Measured) if event.scope is Scope.HOST)
        points = [point for path, body in sink.bodies if path == "/v1/metrics" for point in errors_in(body)]
    assert gpu.keys["gpu_id"].words() == ["GPU-a", "GPU-b"]
    assert {"hw.id": "GPU-b", "hw.type": "gpu", "error.type": "uncorrected"} in points
    assert gpu.values["label"].words() == ["cuda:0", "cuda:1"]
    assert gpu.values["hw.temperature"].array().tolist() == [60.0, 60.0]
    assert gpu.values["overwatch.gpu.throttle"].words() == ["none", "none"]
    assert 0 < host.values["system.memory.usage"].first() < host.values["system.memory.limit"].first()


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetFieldValues"]
)
def test_a_call_that_hangs_ages_its_own_lane_alone(machine: Machine, call: str) -> None:
    """The other GPU and the host are sampled on, with no thread more; the lane comes back with the call.

    The fake library ends the process when one GPU is read twice at a time.
    """
    machine.gpus("GPU-a", "GPU-b")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(seen.stated("gpu", "GPU-a") and seen.stated("gpu", "GPU-b")))
        sampler.wait_more("host", count=3)
        machine.put({f"1.stall.{call}": 1})
        sampler.wait_more("gpu", "GPU-a", count=3)
        before, threads = len(sampler.stated("gpu", "GPU-b")), sampler.stated("gpu", "GPU-a")[-1]["threads"]
        sampler.wait_more("gpu", "GPU-a", count=20)
        sampler.wait_more("host", count=5)
        assert len(sampler.stated("gpu", "GPU-b")) == before
        assert sampler.stated("gpu", "GPU-a")[-1]["threads"] == threads
        machine.put({f"1.stall.{call}": None, "1.util": 99})
        sampler.wait(lambda seen: seen.stated("gpu", "GPU-b")[-1]["hw.gpu.utilization"] == 0.99)


def test_a_driver_that_hangs_leaves_the_host(machine: Machine) -> None:
    """Where the driver never comes up the host is sampled, and its GPUs are from when it does."""
    machine.gpus("GPU-a")
    machine.put({"stall.nvmlInit": 1})
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: len(seen.stated("host")) >= 5)
        assert sampler.stated("gpu") == []
        machine.put({"stall.nvmlInit": None})
        sampler.wait_more("gpu")


def test_a_lost_gpu_is_absent_and_logged_once(machine: Machine) -> None:
    """No sample, one line of log; the other GPU is not disturbed, and a return is reported as well."""
    machine.gpus("GPU-a", "GPU-b")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(seen.stated("gpu", "GPU-b")))
        machine.put({"1.error": GPU_IS_LOST})
        sampler.wait(lambda seen: bool(seen.stated("log")))
        before = len(sampler.stated("gpu", "GPU-b"))
        sampler.wait_more("gpu", "GPU-a", count=20)
        assert len(sampler.stated("gpu", "GPU-b")) == before
        [line] = sampler.stated("log")
        assert (line["severity"], line["lane"]) == ("critical", "GPU-b")
        assert line["message"] == "cuda:1 is lost: the driver no longer reaches it"
        machine.put({"1.error": None})
        sampler.wait_more("gpu", "GPU-b")
        assert [line["message"] for line in sampler.stated("log")][1:] == ["cuda:1 answers again"]


def test_a_reloaded_driver_is_opened_again(machine: Machine) -> None:
    """Handles that the driver forgot, then no driver at all, then a new one: the lanes come back."""
    machine.gpus("GPU-a", "GPU-b")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(seen.stated("gpu", "GPU-a")))
        machine.put({"driver": 2, "error.nvmlInit": DRIVER_NOT_LOADED})
        sampler.wait(lambda seen: len(seen.stated("log")) == 2)
        sampler.wait_more("host", count=10)
        machine.put({"error.nvmlInit": None, "0.util": 5})
        sampler.wait(lambda seen: seen.stated("gpu", "GPU-a")[-1]["hw.gpu.utilization"] == 0.05)
        sampler.wait_more("gpu", "GPU-b")


def test_a_reading_that_is_missing_is_never_zero(machine: Machine) -> None:
    """A lane without power or throttle flags has no such value, beside one that has both."""
    machine.gpus("GPU-a", "GPU-b")
    machine.put({"1.error.nvmlDeviceGetPowerUsage": NOT_SUPPORTED, "1.throttle": None})
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(seen.stated("gpu", "GPU-a") and seen.stated("gpu", "GPU-b")))
        whole, poor = sampler.stated("gpu", "GPU-a")[-1], sampler.stated("gpu", "GPU-b")[-1]
    assert (whole["hw.power"], whole["overwatch.gpu.throttle"]) == (250.5, "none")
    assert not {"hw.power", "overwatch.gpu.throttle"} & poor.keys()
    assert poor["hw.temperature"] == 60.0


def test_an_xid_is_a_line_of_log(machine: Machine) -> None:
    """With its number, its meaning and its lane, once; a program's own fault is only a warning."""
    machine.gpus("GPU-a", "GPU-b")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(seen.stated("gpu", "GPU-b")))
        machine.put({"xid": "1 1 79"})
        sampler.wait(lambda seen: len(seen.stated("log")) == 1)
        machine.put({"xid": "2 0 31"})
        sampler.wait(lambda seen: len(seen.stated("log")) == 2)
        sampler.wait_more("gpu", "GPU-a", count=5)
        first, second = sampler.stated("log")
    assert (first["severity"], first["lane"], first["xid"]) == ("critical", "GPU-b", "79")
    assert first["message"] == "Xid 79 on cuda:1: GPU has fallen off the bus"
    assert (second["severity"], second["lane"], second["xid"]) == ("warning", "GPU-a", "31")


def test_a_driver_that_cannot_be_read_is_a_line_of_log_once(machine: Machine) -> None:
    """With its reason and the machine, by one of the run's processes; a driver that is not there is none."""
    machine.gpus("GPU-a")
    machine.put({"error.nvmlInit": VERSION_MISMATCH})
    with machine.sampler() as first, machine.sampler() as second:
        first.wait(lambda seen: len(seen.stated("log") + second.stated("log")) == 1)
        first.wait(lambda seen: len(seen.stated("host") + second.stated("host")) >= 10)
        [line] = first.stated("log") + second.stated("log")
    assert "the driver and its library are of different versions" in line["message"]
    assert (line["severity"], line["node"]) == ("warning", "n1")
    machine.put({"error.nvmlInit": DRIVER_NOT_LOADED})
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: len(seen.stated("host")) >= 10)
        assert sampler.stated("log") == []


def test_only_gpus_that_the_run_can_see_are_its_lanes(machine: Machine) -> None:
    """Under `CUDA_VISIBLE_DEVICES=3,1` two of four GPUs are sampled, numbered as the trainer sees them."""
    machine.gpus("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    with machine.sampler(CUDA_VISIBLE_DEVICES="3,1") as sampler:
        sampler.wait_more("gpu", "GPU-b", count=3)
        labels = {entry["lane"]: (entry["label"], entry["node"]) for entry in sampler.stated("gpu")}
    assert labels == {"GPU-d": ("cuda:0", "n1"), "GPU-b": ("cuda:1", "n1")}


def test_no_visible_gpu_is_no_lane(machine: Machine) -> None:
    """An empty `CUDA_VISIBLE_DEVICES` hides all GPUs; the host is sampled."""
    machine.gpus("GPU-a")
    with machine.sampler(CUDA_VISIBLE_DEVICES="") as sampler:
        sampler.wait(lambda seen: len(seen.stated("host")) >= 5)
        assert sampler.stated("gpu") == []


def test_processes_of_a_run_share_the_machine(machine: Machine) -> None:
    """The second process emits only what its trainer holds, until the first one dies; then it emits all."""
    machine.gpus("GPU-a", process=f"22 {GIB}")
    with machine.sampler(TRAINER="11") as first:
        first.wait(lambda seen: bool(seen.stated("gpu") and seen.stated("host")))
        with machine.sampler(TRAINER="22") as second:
            second.wait_more("gpu", count=5)
            assert second.stated("host") == []
            reported = {name for entry in second.stated("gpu") for name in entry if "." in name}
            assert reported == {"overwatch.gpu.process.memory"}
            assert all("overwatch.gpu.process.memory" not in entry for entry in first.stated("gpu"))
            first.process.kill()
            second.wait_more("host", count=2)
            second.wait(lambda seen: "hw.temperature" in seen.stated("gpu")[-1])


def test_ranks_that_see_different_gpus_sample_their_own(machine: Machine) -> None:
    """Where a launcher shows each rank one GPU, every GPU is sampled, each by the rank that sees it."""
    machine.gpus("GPU-a", "GPU-b")
    with (
        machine.sampler(CUDA_VISIBLE_DEVICES="0") as first,
        machine.sampler(CUDA_VISIBLE_DEVICES="1") as second,
    ):
        first.wait_more("gpu", count=3)
        second.wait_more("gpu", count=3)
        assert {entry["lane"] for entry in first.stated("gpu")} == {"GPU-a"}
        assert {entry["lane"] for entry in second.stated("gpu")} == {"GPU-b"}


def test_two_runs_on_one_machine_are_both_sampled(machine: Machine) -> None:
    """Each run has the readings under its own id."""
    machine.gpus("GPU-a")
    with machine.sampler("one") as first, machine.sampler("two") as second:
        for sampler in (first, second):
            sampler.wait(lambda seen: bool(seen.stated("gpu")) and "hw.power" in seen.stated("gpu")[-1])


def test_an_end_in_order_leaves_no_lock_files(machine: Machine, tmp_path: Path) -> None:
    """Locks are tidied away when they are given back."""
    machine.gpus("GPU-a")
    with machine.sampler() as sampler:
        sampler.wait(lambda seen: bool(seen.stated("gpu") and seen.stated("host")))
        assert len(list(tmp_path.rglob("sampler-*.lock"))) == 2
        sampler.stop()
        assert list(tmp_path.rglob("sampler-*.lock")) == []


def test_words_of_a_trainer_are_looked_up_on_its_machine(machine: Machine) -> None:
    """The map of a machine with four GPUs under `CUDA_VISIBLE_DEVICES=3,1`, and what torch states of one."""
    machine.gpus("GPU-a", "GPU-b", "GPU-c", "GPU-d")

    named = machine.words(
        "lane_map(Trainer(node='n1'), RunStarted(at=1, lanes={'GPU-x': 'cuda:1'}))",
        "cuda:0", "cuda:1", "cuda:2", "cpu", CUDA_VISIBLE_DEVICES="3,1",
    )  # fmt: skip

    assert named == ["GPU-d", "GPU-x", "cuda:2@n1", "cpu"]


def test_a_driver_that_hangs_is_not_waited_for(machine: Machine) -> None:
    """Its devices stay lanes of this machine without a GPU."""
    machine.gpus("GPU-a")
    machine.put({"stall.nvmlInit": 1})

    named = machine.words("lane_map(Trainer(node='n1'), RunStarted(at=1), 0.2)", "cuda:0")

    assert named == ["cuda:0@n1"]


def test_the_disk_is_that_of_the_newest_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else that of the trainer's folder; a relative path begins there, an address is on no disk of ours."""
    requested = list[str]()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()

    def usage(path: str) -> SimpleNamespace:
        requested.append(path)
        return SimpleNamespace(used=30, free=50, total=100)

    monkeypatch.setattr(psutil, "disk_usage", usage)
    disk = Disk(os.getpid())
    values = disk.read()
    for path in ("saved/one.pt", "not/there/yet.pt", "/nowhere/else/x", "s3://bucket/key", ""):
        disk.saved(path)
        disk.read()

    here = str(tmp_path)
    assert values == {"system.filesystem.usage": 30.0, "system.filesystem.limit": 80.0}
    assert requested == [here, f"{here}/saved", here, "/", "/", "/"]


def test_a_checkpoint_leads_the_sampler_to_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a real exporter: the readings of the host hold the disk's, and the row is that disk's."""
    for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with http_sink() as sink:
        run = overwatch.sdk.start(endpoint=sink.endpoint)
        run.checkpoint_saved(str(tmp_path / "c.pt"))
        sink.wait(
            lambda sink: any("system.filesystem.usage" in event.values for event in sink.events(Measured))
        )
        assert run.close(5.0).delivered
        event = next(e for e in sink.events(Measured) if "system.filesystem.usage" in e.values)
    assert event.scope is Scope.HOST
    assert (
        0 < event.values["system.filesystem.usage"].first() <= event.values["system.filesystem.limit"].first()
    )


def test_a_disk_that_hangs_leaves_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readings are missing; memory and processors are read on."""
    events, hang, ended = list[Event](), threading.Event(), threading.Event()

    def never(_path: str) -> None:
        hang.set()
        ended.wait()

    monkeypatch.setattr(psutil, "disk_usage", never)
    enough = threading.Event()

    def keep(event: Event) -> None:
        events.append(event)
        if sum(isinstance(one, Measured) for one in events) >= 3:
            enough.set()

    sampler = Sampler(
        "hanging", keep, Trainer(pid=os.getpid(), env={}), SampleLimits(interval_s=0.05, gather_s=0.01)
    )
    sampler.start()
    try:
        assert hang.wait(20)
        assert enough.wait(20)
    finally:
        sampler.stop()
        ended.set()
    assert all(
        "system.filesystem.usage" not in event.values for event in events if isinstance(event, Measured)
    )


def test_a_host_that_shows_nothing_of_itself_is_absent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised, at the beginning either, and each part that is missing is logged once."""

    def refuse(**_: object) -> None:
        raise FileNotFoundError("/proc/stat")

    for name in ("virtual_memory", "cpu_percent", "disk_io_counters", "net_io_counters"):
        monkeypatch.setattr(psutil, name, refuse)
    host = Host()
    assert [host.read(), host.read()] == [{}, {}]
    assert len(caplog.messages) == 4


def test_rates_begin_with_the_second_reading() -> None:
    """The first reading has no rates; the second has, and they are not negative."""
    host = Host()
    first, second = host.read(), host.read()
    assert "overwatch.host.network" not in first
    assert 0.0 <= second["system.cpu.utilization"] <= 1.0
    assert 0.0 <= second["overwatch.host.cpu.busiest"] <= 1.0
    assert all(value >= 0 for value in second.values())


def test_one_process_samples_for_a_run() -> None:
    """The lock of one thing of one run is held once, others beside it; released, it is taken over."""
    first, second = SampleLock("run", "host"), SampleLock("run", "host")
    others = SampleLock("other", "host"), SampleLock("run", "GPU-a")
    try:
        assert first.held()
        assert not second.held()
        assert all(other.held() for other in others)
        first.release()
        assert second.held()
        assert not first.held()
    finally:
        for lock in (first, second, *others):
            lock.release()


def test_a_lock_file_that_was_tidied_away_is_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last holder may go between the opening and the locking of the file: the next try has a new one."""
    lock, other, flock = SampleLock("run", "host"), SampleLock("run", "host"), fcntl.flock

    def late(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        Path(f"/proc/self/fd/{file}").readlink().unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    try:
        assert not lock.held()
        assert lock.held()
        assert not other.held()
    finally:
        lock.release()
        other.release()


def test_the_trainer_is_the_parent() -> None:
    """Unless it is reported otherwise, own memory is that of the process that started this one."""
    assert Trainer().pid == os.getppid()
