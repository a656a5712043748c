"""The collector's disk budget: what counts for which part, what others take, and what is shown of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch.collector.budget import NOTE, StorageBudget, look
from overwatch.collector.health import Health
from overwatch.collector.settings import written
from overwatch.collector.telemetry import stored
from overwatch.serve.metrics_text import FamilyBuilder
from tests.overwatch.collector.running import config

MIB = 1 << 20
UNIT = 4096


def disk(monkeypatch: pytest.MonkeyPatch, size: Callable[[], int], free: Callable[[], int]) -> None:
    """A volume of so many MiB, and so many free."""
    real = os.statvfs

    def state(path: str) -> os.statvfs_result:
        found = list(real(path))
        found[0] = found[1] = UNIT
        found[2], found[3] = size() * MIB // UNIT, free() * MIB // UNIT
        found[4] = found[3]
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", state)


def put(folder: Path, name: str, mib: int) -> None:
    """A file with something in it."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x" * (mib * MIB))


def test_every_file_counts_for_its_part_once(tmp_path: Path) -> None:
    """Checkpoints lie beside the journal, snapshots beside everything, and the recording has folders."""
    for name, mib in (
        ("journal/journal-1.ow1", 1), ("journal/fold-0.checkpoint", 2), ("otlp/logs.jsonl", 3),
        ("otlp/checkpoints/a.fold", 1), ("snapshots.jsonl", 1), ("snapshots-7.jsonl.zst", 4), ("mine", 1),
        ("ended/a.run", 2),
    ):  # fmt: skip
        put(tmp_path, name, mib)
    usage = look(written(config(tmp_path)))

    assert {part.name: part.bytes // MIB for part in usage.parts} == {
        "journal": 1, "checkpoints": 2, "otlp_file": 4, "archive": 2, "snapshots": 5,
    }  # fmt: skip


def test_what_is_not_in_a_pipeline_has_no_share(tmp_path: Path) -> None:
    """Without snapshots nothing is kept free for them."""
    usage = look(written(config(tmp_path, "service.pipelines.snapshots.exporters=[prometheus]")))

    assert "snapshots" not in usage.shares


def test_each_of_several_recordings_has_a_share(tmp_path: Path) -> None:
    """Those with names of their own too."""
    more = (f"exporters.otlp_file/copy.path={tmp_path}/copy",
            "service.pipelines.logs.exporters=[aggregator, otlp_file, otlp_file/copy]")  # fmt: skip
    usage = look(written(config(tmp_path, *more)))

    assert usage.shares["otlp_file/copy"] > 0


@pytest.mark.parametrize("free", [60, 0])
@pytest.mark.parametrize("size", [1000, 300])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_others_on_the_volume_take_nothing_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, free: int, size: int, is_restarted: bool
) -> None:
    """They fill it, or it shrinks: no share does; health names what to do; a volume that grows is used."""
    room = {"size": 1000, "free": 900}
    disk(monkeypatch, lambda: room["size"], lambda: room["free"])
    health = Health()
    storage = StorageBudget(written(config(tmp_path)), health)
    storage._look()
    before = {name: storage.room(name)() for name in ("otlp_file", "snapshots", "archive", "journal")}
    assert all(before.values())
    assert health.degraded == {}

    room.update(size=size, free=free)
    if is_restarted:
        health = Health()
        storage = StorageBudget(written(config(tmp_path)), health)
    storage._look()
    assert {name: storage.room(name)() for name in before} == before
    assert f"{free} MiB are free" in health.degraded["storage"]
    assert "extensions.file_storage.budget_mib" in health.degraded["storage"]

    room.update(size=2000, free=1800)
    storage._look()
    assert health.degraded == {}
    assert all(storage.room(name)() > most for name, most in before.items())


def test_a_folder_without_a_noted_budget_keeps_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start may be on a volume that others have filled; what stands for a note may be anything."""
    disk(monkeypatch, lambda: 1000, lambda: 0)
    put(tmp_path, "otlp/logs.jsonl", 40)
    os.mkfifo(tmp_path / NOTE)
    storage = StorageBudget(written(config(tmp_path)), Health())
    storage._look()

    assert storage.usage is not None
    assert storage.usage.most >= 40 * MIB


def test_a_disk_that_cannot_be_looked_at_leaves_what_was_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is shown, and nothing is taken from anybody."""
    health = Health()
    storage = StorageBudget(written(config(tmp_path)), health)
    storage._look()
    granted = storage.room("snapshots")()

    def refuse(path: str) -> os.statvfs_result:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(os, "statvfs", refuse)
    storage._look()

    assert storage.room("snapshots")() == granted
    assert "Input/output error" in health.degraded["storage"]


def test_growth_is_what_came_on_top(tmp_path: Path) -> None:
    """Unknown at first; then bytes a day, and on the page."""
    storage = StorageBudget(written(config(tmp_path)), Health())
    storage._look()
    assert storage.growth_per_day is None

    put(tmp_path, "otlp/logs.jsonl", 4)
    storage._look()
    growth = storage.growth_per_day

    assert growth is not None
    assert growth >= 4 * MIB
    page = FamilyBuilder()
    stored(storage, page)
    assert "overwatch_storage_growth_bytes_per_day" in [family.name for family in page.families()]


@pytest.mark.parametrize(("setting", "least"), [("budget_mib=191", "192"), ("max_size_mib=63", "64")])
def test_a_budget_in_which_nothing_can_work_is_refused(tmp_path: Path, setting: str, least: str) -> None:
    """The value and the least are named."""
    with pytest.raises(ValueError, match=f"{setting.partition('=')[2]} is less than {least}"):
        config(tmp_path, f"extensions.file_storage.{setting}")
