"""`object_store` over a server of S3 that fails for a while: runs that ended are there, and replay."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from overwatch import codec
from overwatch.backup.one_run import RunJob, keep, name_of, within
from overwatch.backup.place import read, restore, verify
from overwatch.collector.exporters.object_store import ObjectStoreConfig, ObjectStoreExporter
from overwatch.events import Event, RunFinished
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
    """What a replay shows of a run."""
    found = open_input(recording)
    assert isinstance(found, Recording)
    return [codec.encode(snapshot) for snapshot in found.recorded() if snapshot.run.run_id == run_id]


def keeps(data: Path, place: str, heal: Callable[[], object]) -> None:
    """Two runs that shared their batches are kept, each alone, once the place takes them."""
    sets = [f"exporters.object_store={{place: {place!r}, after_s: 0, timeout_s: 0.5}}", PIPELINE]
    with running(data, *sets) as service:
        tally, journal = service.context.tally, service.context.journal
        events: list[list[Event]] = [[run_started()], [update(0.01)], [update(0.02, 2)]]
        for number, one in enumerate(events, start=1):
            journal.append(Signal.LOGS, together(*(reported(run, one, number) for run in RUNS)))
        eventually(lambda: all(snapshots_in(data).count(f'"run_id":"{run}"') >= 2 for run in RUNS))
        ended: list[Event] = [RunFinished(at=time.time_ns(), outcome="completed")]
        journal.append(Signal.LOGS, together(*(reported(run, ended, 4) for run in RUNS)))
        eventually(lambda: tally.get("overwatch_exporter_failed_uploads", exporter="object_store") >= 1, 90)
        assert "object_store" in service.context.health.degraded
        journal.append(Signal.LOGS, reported("c", [run_started()]))
        heal()
        eventually(lambda: tally.get("overwatch_exporter_kept_runs", exporter="object_store") == 2, 120)
        assert "object_store" not in service.context.health.degraded
    for number, run_id in enumerate(RUNS):
        store = open_store(below(place, name_of(run_id)))
        manifest = read(store)[1]
        assert verify(store, manifest) == []
        folder = data / f"fetched-{number}"
        restore(store, manifest, folder)
        assert runs_of(folder) == {run_id}
        shown, whole = snapshots_of(folder, run_id), snapshots_of(data / "otlp", run_id)
        assert shown
        assert shown == whole[: len(shown)]


def snapshots_in(data: Path) -> str:
    """The log of snapshots, none where it is not there yet."""
    log = data / "snapshots.jsonl"
    return log.read_text() if log.exists() else ""


def runs_of(recording: Path) -> set[str]:
    """The runs that a replay shows."""
    found = open_input(recording)
    assert isinstance(found, Recording)
    return {snapshot.run.run_id for snapshot in found.recorded()}


def test_a_run_that_ended_is_kept_once_the_folder_is_back(tmp_path: Path) -> None:
    """A file stands where the folder should be; the next life keeps nothing twice."""
    place, data = tmp_path / "kept", tmp_path / "data"
    place.write_text("no folder")
    keeps(data, str(place), lambda: (place.unlink(), place.mkdir()))
    again = f"exporters.object_store={{place: {str(place)!r}, after_s: 0}}"
    held = sorted(path.name for path in place.rglob("*.json"))
    with running(data, again, PIPELINE) as service:
        eventually(lambda: service.context.notifier.latest)
    assert sorted(path.name for path in place.rglob("*.json")) == held


def test_a_run_that_ended_is_kept_once_the_store_is_back(tmp_path: Path, proxy: FaultProxy) -> None:
    """Over S3; a request after another fails, or ends without an answer, until the server is back."""
    keeps(tmp_path / "data", s3_url(proxy.address, uuid4().hex), lambda: setattr(proxy, "rate", 0.0))


def test_a_run_that_cannot_be_kept_holds_no_other_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is refused each time, as when its recording is gone: the second one is kept."""
    tried: list[str] = []

    def refused(_: ObjectStoreExporter, run_id: str) -> str | None:
        tried.append(run_id)
        return "it is gone" if run_id == tried[0] else None

    monkeypatch.setattr(ObjectStoreExporter, "_keep", refused)
    sets = [f"exporters.object_store={{place: {str(tmp_path / 'kept')!r}, after_s: 0}}", PIPELINE]
    with running(tmp_path / "data", *sets) as service:
        for run in RUNS:
            service.context.journal.append(Signal.LOGS, reported(run, [run_started(), update(0.01)]))
        ended: list[Event] = [RunFinished(at=time.time_ns(), outcome="completed")]
        for run in RUNS:
            service.context.journal.append(Signal.LOGS, reported(run, ended, 3))
        tally = service.context.tally
        eventually(lambda: tally.get("overwatch_exporter_kept_runs", exporter="object_store") == 1, 30)


