"""`object_store` over a server of S3 that fails for a while: runs that ended are there, and replay."""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from overwatch import codec
from overwatch.backup.one_run import RunJob, keep, name_of
from overwatch.backup.place import read, restore, verify
from overwatch.collector.exporters.object_store import ObjectStoreConfig
from overwatch.events import RunFinished
from overwatch.feeds.inputs import Recording, open_input
from overwatch.journal import Signal
from overwatch.objects.store import below, open_store
from overwatch.otlp import wire
from tests.overwatch.collector.running import eventually, reported, run_started, running, update
from tests.overwatch_rl.servers import FaultProxy, moto_address, s3_url

__all__ = ["moto_address"]
RUNS = ("a/run", "b run")
PIPELINE = "service.pipelines.snapshots.exporters=[snapshots, object_store]"


@pytest.fixture
def proxy(moto_address: str) -> Iterator[FaultProxy]:
    """A server that is gone until its `rate` is lowered."""
    with FaultProxy(moto_address, rate=1.0, kinds=("error", "drop")) as made:
        yield made


def together(*bodies: bytes) -> bytes:
    """Several requests as one, as a gateway joins them."""
    request = wire.parse(Signal.LOGS, bodies[0])
    for body in bodies[1:]:
        request.MergeFrom(wire.parse(Signal.LOGS, body))
    return request.SerializeToString()


def snapshots_of(recording: Path, run_id: str) -> list[bytes]:
    """What a replay shows of a run, without what is said of the whole collector."""
    found = open_input(recording)
    assert isinstance(found, Recording)
    shown = [snapshot for snapshot in found.recorded() if snapshot.run.run_id == run_id]
    return [codec.encode(msgspec.structs.replace(snapshot, tower=shown[0].tower)) for snapshot in shown]


def test_a_run_that_ended_is_kept_once_the_store_is_back(tmp_path: Path, proxy: FaultProxy) -> None:
    """Both of two runs that shared their batches, each alone; the collector accepts meanwhile."""
    place = s3_url(proxy.address, uuid4().hex)
    sets = [
        f"exporters.object_store={{place: {place!r}, after_s: 0, timeout_s: 0.5}}",
        PIPELINE,
    ]  # fmt: skip
    with running(tmp_path / "data", *sets) as service:
        tally, journal = service.context.tally, service.context.journal
        for number in range(4):
            events = [[run_started()]] if number == 0 else [[update(0.01 * number, number)]]
            journal.append(Signal.LOGS, together(*(reported(run, events[0], number + 1) for run in RUNS)))
            time.sleep(0.3)
        ended = [RunFinished(at=time.time_ns(), outcome="completed")]
        journal.append(Signal.LOGS, together(*(reported(run, ended, 5) for run in RUNS)))
        eventually(lambda: tally.get("overwatch_exporter_failed_uploads", exporter="object_store") >= 1, 60)
        assert "object_store" in service.context.health.degraded
        journal.append(Signal.LOGS, reported("c", [run_started()]))
        proxy.rate = 0.0
        eventually(lambda: tally.get("overwatch_exporter_kept_runs", exporter="object_store") == 2, 90)
        assert "object_store" not in service.context.health.degraded

    with running(tmp_path / "data", *sets) as service:
        # The next life knows them.
        time.sleep(1)
        assert service.context.tally.get("overwatch_exporter_kept_runs", exporter="object_store") == 0
    for run_id in RUNS:
        store = open_store(below(place, name_of(run_id)))
        manifest = read(store)[1]
        assert verify(store, manifest) == []
        folder = tmp_path / f"fetched-{RUNS.index(run_id)}"
        restore(store, manifest, folder)
        text = b"".join(path.read_bytes() for path in folder.rglob("*.jsonl"))
        assert not any(other.encode() in text for other in RUNS if other != run_id)
        shown = snapshots_of(folder, run_id)
        assert shown
        whole = snapshots_of(tmp_path / "data/otlp", run_id)
        assert shown == whole[: len(shown)]


def test_what_is_beyond_a_limit_goes_the_oldest_first(tmp_path: Path) -> None:
    """By count, by bytes and by age; each run is gone whole."""
    with running(tmp_path / "data") as service:
        for number, run in enumerate("abc"):
            service.context.journal.append(Signal.LOGS, reported(run, [run_started(), update(0.1)]))
            eventually(lambda need=number + 1: recorded(tmp_path / "data/otlp") >= need)
    job = RunJob(recording=str(tmp_path / "data/otlp"), run_id="a", place=str(tmp_path / "kept"))

    def kept(run: str, **limits: float) -> list[str]:
        keep(msgspec.structs.replace(job, run_id=run, **limits))
        time.sleep(1.1)  # Names of backups are by the second.
        return sorted({entry.key.partition("/")[0] for entry in open_store(tmp_path / "kept").list()})

    assert kept("a") == ["a"]
    assert kept("b") == ["a", "b"]
    assert kept("c", keep_runs=2) == ["b", "c"]
    assert kept("a", keep_mib=1e-6) == ["a"]
    assert kept("b") == ["a", "b"]
    assert kept("c", keep_days=2 / 86_400) == ["b", "c"]


def recorded(folder: Path) -> int:
    """Batches in the index of a recording."""
    index = folder / "index.jsonl"
    return index.read_bytes().count(b'"logs.jsonl"') if index.exists() else 0


def test_any_run_id_is_a_name() -> None:
    """Different ones have different names, which every store takes."""
    ids = ["a", "a/b", "a%2Fb", "a=2Fb", "..", ".", "ü" * 200, "ü" * 199 + "u", "x" * 256, " "]
    made = [name_of(run_id) for run_id in ids]
    assert len(set(made)) == len(ids)
    assert all(len(name) < 200 and "/" not in name and not name.startswith(".") for name in made)


def test_a_place_that_is_none_is_named() -> None:
    """With what to use; without a place the key is missing."""
    with pytest.raises(ValueError, match="'ftp://x' is no store; use a folder, or a URL of file, s3"):
        ObjectStoreConfig(place="ftp://x")
    assert ObjectStoreConfig().missing == ("place", "the store has no place; give one, e.g. s3://bucket/runs")
