"""Data folders that older versions left are opened, or refused by name with nothing changed.

`older/` holds one for each format that there was; `older/make.py` makes another.
"""

import tarfile
from pathlib import Path
from typing import Final

import pytest

from overwatch.backup.capture import JOURNAL
from overwatch.collector import StartError
from overwatch.collector.checkpoints import NAMES, VERSION
from overwatch.feeds.inputs import Recording, open_input
from overwatch.journal import INDEX_VERSION
from overwatch.journal.records import VERSION as JOURNAL_VERSION
from overwatch.journal.records import LogVersionError
from overwatch.journal.scan import scan
from overwatch.recordings.index import Located, Started
from overwatch.recordings.pieces import Piece, inventory
from tests.e2e.killing import indexed
from tests.overwatch.collector.running import eventually, running

OLDER: Final = sorted((Path(__file__).parent / "older").glob("*.tar.xz"))
RUN: Final = "older"


def unpacked(fixture: Path, folder: Path) -> Path:
    """A copy to open."""
    with tarfile.open(fixture) as packed:
        packed.extractall(folder, filter="data")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """What lies below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pieces_of(recording: Path) -> tuple[Piece, ...]:
    """The pieces of a recording that count."""
    return inventory([path.name for path in recording.iterdir()]).pieces


def formats(folder: Path) -> dict[str, int]:
    """The versions that a data folder is of."""
    segment = next((folder / JOURNAL).glob("journal-*.ow*"))
    checkpoint = (folder / JOURNAL / NAMES[0]).read_bytes()
    header = (folder / "otlp/index.jsonl").read_bytes().splitlines()[0]
    return {
        "journal": int(segment.suffix.removeprefix(".ow")),
        "checkpoint": checkpoint[4],
        "index": int(header.partition(b'"overwatch_index":')[2][:1]),
    }


@pytest.mark.parametrize("fixture", OLDER, ids=lambda path: path.name.partition(".tar")[0])
def test_an_older_folder_is_opened_and_loses_nothing(fixture: Path, tmp_path: Path) -> None:
    """What its journal held is in the recording, its run is judged, and the collector goes on.

    These folders are of another day, so that age alone would thin their numbers: here nothing is thinned.
    """
    folder = unpacked(fixture, tmp_path / "data")
    accepted = [kept.sequence for kept in scan(folder / JOURNAL)]
    has_place = (folder / JOURNAL / "otlp_file.cursor").exists()

    with running(folder, "exporters.otlp_file.thinning.enabled=false") as service:
        latest = service.context.notifier
        eventually(lambda: latest.latest and any(run == RUN for run, _ in latest.latest.snapshots))
        assert service.context.journal.opened_at == accepted[-1] + 1
        eventually(lambda: any(piece.is_packed for piece in pieces_of(folder / "otlp")))

    every = indexed(folder / "otlp")
    entries = [entry.sequence for entry in every if isinstance(entry, Located | Started)]
    # The first ones kept no place of the recording: what their journal holds is written to it again.
    assert len(entries) == len(set(entries)) or not has_place
    assert set(accepted) <= set(entries)
    recording = open_input(folder / "otlp")
    assert isinstance(recording, Recording)
    assert recording.bad_batches == recording.bad_lines == 0
    assert {snapshot.run.run_id for snapshot in recording.recorded()} == {RUN}


def test_a_newer_folder_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    """With the way back."""
    folder = unpacked(OLDER[-1], tmp_path / "data")
    segment = next((folder / JOURNAL).glob("journal-*.ow*"))
    newer = segment.rename(segment.with_suffix(f".ow{JOURNAL_VERSION + 1}"))
    before = tree(folder)

    words = f"{newer.name} was written by a newer version.*restore a backup"
    with pytest.raises(StartError, match=words), running(folder):
        pass
    with pytest.raises(LogVersionError, match="install that version again"):
        list(scan(folder / JOURNAL))
    after = tree(folder)
    assert {path: after[path] for path in before if not path.endswith("lock")} == {
        path: held for path, held in before.items() if not path.endswith("lock")
    }


def test_each_format_of_today_has_a_folder(tmp_path: Path) -> None:
    """A version that is raised needs one made by `older/make.py`, so that the next release opens it."""
    now = {"journal": JOURNAL_VERSION, "checkpoint": VERSION, "index": INDEX_VERSION}
    found = [formats(unpacked(fixture, tmp_path / fixture.name)) for fixture in OLDER]
    assert now in found
    assert len({each["checkpoint"] for each in found}) > 1
