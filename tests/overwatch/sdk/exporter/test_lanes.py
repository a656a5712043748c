"""Lanes are GPUs by UUID: what CUDA shows of a machine, and what a trainer's words mean."""

import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, Event, LogLine, Measured, RunStarted, Severity
from overwatch.sdk.exporter.lanes import Gpu, LaneMap, VisibleDevices, visible_devices

BARE = "0a1b2c3d-0000-1111-2222-333344445555"


def alike(*uuids: str) -> list[Gpu]:
    """GPUs of one model, in the driver's order."""
    return [
        Gpu(uuid=uuid, model="H200", pci=f"00000000:{index:02X}:00.0", index=index)
        for index, uuid in enumerate(uuids)
    ]


def unlike() -> list[Gpu]:
    """A small GPU on the first bus, a large one on the second."""
    small, large = alike("GPU-small", "GPU-large")
    return [Gpu(uuid=small.uuid, model="T400", pci=small.pci, index=0), large]


def split() -> list[Gpu]:
    """A GPU in two parts beside a whole one."""
    first, second = alike("GPU-a", "GPU-b")
    parts = ("MIG-x", "MIG-y")
    return [Gpu(uuid=first.uuid, model="H200", pci=first.pci, partitioned=True, parts=parts), second]


def seen(found: VisibleDevices) -> dict[str, str]:
    """UUIDs by label."""
    return {lane.label: lane.id for lane in found.lanes}


FOUR = alike("GPU-aa", "GPU-ab", "GPU-b", "GPU-c")


