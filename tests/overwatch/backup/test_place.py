"""Backups of a real collector's data folder: whole, cheap to repeat, refused where they are not whole."""

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from overwatch import codec
from overwatch.backup.capture import captured
from overwatch.backup.manifest import FORMAT, BackupError, Manifest, encoded
from overwatch.backup.place import names, prune, read, restore, save, verify
from overwatch.cli import main
from overwatch.collector.budget import NOTE
from overwatch.feeds.recording import Recording
from overwatch.journal import Batch, Place, Signal
from overwatch.journal.cursors import CursorFile
from overwatch.journal.folder import Folder
from overwatch.objects.digests import sha256_of
from overwatch.objects.retrying import Patience
from overwatch.objects.store import Store, open_store
from overwatch.recordings.index import Located, Started
from overwatch.serve.recording import RecordingWriter
from tests.e2e.killing import Collector, Sender, indexed, reported
from tests.overwatch.collector.running import eventually, running
from tests.overwatch.collector.running import reported as lines_of
from tests.overwatch_rl.servers import s3_url

NOW = 1_700_000_000_000_000_000
SOON = Patience(deadline_s=5.0, request_s=10.0, first_s=0.01, most_s=0.02)


def opened(place: Path | str) -> Store:
    """The store, with little patience."""
    return open_store(place, SOON)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a collector that accepted something and was stopped."""
    folder = tmp_path / "data"
    with running(folder) as service:
        service.context.journal.append(Signal.LOGS, lines_of("run-1", [], 1))
        recorded = folder / "otlp/index.jsonl"
        eventually(lambda: recorded.exists() and b'"logs"' in recorded.read_bytes())
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """What lies below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def survive(tmp_path: Path, place: str, *sets: str, slow: bool = False) -> int:
    """Back up in the midst of a load, kill, restore elsewhere and go on; how many lines that were."""
    first = Collector(tmp_path / "first", *sets, slow=slow)
    senders = [Sender(f"run-{number}", first) for number in range(3)]
    first.start()
    for sender in senders:
        sender.start()
    acknowledged: list[dict[str, int]] = []
    try:
        for wait_s in (2.5, 0.7, 0.9):
            threading.Event().wait(wait_s)
            acknowledged.append({sender.run_id: sender.acknowledged for sender in senders})
            save(first.folder, opened(place), NOW + len(acknowledged) * 10**9)
        first.kill()
    finally:
        # A sender ends with a request that arrived.
        first.start()
        for sender in senders:
            sender.stop()
        first.kill()
    store = opened(place)
    assert len(names(store)) == len(acknowledged)
    restore(store, read(store)[1], tmp_path / "second")
    # Compiled code, which costs more than all the rest.
    shutil.copytree(first.folder / "pycache", tmp_path / "second/pycache")
    check(tmp_path / "second", senders, acknowledged[-1])
    return sum(acknowledged[-1].values())


def check(folder: Path, senders: list[Sender], least: dict[str, int]) -> None:
    """A collector goes on in a restored folder; recording, frames and what was acknowledged agree."""
    collector = Collector(folder)
    collector.start()
    later = Sender("run-later", collector)
    later.start()
    eventually(lambda: later.acknowledged > 200)
    later.stop()
    collector.stop()
    copies = Counter(reported(folder / "otlp"))
    for sender in senders:
        assert set(range(1, least[sender.run_id] + 1)) <= {n for run, n in copies if run == sender.run_id}
        for first, attempts in sender.attempts.items():
            assert copies[sender.run_id, first] <= attempts
    entries = [entry for entry in indexed(folder / "otlp") if isinstance(entry, Located | Started)]
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    recording = Recording(folder / "otlp")
    began = recording.segments()[-1].first
    live = [codec.decode(line) for line in (folder / "snapshots.jsonl").read_bytes().splitlines()]
    shown = [codec.encode(snapshot) for snapshot in live if snapshot.time * 1e9 >= began]
    assert shown == [
        codec.encode(snapshot) for snapshot in recording.recorded() if snapshot.time * 1e9 >= began
    ]
    assert shown
    assert "Traceback" not in collector.log


