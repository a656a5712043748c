"""Machines that fail or fill up are found; those that are only odd are left alone."""

from collections.abc import Callable, Iterator

import pytest

from overwatch.catalog import Scope, find
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.problem import Problem
from overwatch.events import (
    CheckpointSaved,
    Column,
    Event,
    LogLine,
    Measured,
    Origin,
    Record,
    RunFinished,
    RunStarted,
    Severity,
    scalars,
)
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

GIB = float(1 << 30)
Producer = Callable[[int], list[Event]]


def at(second: float) -> int:
    """A producer's time."""
    return START_NS + int(second * SECOND)


def gpus(second: int, lanes: tuple[str, ...] = ("gpu0", "gpu1"), **more: list[float]) -> Event:
    """Readings of these GPUs."""
    columns = {"utilization": [0.9] * len(lanes), **more}
    rows = {name: find(name, Scope.GPU) for name in columns}
    values = {row.name: Column.of(columns[name]) for name, row in rows.items() if row is not None}
    return Measured(at=at(second), scope=Scope.GPU, keys={"gpu_id": Column.of_labels(lanes)}, values=values)


def host(second: int, **readings: float) -> Event:
    """Readings of the host, by short name."""
    rows = {name: find(name, Scope.HOST) for name in readings}
    values = {row.name: readings[name] for name, row in rows.items() if row is not None}
    return Measured(at=at(second), scope=Scope.HOST, values=scalars(values))


def line(second: int, lane: str, **fields: str) -> Event:
    """A line of a sampler about a GPU."""
    return LogLine(
        at=at(second), severity=Severity.CRITICAL, subsystem="gpu", message=f"words about {lane}",
        fields={"lane": lane, **fields},
    )  # fmt: skip


def run(seconds: int, *producers: Producer) -> Iterator[tuple[int, dict[str, Problem]]]:
    """What is open after each second, by code; each producer is one rank."""
    state: RunState | None = None
    before = Assessment()
    for second in range(seconds):
        for rank, producer in enumerate(producers):
            origin = Origin(run_id="r", epoch=f"e{rank}", ours=True, rank=rank)
            for event in producer(second):
                record = Record(origin=origin, event=event, seq=None)
                state = state or new_run(record)
                apply(state, record, event.at)
        assert state is not None
        for part in range(1, 5):
            before = assess(state, before, at(second + part / 4)).assessment
        yield (
            second,
            {item.problem.code: item.problem for item in before.findings.values() if item.cleared_at is None},
        )


def last(seconds: int, *producers: Producer) -> dict[str, Problem]:
    """What is open at the end."""
    return list(run(seconds, *producers))[-1][1]


def test_an_xid_79_is_a_lost_gpu_at_once() -> None:
    """Also where a page goes on with the readings that it had; until the run starts anew."""

    def producer(second: int) -> list[Event]:
        begun = [RunStarted(at=at(second))] if second in (0, 40) else []
        return [*begun, gpus(second), *([line(second, "gpu1", xid="79")] if second == 10 else [])]

    open_by = dict(run(50, producer))

    assert "gpu-lost" not in open_by[9]
    problem = open_by[11]["gpu-lost"]
    assert (problem.severity, problem.scope, problem.subject) == ("critical", "gpu", "gpu1")
    assert "words about gpu1" in problem.message
    assert "gpu-lost" in open_by[39]
    assert "gpu-lost" not in open_by[49]


def test_a_gpu_that_its_driver_gives_back_is_lost_no_longer() -> None:
    """By the driver's own word for both."""

    def producer(second: int) -> list[Event]:
        states = {10: "lost", 20: "back"}
        word = [line(second, "gpu1", state=states[second])] if second in states else []
        return [gpus(second, ("gpu0",) if 10 <= second < 20 else ("gpu0", "gpu1")), *word]

    open_by = dict(run(30, producer))

    assert "gpu-lost" in open_by[12]
    assert "gpu-lost" not in open_by[29]