def test_a_run_is_needed_until_it_is_kept_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last picture outlives `archive_days` meanwhile; what waits is remembered when it left memory."""
    place, tried = tmp_path / "kept", list[str]()
    place.write_text("no folder")
    sets = [
        f"exporters.object_store={{place: {str(place)!r}, after_s: 0, timeout_s: 0.2}}", PIPELINE,
        "exporters.aggregator={ended_days: 0, archive_days: 0}",
    ]  # fmt: skip
    monkeypatch.setattr("overwatch.serve.archive._CLEAN_S", 0.05)
    with running(tmp_path / "data", *sets) as service:
        tally, archive = service.context.tally, service.context.archive
        assert archive is not None
        ended: list[Event] = [run_started(), update(0.1), RunFinished(at=time.time_ns(), outcome="completed")]
        service.context.journal.append(Signal.LOGS, reported("a", ended))
        eventually(lambda: archive.holds("a"), 30)
        eventually(lambda: tally.get("overwatch_exporter_failed_uploads", exporter="object_store") >= 1, 90)
        assert archive.holds("a")
        assert tally.get("overwatch_archive_removed_runs", reason="age") == 0

    def done(_: ObjectStoreExporter, run_id: str) -> str | None:
        tried.append(run_id)
        return None

    monkeypatch.setattr(ObjectStoreExporter, "_keep", done)
    with running(tmp_path / "data", *sets) as service:
        tally = service.context.tally
        eventually(lambda: tally.get("overwatch_archive_removed_runs", reason="age") == 1, 30)
    assert tried == ["a"]
    assert not list((tmp_path / "data/ended").iterdir())


def test_what_is_beyond_a_limit_goes_the_oldest_first(tmp_path: Path) -> None:
    """By count, by bytes and by age; each run is gone whole."""
    with running(tmp_path / "data") as service:
        for number, run in enumerate("abc"):
            service.context.journal.append(Signal.LOGS, reported(run, [run_started(), update(0.1)]))
            eventually(lambda need=number + 1: recorded(tmp_path / "data/otlp") >= need)
    job = RunJob(recording=str(tmp_path / "data/otlp"), run_id="a", place=str(tmp_path / "kept"))

    def kept(run: str, **limits: float) -> list[str]:
        keep(msgspec.structs.replace(job, run_id=run, **limits))
        return sorted({entry.key.partition("/")[0] for entry in open_store(tmp_path / "kept").list()})

    assert kept("a") == ["a"]
    assert kept("b") == ["a", "b"]
    assert kept("c", keep_runs=2) == ["b", "c"]
    assert kept("a", keep_mib=1e-6) == ["a"]
    assert kept("b") == ["a", "b"]
    store = open_store(tmp_path / "kept")
    day = msgspec.structs.replace(job, keep_days=1)
    assert within(store, day, time.time()) == 0
    assert within(store, day, time.time() + 2 * 86_400) == 2
    assert store.list() == []


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