@pytest.mark.long
def test_a_backup_under_load_holds_what_was_acknowledged(tmp_path: Path) -> None:
    """From a folder; the restored collector goes on without a batch doubled or missing."""
    assert survive(tmp_path, str(tmp_path / "copies")) > 0


def test_a_backup_while_files_rotate_goes_into_an_object_store(tmp_path: Path, moto_address: str) -> None:
    """The same on a slow disk where files rotate each second and old ones are packed and joined meanwhile."""
    below = "exporters.otlp_file.rotation"
    place = s3_url(moto_address, uuid4().hex)
    assert survive(tmp_path, place, f"{below}.max_minutes=0.01", f"{below}.max_megabytes=1", slow=True) > 0


def test_a_second_backup_writes_only_what_changed(data: Path, tmp_path: Path) -> None:
    """And a removed one takes the files with it that no other needs."""
    store = opened(tmp_path / "copies")
    first = save(data, store, NOW)
    again = save(data, store, NOW + 10**9)
    (data / "ended").mkdir(exist_ok=True)
    (data / "ended/one.run").write_bytes(b"more")
    third = save(data, store, NOW + 2 * 10**9)

    assert first.written > 0
    assert (again.written, again.files) == (0, first.files)
    assert (third.written, third.files) == (4, first.files + 1)
    (data / "ended/one.run").unlink()
    fourth = save(data, store, NOW + 3 * 10**9)
    assert prune(store, 1) == [first.name, again.name, third.name]
    assert names(store) == [fourth.name]
    assert verify(store, read(store)[1]) == []
    assert len(store.list("files")) == len({kept.sha256 for kept in read(store)[1].files})


def test_a_restored_folder_is_the_one_that_was_copied(data: Path, tmp_path: Path) -> None:
    """Byte for byte, without locks and snapshots, also a second time from the restored one."""
    store = opened(tmp_path / "copies")
    save(data, store, NOW)
    restore(store, read(store)[1], tmp_path / "new")
    save(tmp_path / "new", store, NOW + 10**9)

    held = tree(tmp_path / "new")
    left = ("lock", "journal/lock", "otlp/tidy.lock", NOTE)
    wanted = {path: held for path, held in tree(data).items() if "snapshots" not in path and path not in left}
    assert held == wanted
    assert any(path.startswith("journal/") for path in held)


@pytest.mark.parametrize("harm", ["cut", "changed", "missing"])
def test_a_backup_that_is_not_whole_is_refused_with_nothing_changed(
    data: Path, tmp_path: Path, harm: str
) -> None:
    """By name, before the folder is touched; another backup is not affected."""
    store = opened(tmp_path / "copies")
    save(data, store, NOW)
    _, manifest = read(store)
    kept = max(manifest.files, key=lambda one: one.bytes)
    path = tmp_path / "copies/files" / kept.sha256[:2] / kept.sha256
    whole = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] if harm == "cut" else bytes([whole[0] ^ 1]) + whole[1:])

    with pytest.raises(BackupError, match="the backup is not whole"):
        restore(store, manifest, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (line,) = verify(store, manifest)
    assert line.startswith(kept.path)
    assert kept.sha256 in line


def test_a_manifest_that_was_altered_is_refused(data: Path, tmp_path: Path) -> None:
    """Its name holds its digest; one of a newer format, and one that leads elsewhere, are named too."""
    store = opened(tmp_path / "copies")
    saved = save(data, store, NOW)
    path = tmp_path / f"copies/backups/{saved.name}.json"
    fields = json.loads(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"journal", b"j0urnal"))
    with pytest.raises(BackupError, match=f"manifest of backup {saved.name} is torn or was altered"):
        read(store)

    for changed, words in (
        ({"format": FORMAT + 1}, f"format {FORMAT + 1}, and this Overwatch reads {FORMAT}; use a newer"),
        ({"files": [{**fields["files"][0], "path": "../../etc/passwd"}]}, "no file of a data folder"),
        ({"files": [{**fields["files"][0], "sha256": "../x"}]}, "no file of a data folder"),
    ):
        name, encoding = named({**fields, **changed})
        store.put(f"backups/{name}.json", encoding)
        with pytest.raises(BackupError, match=words):
            read(store, name)