@pytest.mark.parametrize("other", ["sibling", "host"])
def test_a_gpu_whose_readings_end_alone_is_lost(other: str) -> None:
    """Its reader goes on with another GPU, or with the host: a warning, then critical."""

    def producer(second: int) -> list[Event]:
        there = ("gpu0", "gpu1") if second < 20 else ("gpu0",)
        if other == "sibling":
            return [gpus(second, there)]
        return [
            host(second, ram_used_bytes=GIB, ram_total_bytes=8 * GIB),
            *([gpus(second)] if second < 20 else []),
        ]

    open_by = dict(run(60, producer))

    assert "gpu-lost" not in open_by[24]
    assert open_by[30]["gpu-lost"].severity == "warning"
    assert open_by[59]["gpu-lost"].severity == "critical"
    assert "gives no readings" in open_by[59]["gpu-lost"].message


def test_gpus_of_a_process_that_is_gone_are_not_lost() -> None:
    """A rank that ended, or fell silent, reads its GPU no longer, while the other rank reads its own."""

    def first(second: int) -> list[Event]:
        return [gpus(second, ("gpu0",))]

    def second_rank(second: int) -> list[Event]:
        return [gpus(second, ("gpu1",))] if second < 20 else []

    def ended(second: int) -> list[Event]:
        return second_rank(second) if second != 20 else [RunFinished(at=at(second), outcome="completed")]

    assert "gpu-lost" not in last(60, first, second_rank)
    assert "gpu-lost" not in last(60, first, ended)


def test_gpus_that_are_read_rarely_are_not_lost() -> None:
    """Every twenty seconds, or once so far, while the host is read each second."""

    def producer(second: int) -> list[Event]:
        rarely = [gpus(second)] if second % 20 == 0 else []
        return [host(second, ram_used_bytes=GIB, ram_total_bytes=8 * GIB), *rarely]

    assert all("gpu-lost" not in found for _, found in run(110, producer))


@pytest.mark.parametrize("xid", ["48", "64", "94", "95"])
def test_memory_that_lost_data_by_the_drivers_word(xid: str) -> None:
    """An Xid about it is enough."""
    found = last(10, lambda second: [gpus(second), *([line(5, "gpu1", xid=xid)] if second == 5 else [])])

    assert (found["ecc-uncorrectable"].severity, found["ecc-uncorrectable"].subject) == ("critical", "gpu1")


def test_memory_errors_count_from_the_run_on() -> None:
    """What a driver counted before is another run's; after a reload it counts anew from 0."""

    def producer(counts: tuple[float, float, float]) -> Producer:
        return lambda second: [
            gpus(second, ecc_uncorrected=[0.0, counts[0 if second < 5 else 1 if second < 10 else 2]])
        ]

    assert "ecc-uncorrectable" not in last(15, producer((3.0, 3.0, 3.0)))
    assert "ecc-uncorrectable" not in last(15, producer((3.0, 0.0, 0.0)))
    problem = last(15, producer((3.0, 3.0, 5.0)))["ecc-uncorrectable"]
    assert problem.message == "2 uncorrected memory errors in this run"
    assert "1 uncorrected memory error " in last(15, producer((3.0, 0.0, 1.0)))["ecc-uncorrectable"].message


@pytest.mark.parametrize(
    ("xid", "code"), [("74", "gpu-fault"), ("119", "gpu-fault"), ("13", None), ("x", None)]
)
def test_other_errors_of_a_device_are_a_warning_for_a_while(xid: str, code: str | None) -> None:
    """Those that the program itself made are none, nor what is no number."""
    found = last(10, lambda second: [gpus(second), *([line(5, "gpu1", xid=xid)] if second == 5 else [])])

    assert set(found) == ({code} if code else set())
    if code:
        assert found[code].severity == "warning"


def full(used: Callable[[int], float], total: float, what: str) -> Producer:
    """A host of which something fills up."""
    return lambda second: [host(second, **{f"{what}_used_bytes": used(second), f"{what}_total_bytes": total})]


