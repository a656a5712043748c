"""The log on disk: order, rotation, damage, crashes, full disks."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.journal import (
    HEADER_BYTES,
    Folder,
    FolderBusyError,
    Log,
    LogLimits,
    LogSyncError,
    LogVersionError,
    LogWriteError,
)
from tests.overwatch.journal.faults import Fault, FaultyFiles

SMALL = LogLimits(segment_bytes=1024)
BIG = 64
"""Records of a file of 64 KiB, each `LONG` times as long as that of a small file."""
LONG = 26
SOME = 200
"""Places of damage that are drawn."""


def _payload(sequence: int, times: int = 1) -> bytes:
    return f"record {sequence} ".encode() * (1 + sequence % 7) * times


def _fill(log: Log, count: int, times: int = 1) -> None:
    for _ in range(count):
        log.append(log.next_sequence % 256, log.next_sequence * 10, _payload(log.next_sequence, times))


def _found(log: Log, start: int | None = None, times: int = 1) -> list[int]:
    """Sequences of the records kept, each of them checked against what was written."""
    found = []
    for record in log.read(start):
        assert record.payload == _payload(record.sequence, times)
        assert (record.kind, record.stamp) == (record.sequence % 256, record.sequence * 10)
        found.append(record.sequence)
    return found


def _write(path: Path, count: int, limits: LogLimits | None = None, times: int = 1) -> list[Path]:
    folder = Folder(path)
    log = Log(folder, limits=limits)
    _fill(log, count, times)
    log.close()
    folder.close()
    return sorted(path.glob("*.ow1"))


def test_a_record_is_read_where_it_lies(tmp_path: Path) -> None:
    """By its place, over many files; `None` where it is damaged, gone, or where there is another."""
    folder = Folder(tmp_path / "log")
    log = Log(folder, limits=SMALL)
    _fill(log, 50)
    places = {record.sequence: offset for record, offset in log.placed()}

    assert list(places) == list(range(1, 51))
    for sequence, offset in places.items():
        record = log.at(sequence, offset)
        assert record is not None
        assert (record.sequence, record.payload) == (sequence, _payload(sequence))
    assert log.at(2, places[1]) is None
    newest = log.parts[-1]
    with (tmp_path / "log" / newest.name).open("r+b") as file:
        file.seek(places[50] + HEADER_BYTES)
        file.write(b"?")
    assert log.at(50, places[50]) is None
    (tmp_path / "log" / log.parts[0].name).unlink()
    assert log.at(1, places[1]) is None
    log.close()
    folder.close()


def test_records_come_back_in_order_over_many_files_and_a_restart(tmp_path: Path) -> None:
    """What was appended is read again from any place, by the writer and by the next one."""
    folder = Folder(tmp_path / "log")
    log = Log(folder, limits=SMALL)
    reader = log.reader()
    _fill(log, 50)

    assert _found(log) == list(range(1, 51))
    assert _found(log, 33) == list(range(33, 51))
    assert len(list((tmp_path / "log").glob("*.ow1"))) > 3
    assert [reader.next().sequence for _ in range(50)] == list(range(1, 51))  # type: ignore[union-attr]
    assert reader.next() is None
    _fill(log, 1)
    assert reader.next() is not None
    log.close()
    folder.close()

    again = Log(Folder(tmp_path / "log"), limits=SMALL)
    assert again.recovery.last is not None
    assert again.recovery.last.sequence == 51
    assert again.recovery.torn_bytes == 0
    _fill(again, 5)
    assert _found(again) == list(range(1, 57))


def test_the_payload_may_come_in_pieces_and_be_empty(tmp_path: Path) -> None:
    """Pieces are joined; no payload is a payload of no bytes."""
    log = Log(Folder(tmp_path / "log"))
    log.append(1, 2, b"ab", b"", b"c")
    log.append(1, 2)

    assert [record.payload for record in log.read()] == [b"abc", b""]


def test_whole_files_are_dropped_but_never_the_newest_record(tmp_path: Path) -> None:
    """Files below a place go; the newest record outlives even a place after it."""
    log = Log(Folder(tmp_path / "log"), limits=SMALL)
    _fill(log, 50)
    before = log.size_bytes

    log.drop(30)
    kept = _found(log)
    assert kept[-1] == 50
    assert 1 < kept[0] <= 30
    assert log.first_sequence == kept[0]
    assert log.size_bytes < before

    log.drop(51)
    assert _found(log)[-1] == 50
    assert len(list((tmp_path / "log").glob("*.ow1"))) == 1


def test_a_reader_counts_what_was_dropped_before_it(tmp_path: Path) -> None:
    """A place whose records are gone is passed over, and how many they were is known."""
    log = Log(Folder(tmp_path / "log"), limits=SMALL)
    _fill(log, 50)
    reader = log.reader(1)
    log.drop(30)
    first = reader.next()

    assert first is not None
    assert reader.lost == first.sequence - 1 > 0


def test_two_writers_never_share_a_folder(tmp_path: Path) -> None:
    """The second is refused, with who holds it; after the first has gone it may have it."""
    first = Folder(tmp_path / "log")
    with pytest.raises(FolderBusyError, match=f"in use by process {os.getpid()}"):
        Folder(tmp_path / "log")
    first.close()

    Folder(tmp_path / "log").close()


def test_files_are_for_this_user_alone_and_links_are_not_followed(tmp_path: Path) -> None:
    """Folders are 0700, files 0600; a link in place of either is refused and its target left alone."""
    _write(tmp_path / "log", 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside)

    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()} == {0o600}
    with pytest.raises(OSError, match="link"):
        Folder(tmp_path / "link")
    assert list(outside.iterdir()) == []


def test_a_file_that_is_a_link_is_passed_over(tmp_path: Path) -> None:
    """A segment replaced by a link is set aside, its target left alone, its numbers not used again."""
    [file] = _write(tmp_path / "log", 3)
    target = tmp_path / "t"
    file.rename(target)
    before = target.read_bytes()
    file.symlink_to(os.path.relpath(target, file.parent))  # the shorter the link, the less its size shows

    log = Log(Folder(tmp_path / "log"))
    assert _found(log) == []
    assert list(log.recovery.set_aside) == [file.name]
    _fill(log, 1)
    assert _found(log)[0] > 3
    assert target.read_bytes() == before


def test_a_newer_version_is_left_unharmed(tmp_path: Path) -> None:
    """A log of a later layout is refused by name, not read, not cut."""
    [file] = _write(tmp_path / "log", 3)
    newer = file.rename(file.with_suffix(".ow2"))
    before = newer.read_bytes()

    with pytest.raises(LogVersionError, match="newer version"):
        Log(Folder(tmp_path / "log"))
    assert newer.read_bytes() == before


def _ends(data: bytes, count: int, times: int) -> list[int]:
    """Where each record of a file ends."""
    ends, end = [], 0
    for sequence in range(1, count + 1):
        end += HEADER_BYTES + len(_payload(sequence, times))
        ends.append(end)
    assert end == len(data)
    return ends


def _drawn(count: int, most: int | None) -> Sequence[int]:
    """All places, or some that are drawn by the seed of the session."""
    return range(count) if most is None else sorted(random.sample(range(count), most))


def _survives_cuts(path: Path, count: int, times: int = 1, *, most: int | None = None) -> None:
    """Whatever the length a file is cut to, the whole records before the cut are kept, and more can come."""
    [file] = _write(path, count, times=times)
    data = file.read_bytes()
    ends = _ends(data, count, times)
    for cut in _drawn(len(data) + 1, most):
        file.write_bytes(data[:cut])
        folder = Folder(path)
        log = Log(folder)
        whole = sum(end <= cut for end in ends)
        assert log.recovery.torn_bytes == cut - (ends[whole - 1] if whole else 0)
        assert log.next_sequence == whole + 1
        _fill(log, 1, times)
        assert _found(log, times=times) == list(range(1, whole + 2))
        log.close()
        folder.close()


def _survives_flips(path: Path, count: int, times: int = 1, *, most: int | None = None) -> None:
    """Whatever bit is flipped, the record that it lies in is lost, no other, and the gap states it."""
    [file] = _write(path, count, times=times)
    data = file.read_bytes()
    ends = _ends(data, count, times)
    for bit in _drawn(len(data) * 8, most):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        folder = Folder(path)
        log = Log(folder, floor=count + 1)
        touched = 1 + sum(end <= bit // 8 for end in ends)
        _fill(log, 1, times)
        reader = log.reader(1)
        found = []
        while (record := reader.next()) is not None:
            assert record.payload == _payload(record.sequence, times)
            found.append(record.sequence)
        assert found == [number for number in range(1, count + 2) if number != touched]
        assert reader.lost == 1
        reader.close()
        log.close()
        folder.close()


@pytest.mark.parametrize("most", [SOME, pytest.param(None, marks=pytest.mark.long)])
def test_a_small_file_cut_anywhere_loses_only_what_was_cut(tmp_path: Path, most: int | None) -> None:
    """Lengths of a file of about 2 KiB: some, or every one."""
    _survives_cuts(tmp_path / "log", 26, most=most)


def test_a_small_file_with_some_bit_flipped_loses_one_record(tmp_path: Path) -> None:
    """Bits of a file of about 2 KiB."""
    _survives_flips(tmp_path / "log", 26, most=SOME)


@pytest.mark.long
def test_a_small_file_with_any_bit_flipped_loses_one_record(tmp_path: Path) -> None:
    """Every bit of a file of about 2 KiB."""
    _survives_flips(tmp_path / "log", 26)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_file_of_64_kib_cut_anywhere_loses_only_what_was_cut(tmp_path: Path) -> None:
    """Every length of a file of 64 KiB."""
    _survives_cuts(tmp_path / "log", BIG, LONG)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_file_of_64_kib_with_any_bit_flipped_loses_one_record(tmp_path: Path) -> None:
    """Every bit of a file of 64 KiB."""
    _survives_flips(tmp_path / "log", BIG, LONG)


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xf5OWj" * 400, os.urandom(3000), b"\xf5OW"])
def test_zeros_or_garbage_at_the_end_are_cut_off(tmp_path: Path, tail: bytes) -> None:
    """A tail that a power loss left is no record, and the next record follows the last whole one."""
    [file] = _write(tmp_path / "log", 5)
    with file.open("ab") as stream:
        stream.write(tail)

    log = Log(Folder(tmp_path / "log"))
    assert log.recovery.torn_bytes == len(tail)
    _fill(log, 1)
    assert _found(log) == [1, 2, 3, 4, 5, 6]


def test_a_payload_that_holds_another_logs_records_is_not_taken_for_records(tmp_path: Path) -> None:
    """After a damaged header the search passes over copies of records of other files."""
    [other] = _write(tmp_path / "other", 4)
    folder = Folder(tmp_path / "log")
    log = Log(folder)
    log.append(0, 0, other.read_bytes())
    log.append(0, 0, b"after")
    log.close()
    folder.close()
    [file] = (tmp_path / "log").glob("*.ow1")
    damaged = bytearray(file.read_bytes())
    damaged[20] ^= 1
    file.write_bytes(damaged)

    again = Log(Folder(tmp_path / "log"))
    assert [(record.sequence, record.payload) for record in again.read()] == [(2, b"after")]


@pytest.mark.parametrize("harm", ["missing", "empty", "folder"])
def test_a_file_lost_in_the_middle_costs_its_records_only(tmp_path: Path, harm: str) -> None:
    """A segment deleted, emptied or made unreadable leaves a gap of known size."""
    files = _write(tmp_path / "log", 50, SMALL)
    folder = Folder(tmp_path / "log")
    spans = [int(file.name.split("-")[2]) for file in files]
    files[1].unlink()
    if harm == "empty":
        files[1].touch()
    if harm == "folder":
        files[1].mkdir()

    log = Log(folder, limits=SMALL)
    reader = log.reader(1)
    found = []
    while (record := reader.next()) is not None:
        found.append(record.sequence)
    assert found == [*range(1, spans[1]), *range(spans[2], 51)]
    assert reader.lost == spans[2] - spans[1]


def test_a_full_disk_refuses_a_record_and_takes_the_next_when_there_is_room(tmp_path: Path) -> None:
    """A write cut short is cut back: what was there stays readable, nothing of the refused record stays."""
    fault = Fault()
    log = Log(Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault)))
    _fill(log, 3)
    fault.room = 10
    for _ in range(3):
        with pytest.raises(LogWriteError, match="a record of 45 bytes was not kept: No space left"):
            log.append(4, 40, _payload(4))
    assert _found(log) == [1, 2, 3]
    [file] = (tmp_path / "log").glob("*.ow1")
    assert log.size_bytes == file.stat().st_size

    fault.room = None
    _fill(log, 2)
    assert _found(log) == [1, 2, 3, 4, 5]
    assert log.size_bytes == sum(path.stat().st_size for path in (tmp_path / "log").glob("*.ow1"))


def test_a_tail_that_cannot_be_cut_back_is_left_behind(tmp_path: Path) -> None:
    """When even cutting fails, the next record goes to a new file and nothing is read twice."""
    fault = Fault(room=40, refused={"cut"})
    folder = Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault))
    log = Log(folder)
    with pytest.raises(LogWriteError):
        _fill(log, 1)
    fault.room = None
    _fill(log, 3)
    assert _found(log) == [1, 2, 3]
    log.close()
    folder.close()

    assert _found(Log(Folder(tmp_path / "log"))) == [1, 2, 3]


def test_a_refused_record_is_not_read_even_if_it_was_written(tmp_path: Path) -> None:
    """A write that fails after all is undone: the record that was given its number later is the one read."""
    fault = Fault(refused={"cut"})
    folder = Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault))
    log = Log(folder)
    _fill(log, 2)
    fault.late = True
    with pytest.raises(LogWriteError):
        log.append(0, 0, b"refused")
    fault.late = False
    _fill(log, 2)
    assert _found(log) == [1, 2, 3, 4]
    log.close()
    folder.close()

    assert _found(Log(Folder(tmp_path / "log"))) == [1, 2, 3, 4]


def test_an_empty_new_file_does_not_cost_the_newest_record(tmp_path: Path) -> None:
    """When the first write to a new file fails, the file before it stays, whatever was passed."""
    fault = Fault()
    folder = Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault))
    log = Log(folder, limits=LogLimits(segment_bytes=100))
    _fill(log, 2)
    fault.refused = {"write"}
    with pytest.raises(LogWriteError):
        _fill(log, 1)
    log.drop(log.next_sequence)
    log.close()
    folder.close()

    last = Log(Folder(tmp_path / "log")).recovery.last
    assert last is not None
    assert last.sequence == 2


def test_a_failed_sync_is_reported_and_never_papered_over(tmp_path: Path) -> None:
    """The records in doubt are named, and later ones go to a file whose sync can be trusted."""
    fault = Fault()
    log = Log(Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault)))
    _fill(log, 2)
    log.sync()
    _fill(log, 3)
    fault.refused = {"sync"}
    with pytest.raises(LogSyncError, match="records 3 to 5 are in doubt"):
        log.sync()

    fault.refused = set()
    _fill(log, 1)
    log.sync()
    assert _found(log) == [1, 2, 3, 4, 5, 6]
    assert len(list((tmp_path / "log").glob("*.ow1"))) == 2


def test_a_file_taken_away_is_noticed(tmp_path: Path) -> None:
    """After its newest file was deleted the log begins another, and the gap is counted."""
    log = Log(Folder(tmp_path / "log"))
    _fill(log, 3)
    [file] = (tmp_path / "log").glob("*.ow1")
    file.unlink()
    log.check()
    _fill(log, 2)

    assert _found(log) == [4, 5]


@settings(max_examples=30, deadline=None)
@given(plan=st.lists(st.sampled_from(["append", "append", "append", "sync", "drop"]), max_size=40))
def test_power_loss_takes_only_what_was_not_synced(
    tmp_path_factory: pytest.TempPathFactory, plan: list[str]
) -> None:
    """Bytes and names that no sync covered vanish; everything before the last sync is kept."""
    path = tmp_path_factory.mktemp("power") / "log"
    fault = Fault()
    log = Log(Folder(path, lambda fd: FaultyFiles(fd, fault)), limits=LogLimits(segment_bytes=200))
    synced, dropped = 0, 1
    for step in plan:
        if step == "append":
            _fill(log, 1)
        elif step == "sync":
            log.sync()
            synced = log.next_sequence - 1
        else:
            dropped = max(dropped, synced // 2)
            log.drop(dropped)
    fault.lose_power(path)

    found = _found(Log(Folder(path)))
    kept = [number for number in found if number >= dropped]
    assert kept[: max(synced - dropped + 1, 0)] == list(range(dropped, synced + 1))


def test_any_call_may_fail_once_or_for_ever(tmp_path: Path) -> None:
    """For each call in turn: the log states it or goes on, keeps what it took, and takes more afterwards."""
    total = _calls(tmp_path / "count")
    assert total > 30
    for nth in range(1, total + 1):
        for forever in (False, True):
            path = tmp_path / f"{nth}-{forever}"
            fault = Fault(fail_at=nth, forever=forever)
            log, taken = _session(path, fault)
            fault.fail_at = None
            if log is None:
                log = Log(Folder(path), limits=SMALL)
            first = log.first_sequence
            _fill(log, 3)
            log.sync()
            taken += range(log.next_sequence - 3, log.next_sequence)
            assert [number for number in _found(log) if number >= first] == [n for n in taken if n >= first]


def _calls(path: Path) -> int:
    fault = Fault()
    _session(path, fault)
    return fault.calls


def _session(path: Path, fault: Fault) -> tuple[Log | None, list[int]]:
    """A life of a log; which records it took."""
    folder = Folder(path, lambda fd: FaultyFiles(fd, fault))
    log = Log(folder, limits=SMALL)
    taken = []
    for step in range(24):
        try:
            _fill(log, 1)
            taken.append(log.next_sequence - 1)
            if step % 4 == 3:
                log.sync()
            if step % 10 == 9:
                log.drop(step // 2)
        except OSError:
            continue
    return log, taken


_WRITER = """
import sys
from collections.abc import Sequence
from pathlib import Path
from overwatch.journal import Folder, Log, LogLimits
log = Log(Folder(Path(sys.argv[1])), limits=LogLimits(segment_bytes=4096))
while True:
    number = log.append(7, log.next_sequence, b"%d " % log.next_sequence * 50)
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    if number % 50 == 0:
        log.drop(number - 500)
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """Ten times kill -9 while writing; every record that was acknowledged is there and whole."""
    acked = 0
    for cycle in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path / "log")], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            for _ in range(200 + 37 * cycle):
                acked = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().splitlines(keepends=True)
            acked = max([acked, *(int(line) for line in rest if line.endswith(b"\n"))])
        folder = Folder(tmp_path / "log")
        log = Log(folder)
        found = list(log.read())
        numbers = [record.sequence for record in found]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[0] <= max(acked - 500, 1)
        assert numbers[-1] >= acked
        assert all(record.payload == b"%d " % record.sequence * 50 for record in found)
        log.close()
        folder.close()