def named(fields: dict[str, object]) -> tuple[str, bytes]:
    """A manifest as anybody could write it, under the name that its bytes have."""
    data = json.dumps(fields).encode()
    return f"20230101T000000.000Z-{sha256_of(data)[:16]}", data


def test_a_folder_that_holds_something_is_left_alone(data: Path, tmp_path: Path) -> None:
    """One of a living collector, one with any file, a file; an empty folder is taken."""
    store = opened(tmp_path / "copies")
    save(data, store, NOW)
    manifest = read(store)[1]
    before = tree(data)
    with running(data) as service:
        assert service is not None
        with pytest.raises(BackupError, match="is not empty; restore into a new folder"):
            restore(store, manifest, data)
    assert before.keys() <= tree(data).keys()
    (tmp_path / "file").write_text("x")
    with pytest.raises(BackupError, match="is not empty"):
        restore(store, manifest, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    restore(store, manifest, tmp_path / "empty")
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["journal", "otlp"]


def test_a_folder_without_data_and_a_half_rotated_recording_are_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fix; the copy would not be what a collector can go on from."""
    monkeypatch.setattr("overwatch.backup.capture._TRIES", 2)
    (tmp_path / "nothing").mkdir()
    with (
        pytest.raises(BackupError, match="holds no journal and no recording"),
        captured(tmp_path / "nothing"),
    ):
        pass
    shutil.move(data / "otlp/logs.jsonl", data / "otlp/logs-000001-000001-0.jsonl")
    with pytest.raises(BackupError, match="a rotation was cut short"), captured(data):
        pass


def test_a_rotation_behind_the_place_is_waited_for(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is kept right after a rotation agrees in length with the files of the next one."""
    monkeypatch.setattr("overwatch.backup.capture._TRIES", 2)
    cursor = CursorFile(Folder(data / "journal"), "otlp_file")
    assert cursor.place is not None
    note = json.loads(cursor.place.note)
    writer = RecordingWriter(data / "otlp", (Signal.LOGS,))

    def keep() -> None:
        marks = {name: {"inode": one.inode, "length": one.length} for name, one in writer.marks().items()}
        place = Place(position=2, note=json.dumps({**note, "marks": marks}).encode())
        cursor.save(place)

    writer.rotate()
    keep()
    with captured(data) as found:
        assert {"otlp/index.jsonl", "otlp/index-000001-000001-0.jsonl"} <= {one.path for one in found}
    writer.write(Batch(sequence=2, stamp=NOW, signal=Signal.LOGS, body=lines_of("run-1", [], 2)))
    writer.rotate()
    # What keeping begins with: the new files are there.
    writer.marks()
    with pytest.raises(BackupError, match="does not agree with its place"), captured(data):
        pass
    keep()
    with captured(data) as found:
        assert "otlp/index-000002-000002-0.jsonl" in {one.path for one in found}


def test_the_commands_make_list_verify_and_restore(data: Path, tmp_path: Path) -> None:
    """From end to end, and what cannot be is one line."""
    place = str(tmp_path / "copies")
    run = CliRunner().invoke
    made = run(main, ["backup", "make", place, "--data", str(data), "--keep", "2"])
    assert made.exit_code == 0, made.output
    name = made.output.partition(":")[0]
    assert name in run(main, ["backup", "list", place]).output
    assert f"{name}: " in run(main, ["backup", "verify", place]).output
    restored = run(main, ["backup", "restore", place, str(tmp_path / "new"), "--backup", name])
    assert restored.exit_code == 0, restored.output
    assert f"overwatch collect --data {tmp_path / 'new'}" in restored.output
    for words, wrong in (
        (["restore", place, str(tmp_path / "new")], "is not empty"),
        (["verify", place, "--backup", "other"], "holds no backup 'other'"),
        (["list", "ftp://x/y"], "is no store"),
    ):
        refused = run(main, ["backup", *words])
        assert refused.exit_code == 1
        assert wrong in refused.output


def test_the_name_of_a_manifest_sorts_by_its_moment() -> None:
    """So that the newest is the last."""
    moments = (5_000, 5_001, 50_000, 500_000_000, 10**12)
    made = [encoded(Manifest(overwatch="0", at_ns=at * 10**6, files=()))[0] for at in moments]
    assert made == sorted(made)