@pytest.mark.parametrize(
    ("chosen", "uuids"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-b", "GPU-c"]),
        ("3,1", ["GPU-c", "GPU-ab"]),
        (" 2 , 0 ", ["GPU-b", "GPU-aa"]),
        ("", []),
        ("-1", []),
        ("1,7,0", ["GPU-ab"]),
        ("1,-1,0", ["GPU-ab"]),
        ("1,no,0", ["GPU-ab"]),
        ("0,0", []),
        ("1x,2", ["GPU-ab", "GPU-b"]),
        ("GPU-b", ["GPU-b"]),
        ("GPU-c,GPU-ab", ["GPU-c", "GPU-ab"]),
        ("GPU-c,GPU-a,GPU-b", ["GPU-c"]),
        ("GPU-c,GPU-zz,GPU-b", ["GPU-c"]),
        ("GPU-c,1", ["GPU-c"]),
        ("1,GPU-c", ["GPU-ab"]),
        ("GPU-c,GPU-c", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(chosen: str | None, uuids: list[str]) -> None:
    """Numbers, UUIDs and their beginnings, in their order; the first that names none ends the list."""
    env = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}

    found = visible_devices(FOUR, env)

    assert found.certain
    assert [lane.id for lane in found.lanes] == uuids
    assert [lane.label for lane in found.lanes] == [f"cuda:{place}" for place in range(len(uuids))]


def test_gpus_are_in_bus_order_whatever_the_driver_reports() -> None:
    """The driver's own numbers promise no order; CUDA's of alike GPUs is that of the bus."""
    first, second = alike("GPU-a", "GPU-b")
    swapped = [
        Gpu(uuid="GPU-b", model="H200", pci=second.pci, index=0),
        Gpu(uuid="GPU-a", model="H200", pci=first.pci, index=1),
    ]

    assert seen(visible_devices(swapped, {})) == {"cuda:0": "GPU-a", "cuda:1": "GPU-b"}


@pytest.mark.parametrize("chosen", [None, "0,1", "1"])
def test_unlike_gpus_by_number_are_not_guessed(chosen: str | None) -> None:
    """CUDA puts the fastest first and does not state which that is: no GPU is called `cuda:0`."""
    env = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}

    found = visible_devices(unlike(), env)

    assert not found.certain
    assert seen(found) == {"gpu0": "GPU-small", "gpu1": "GPU-large"}
    assert LaneMap(found, "n1").lane("cuda:0") == "cuda:0@n1"


def test_unlike_gpus_in_bus_order_are_certain() -> None:
    """`CUDA_DEVICE_ORDER=PCI_BUS_ID` settles it, and so do UUIDs."""
    by_bus = visible_devices(unlike(), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"})
    by_uuid = visible_devices(unlike(), {"CUDA_VISIBLE_DEVICES": "GPU-large"})

    assert seen(by_bus) == {"cuda:0": "GPU-large", "cuda:1": "GPU-small"}
    assert seen(by_uuid) == {"cuda:0": "GPU-large"}
    assert by_bus.certain
    assert by_uuid.certain


def test_a_part_of_a_gpu_is_a_lane() -> None:
    """CUDA shows the first MIG device that is named, by its UUID or the beginning of it."""
    for chosen in ("MIG-y", "MIG-y,MIG-x", "MIG-y,GPU-b"):
        assert seen(visible_devices(split(), {"CUDA_VISIBLE_DEVICES": chosen})) == {"cuda:0": "MIG-y"}
    assert seen(visible_devices(split(), {"CUDA_VISIBLE_DEVICES": "MIG-"})) == {}


@pytest.mark.parametrize("env", [{}, {"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "GPU-a"}])
def test_numbers_of_split_gpus_are_not_guessed(env: dict[str, str]) -> None:
    """Which part of a split GPU a number means is CUDA's to know."""
    found = visible_devices(split(), env)

    assert not found.certain
    assert {"gpu0.0": "MIG-x", "gpu0.1": "MIG-y"}.items() <= seen(found).items()


def lanes(chosen: str, reported: dict[str, str] | None = None) -> LaneMap:
    """A trainer's words on the machine of four GPUs."""
    return LaneMap(visible_devices(FOUR, {"CUDA_VISIBLE_DEVICES": chosen}), "n1", reported)


@pytest.mark.parametrize(
    ("name", "lane"),
    [
        ("cuda:0", "GPU-c"),
        ("cuda:1", "GPU-ab"),
        ("cuda:2", "cuda:2@n1"),
        ("cuda", "cuda@n1"),
        ("cpu", "cpu"),
        ("gpu0", "gpu0"),
        ("worker-3", "worker-3"),
        ("GPU-b", "GPU-b"),
        (BARE, f"GPU-{BARE}"),
    ],
)
def test_words_of_the_trainer_become_lane_ids(name: str, lane: str) -> None:
    """A visible device is its UUID; one that is not is a lane of this machine; other words stay."""
    assert lanes("3,1").lane(name) == lane


def test_a_device_without_a_number_is_the_only_one() -> None:
    """`cuda` is clear where one GPU can be seen."""
    assert lanes("2").lane("cuda") == "GPU-b"


def test_a_trainer_that_knows_its_uuid_is_believed() -> None:
    """What torch reports of its device goes before what the environment suggests."""
    mapped = lanes("3,1", {"cuda:0": BARE})

    assert (mapped.lane("cuda:0"), mapped.lane("cuda:1")) == (f"GPU-{BARE}", "GPU-ab")


def test_a_machine_without_a_driver_names_its_own_lanes() -> None:
    """Nothing is known of the devices, but not mistaken for another machine's."""
    assert LaneMap(VisibleDevices(), "n1").lane("cuda:0") == "cuda:0@n1"


def test_a_start_names_its_lanes_by_id() -> None:
    """Devices are ids, each once; the words they were called by go along, also of one named by UUID."""
    started = RunStarted(at=1, devices=("cuda:0", "GPU-ab", "cpu", "cuda:0"))

    event = lanes("3,1").translate(started)

    assert isinstance(event, RunStarted)
    assert event.devices == ("GPU-c", "GPU-ab", "cpu")
    assert event.lanes == {"GPU-c": "cuda:0", "GPU-ab": "cuda:1"}


def test_lanes_of_envs_and_of_readings_are_translated() -> None:
    """The words of the columns change, their rows do not."""
    words = Column.of_labels(["cuda:1", None, "cuda:0", "cuda:1", "cpu"])
    envs = Measured(at=1, scope=Scope.ENV, keys={"env_id": Column.of(range(5))}, values={"lane": words})
    reported = Measured(
        at=1, scope=Scope.GPU, keys={"gpu_id": words}, values={"hw.power": Column.of([1.0] * 5)}
    )

    first, second = (lanes("3,1").translate(event) for event in (envs, reported))

    assert isinstance(first, Measured)
    assert isinstance(second, Measured)
    expected = ["GPU-ab", None, "GPU-c", "GPU-ab", "cpu"]
    assert first.values["lane"].words() == second.keys["gpu_id"].words() == expected


def test_an_event_without_lanes_is_itself() -> None:
    """Nothing is copied that need not be."""
    events: list[Event] = [
        LogLine(at=1, severity=Severity.INFO, message="cuda:0"),
        Measured(at=1, scope=Scope.ENV, keys={"env_id": Column.of([0])}, values={"reward": Column.of([1.0])}),
    ]

    assert all(lanes("3,1").translate(event) is event for event in events)
