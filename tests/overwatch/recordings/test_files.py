"""Reading a recording that is rotated, packed, joined and thinned meanwhile: what was listed is found."""

import os
from pathlib import Path

import msgspec
import pytest

from overwatch.otlp.jsonl import from_json
from overwatch.recordings.compaction import Rules
from overwatch.recordings.files import RecordingFiles
from overwatch.recordings.index import Located, read_entry
from overwatch.recordings.tidy import CompactionJob, tidy
from tests.overwatch.recordings.folders import Recorder, batches, names

PACKS = Rules(thins=False)


def listed(files: RecordingFiles) -> list[Located]:
    """Every batch that the index names, with the file in which it lies now."""
    found = []
    for piece, line in files.lines():
        entry = read_entry(line)
        if isinstance(entry, Located):
            found.append(msgspec.structs.replace(entry, file=files.stored(piece, entry.file)))
    return found


def bodies(files: RecordingFiles, entries: list[Located]) -> list[bytes]:
    """What the batches hold."""
    return [from_json(entry.signal, files.line(entry)) for entry in entries]


def recorded(folder: Path, seconds: int = 9) -> Recorder:
    """So many pieces of a second each, and one that is written to."""
    recorder = Recorder(folder, PACKS)
    for second in range(seconds):
        recorder.steps(second, second + 1)
        recorder.writer.rotate()
    recorder.steps(seconds, seconds + 1)
    return recorder


def test_what_was_listed_is_read_after_each_rotation_packing_and_joining(tmp_path: Path) -> None:
    """Also where a new live index could take the inode of one that was packed away."""
    recorder = Recorder(tmp_path, PACKS)
    recorder.steps(0, 1)
    files = RecordingFiles(tmp_path)
    entries = listed(files)
    reported = bodies(files, entries)

    for second in range(1, 20):
        recorder.steps(second, second + 1)
        recorder.writer.rotate()
        recorder.tidy()
        assert bodies(files, entries) == reported
    assert any(piece.first < piece.last for piece in files.list().pieces)
    assert [batch.body for batch in batches(tmp_path)][: len(reported)] == reported


def test_pieces_that_are_joined_while_the_index_is_read_are_listed_once(tmp_path: Path) -> None:
    """Lines asked for before a clean-up and taken after it are those that were there."""
    recorder = recorded(tmp_path)
    whole = [batch.sequence for batch in batches(tmp_path)]
    reading = RecordingFiles(tmp_path).lines()
    first = next(reading)
    recorder.tidy()
    recorder.writer.rotate()
    recorder.tidy()

    entries = [read_entry(line) for _, line in (first, *reading)]
    assert [entry.sequence for entry in entries if isinstance(entry, Located)] == whole


def test_packed_pieces_that_are_joined_after_they_were_listed_are_found(tmp_path: Path) -> None:
    """Their batches lie elsewhere in other files, and are the same."""
    recorder = recorded(tmp_path, seconds=7)
    recorder.tidy()
    files = RecordingFiles(tmp_path)
    entries = listed(files)
    recorder.writer.rotate()
    recorder.tidy()

    assert {entry.file for entry in entries[:50]}.isdisjoint(names(tmp_path))
    assert bodies(files, entries) == [batch.body for batch in batches(tmp_path)]


def test_a_batch_is_read_while_its_file_is_half_rotated(tmp_path: Path) -> None:
    """The data file has its new name and the index has not."""
    recorder = recorded(tmp_path, seconds=1)
    files = RecordingFiles(tmp_path)
    entries = listed(files)
    reported = bodies(files, entries)
    recorder.writer.close()
    (tmp_path / "logs.jsonl").rename(tmp_path / "logs-000002-000002-0.jsonl")

    assert bodies(files, entries) == reported


def test_what_went_is_an_error_that_names_the_batch(tmp_path: Path) -> None:
    """Of a piece of which nothing is kept."""
    recorder = recorded(tmp_path, seconds=1)
    files = RecordingFiles(tmp_path)
    entry = listed(files)[0]
    recorder.tidy(now=recorder.newest + 10**15, rules=Rules(max_days=1))

    with pytest.raises(FileNotFoundError, match=f"batch {entry.sequence} is not there any more"):
        files.line(entry)


def test_one_job_is_done_for_a_collector_that_has_gone(tmp_path: Path) -> None:
    """So that one that is killed over and over is tidied too, and no process works on unasked."""
    recorder = recorded(tmp_path)
    orders = CompactionJob(folder=str(tmp_path), now=recorder.newest, through=9, rules=PACKS, parent=1 << 30)

    assert tidy(orders).jobs == 1
    assert tidy(msgspec.structs.replace(orders, parent=os.getppid())).jobs == 9