def test_memory_that_rises_is_forecast() -> None:
    """A leak of one per cent a second: a warning while there is time, critical in the last minute."""
    open_by = dict(run(60, full(lambda second: (0.4 + 0.01 * second) * 64 * GIB, 64 * GIB, "ram")))
    first = next(second for second, found in open_by.items() if "host-memory" in found)

    assert first < 50
    assert open_by[55]["host-memory"].severity == "critical"
    assert "full in about" in open_by[first]["host-memory"].message
    assert open_by[first]["host-memory"].subject == "rank 0"


def test_memory_that_rises_and_stays_is_none() -> None:
    """A buffer that fills to four fifths and is full then."""
    producer = full(lambda second: min(0.3 + 0.01 * second, 0.8) * 64 * GIB, 64 * GIB, "ram")

    assert all(not found for _, found in run(90, producer))


def test_hosts_are_judged_one_by_one() -> None:
    """Two nodes whose readings come in turn: the one that is short is named, the other is not."""

    def node(name: str, used: float) -> Producer:
        def producer(second: int) -> list[Event]:
            begun = [RunStarted(at=at(second), node=name)] if second == 0 else []
            return [*begun, host(second, ram_used_bytes=used * GIB, ram_total_bytes=64 * GIB)]

        return producer

    found = last(15, node("n1", 10.0), node("n2", 63.9))

    assert found["host-memory"].subject == "n2"
    assert "memory of n2 100% full" in found["host-memory"].message


@pytest.mark.parametrize(
    ("what", "used", "total", "severity"),
    [
        ("ram", 59.0, 64.0, None),
        ("ram", 61.5, 64.0, "warning"),
        ("ram", 63.0, 64.0, "critical"),
        ("ram", 64.0, 64.0, "critical"),
        ("disk", 90.0, 100.0, None),
        ("disk", 96.0, 100.0, "warning"),
        ("disk", 99.5, 100.0, "critical"),
        ("disk", 9700.0, 10000.0, None),
        ("disk", 9990.0, 10000.0, "warning"),
        ("disk", 0.0, 0.0, None),
    ],
)
def test_a_host_that_is_short(what: str, used: float, total: float, severity: str | None) -> None:
    """By the share that is used, held for a while; a disk by what is left too."""
    found = last(10, full(lambda _: used * GIB, total * GIB, what))
    code = "host-memory" if what == "ram" else "disk-full"

    assert {code: problem.severity for code, problem in found.items()} == (
        {code: severity} if severity else {}
    )


def test_a_disk_without_room_for_the_next_checkpoint() -> None:
    """However much else it has."""

    def producer(second: int) -> list[Event]:
        saved = CheckpointSaved(at=at(second), path="c", size_bytes=int(60 * GIB))
        return [
            host(second, disk_used_bytes=150 * GIB, disk_total_bytes=200 * GIB),
            *([saved] if second == 3 else []),
        ]

    assert last(10, producer)["disk-full"].severity == "warning"


def test_readings_that_are_old_judge_nothing() -> None:
    """A host that was full when it was last read."""
    producer = full(lambda _: 64 * GIB, 64 * GIB, "ram")
    found = last(
        40, lambda second: producer(second) if second < 5 else [fakes.policy(at(second), second, entropy=0.5)]
    )

    assert "host-memory" not in found


def saving(seconds: set[int], path: str = "ckpt-{}") -> Producer:
    """An update a second, and checkpoints at some of them."""
    return lambda second: [
        fakes.policy(at(second), second + 1, entropy=0.5),
        *([CheckpointSaved(at=at(second), path=path.format(second))] if second in seconds else []),
    ]


def test_checkpoints_that_ended_are_found() -> None:
    """They came every ten updates; two of them are missing, and updates go on."""
    open_by = dict(run(90, saving({10, 20, 30, 40, 50})))
    first = next(second for second, found in open_by.items() if "checkpoints-stopped" in found)

    assert first == 71
    assert open_by[71]["checkpoints-stopped"].severity == "warning"
    assert "usual every 10s, 10 updates" in open_by[71]["checkpoints-stopped"].message


@pytest.mark.parametrize(
    "seconds",
    [{10, 20}, {10, 12, 30, 34, 60}, {1, 2, 4, 8, 16, 32}, set(range(0, 90, 10)), set()],
    ids=["too few", "irregular", "rarer and rarer", "all", "none"],
)
def test_checkpoints_without_a_schedule_are_not_missed(seconds: set[int]) -> None:
    """Only what came regularly can be overdue."""
    assert all("checkpoints-stopped" not in found for _, found in run(90, saving(seconds)))


@pytest.mark.parametrize(
    "words",
    [
        "failed to save checkpoint: [Errno 28] No space left on device",
        "OSError: [Errno 30] Read-only file system: 'runs/ckpt-10.pt'",
        "saving model to s3://b/m.pt: AccessDenied, permission denied",
    ],
)
@pytest.mark.parametrize("saves", [set(), {5}], ids=["none ever", "one before"])
def test_saves_that_fail_from_the_first_on_are_found_at_the_second(words: str, saves: set[int]) -> None:
    """By the lines of the log, of which each failure has three; what was saved since ends it."""

    def producer(second: int) -> list[Event]:
        wrong = [
            LogLine(at=at(second) + n, severity=Severity.CRITICAL, message=words)
            for n in range(3)
            if second % 10 == 9 and second < 60
        ]
        return [*wrong, *saving(saves | {61})(second)]

    open_by = dict(run(70, producer))

    assert "checkpoints-stopped" not in open_by[18]
    assert words in open_by[20]["checkpoints-stopped"].message
    assert "checkpoints-stopped" not in open_by[69]


@pytest.mark.parametrize(
    "words", ["failed to load checkpoint c1, starting anew", "saved checkpoint", "error bars saved? no: 3"]
)
def test_lines_about_checkpoints_that_are_no_failure_of_a_save(words: str) -> None:
    """What is read, what went well, and a warning that comes once."""
    once = {5} if "bars" in words else set(range(60))

    def producer(second: int) -> list[Event]:
        lines = [LogLine(at=at(second), severity=Severity.WARNING, message=words)] if second in once else []
        return [*lines, fakes.policy(at(second), second + 1, entropy=0.5)]

    assert all("checkpoints-stopped" not in found for _, found in run(60, producer))


def breathing(second: int, every_s: int, kept: int) -> float:
    """GiB of a disk on which a checkpoint of ten is written in the last 20 s of each interval; some stay."""
    number, into = divmod(second, every_s)
    return 130 + 10 * min(number, kept) + 10 * max(0, into - (every_s - 20)) / 20


@pytest.mark.parametrize(("every_s", "kept"), [(60, 3), (150, 3), (400, 2)])
def test_a_disk_that_breathes_fills_up_never(every_s: int, kept: int) -> None:
    """It goes up while a checkpoint is written, and down when the oldest goes; memory that does so too."""
    used = {second: breathing(second, every_s, kept) * GIB for second in range(10 * every_s)}
    seconds = min(10 * every_s, 1500)
    for what in ("disk", "ram"):
        found = [open_by for _, open_by in run(seconds, full(used.__getitem__, 200 * GIB, what))]
        assert not any(found)


def test_a_disk_that_breathes_and_fills_up_is_found() -> None:
    """Each breath goes higher than all before."""

    def used(second: int) -> float:
        return (84 + 8 * (second % 40) / 40 + 0.05 * second) * GIB

    assert "disk-full" in last(500, full(used, 130 * GIB, "disk"))


def test_the_best_policy_is_saved_by_no_schedule() -> None:
    """However regularly it was at first."""
    assert "checkpoints-stopped" not in last(90, saving({10, 20, 30, 40, 50}, "runs/best_model.zip"))


def test_several_files_of_one_checkpoint_are_one() -> None:
    """Of all ranks, or of the model and its optimiser."""

    def producer(second: int) -> list[Event]:
        files = [CheckpointSaved(at=at(second) + n, path=f"part-{n}") for n in range(4)]
        return [
            fakes.policy(at(second), second + 1, entropy=0.5),
            *(files if second % 10 == 0 and second < 60 else []),
        ]

    open_by = dict(run(90, producer))

    assert "checkpoints-stopped" not in open_by[69]
    assert "checkpoints-stopped" in open_by[75]
