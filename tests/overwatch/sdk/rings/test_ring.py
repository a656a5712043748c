"""One ring: what is published is read once, in order and whole; nothing else is ever read."""

import os
import random
import stat
import struct
from pathlib import Path

import pytest

from overwatch.sdk.rings.file import (
    HEAD,
    W_PUBLISHED,
    W_RELEASED,
    RingError,
    create,
    end_of,
    mark,
    open_ring,
    sequence_of,
)
from overwatch.sdk.rings.source import RingReader
from overwatch.sdk.rings.writer import Entry, RingWriter

SIZE, FORMS = 16 << 10, 4 << 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ring is."""
    return tmp_path / "a.ring"


@pytest.fixture
def writer(path: Path) -> RingWriter:
    """Writes a small ring."""
    return RingWriter(create(path, SIZE, FORMS), 2)


def entry(at: int, size: int = 100) -> Entry:
    """A record of so many bytes that only it has; its tag states which it is."""
    return Entry(at, random.Random(at).randbytes(size))  # noqa: S311 content, not a secret


def append(writer: RingWriter, one: Entry) -> bool:
    """Write a record, if there is room."""
    return writer.append(one.tag, one.payload)


def test_a_mark_holds_a_number_and_a_place() -> None:
    """Both come out as they went in, up to the largest ring."""
    for sequence, end in ((0, 0), (1, 8), (1 << 40, (1 << 23) - 8)):
        assert sequence_of(mark(sequence, end)) == sequence
        assert end_of(mark(sequence, end)) == end


def test_records_of_any_size_go_round_many_times(path: Path, writer: RingWriter) -> None:
    """Every record that was taken is read once, whole and in order, however writer and reader alternate."""
    reader = RingReader(open_ring(path))
    chance = random.Random(7)  # noqa: S311 a course of events, not a secret
    taken: list[Entry] = []
    read = 0
    for step in range(20_000):
        one = entry(step, chance.choice((0, 1, 7, 8, 100, 3000, 6000)))
        if append(writer, one):
            taken.append(one)
        if chance.random() < 0.5:
            for sequence, found in reader.read(chance.randrange(1, 4)):
                read += 1
                assert sequence == read
                assert found == taken[sequence - 1]
        if chance.random() < 0.5:
            reader.release(reader.sequence - chance.randrange(2))
    read += len(reader.read(1 << 20))
    assert read == len(taken) == writer.published == reader.published
    assert reader.corrupt == 0


def test_a_full_ring_refuses_until_there_is_room(path: Path, writer: RingWriter) -> None:
    """What was read and not released is not overwritten; a refusal leaves nothing behind."""
    reader = RingReader(open_ring(path))
    count = 0
    while append(writer, entry(count)):
        count += 1
    assert not append(writer, entry(count))
    assert len(reader.read(1 << 20)) == count
    assert not append(writer, entry(count))
    reader.release(1)
    assert append(writer, entry(count))
    assert [found for _, found in reader.read(9)] == [entry(count)]


def test_the_next_reader_goes_on_where_the_last_released(path: Path, writer: RingWriter) -> None:
    """What a reader read and never released is read again by the one after it."""
    for at in range(10):
        append(writer, entry(at))
    first = RingReader(open_ring(path))
    first.read(8)
    first.release(5)
    second = RingReader(open_ring(path))
    assert sequence_of(writer.words[W_RELEASED]) == 5
    assert [found.tag for _, found in second.read(99)] == [5, 6, 7, 8, 9]


def test_room_is_free_up_to_what_was_released(path: Path, writer: RingWriter) -> None:
    """A record releases all before it; an older one releases nothing more, one that was not read nothing."""
    reader = RingReader(open_ring(path))
    for at in range(5):
        append(writer, entry(at))
    reader.read(4)
    seen = []
    for sequence in (2, 1, 3, 9):
        reader.release(sequence)
        seen.append(sequence_of(writer.words[W_RELEASED]))
    assert seen == [2, 2, 3, 4]


def test_what_is_not_published_is_not_read(path: Path, writer: RingWriter) -> None:
    """A record whose mark was never stored is not there, as after a death in the middle of writing."""
    reader = RingReader(open_ring(path))
    append(writer, entry(1))
    before = writer.words[W_PUBLISHED]
    append(writer, entry(2))
    writer.words[W_PUBLISHED] = before
    writer.resync()
    assert [found.tag for _, found in reader.read(9)] == [1]
    append(writer, entry(3))
    assert [found.tag for _, found in reader.read(9)] == [3]
    assert reader.sequence == 2


def test_a_damaged_record_is_skipped_and_counted(path: Path, writer: RingWriter) -> None:
    """A flipped bit costs its record, never one that was damaged taken for whole, never its neighbours."""
    reader = RingReader(open_ring(path))
    for at in range(3):
        append(writer, entry(at))
    writer.view[writer.data + entry(0).size + HEAD.size + 50] ^= 1
    found = [found.tag for _ in range(9) for _, found in reader.read(9)]
    assert found == [0, 2]
    assert reader.corrupt == 1
    reader.release(3)
    assert sequence_of(writer.words[W_RELEASED]) == 3


@pytest.mark.parametrize("field", range(4))
def test_a_damaged_head_is_never_believed(path: Path, writer: RingWriter, field: int) -> None:
    """Whichever field of a head is wrong, the record is not returned and the ring goes on."""
    reader = RingReader(open_ring(path))
    append(writer, entry(1))
    head = list(HEAD.unpack_from(writer.view, writer.data))
    head[field] += 1
    HEAD.pack_into(writer.view, writer.data, *head)
    assert [reader.read(9) for _ in range(5)] == [[]] * 5
    assert reader.corrupt == 1
    append(writer, entry(2))
    assert [found.tag for _, found in reader.read(9)] == [2]


def test_a_record_of_an_earlier_lap_is_never_taken_for_a_new_one(path: Path, writer: RingWriter) -> None:
    """Where the memory still shows the lap before, the reader waits, and finds the record later."""
    reader = RingReader(open_ring(path))
    first = bytes(writer.view[writer.data : writer.data + entry(0).size])
    place = writer.data
    laps = 0
    while laps < 2:
        before = writer.off
        append(writer, entry(laps))
        laps += writer.off < before
        if laps < 2:
            reader.read(1)
            reader.release(reader.sequence)
    new = bytes(writer.view[place : place + len(first)])
    writer.view[place : place + len(first)] = first
    assert reader.read(1) == []
    writer.view[place : place + len(first)] = new
    assert [found for _, found in reader.read(1)] == [entry(1)]
    assert reader.corrupt == 0


def test_forms_stay_where_a_later_reader_finds_them(path: Path, writer: RingWriter) -> None:
    """A form is known by its number for ever; without room there is none; a wrong number is an error."""
    forms = [b"form 0", b"form 1", b"form 2"]
    numbers = [writer.add_form(form) for form in forms]
    assert writer.add_form(bytes(FORMS)) is None
    reader = RingReader(open_ring(path))
    assert [reader.form(number) for number in numbers if number is not None] == [
        b"form 0",
        b"form 1",
        b"form 2",
    ]
    with pytest.raises(RingError):
        reader.form(1000)


def test_drops_are_counted_in_the_file(path: Path, writer: RingWriter) -> None:
    """The other process sees every reason; one that is unknown is other."""
    writer.drop("ring_full", 3)
    writer.drop("too_large")
    writer.drop("unknown")
    assert open_ring(path).dropped() == {"ring_full": 3, "too_large": 1, "other": 1}


def test_a_ring_is_private_and_new(path: Path, tmp_path: Path, writer: RingWriter) -> None:
    """Only this user can read it; neither an existing file nor a link is taken."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_blocks * 512 >= SIZE
    with pytest.raises(FileExistsError):
        create(path, SIZE, FORMS)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="link"):
        open_ring(link)
    with pytest.raises(FileExistsError):
        create(link, SIZE, FORMS)


@pytest.mark.parametrize("content", [b"", b"x" * 5000, struct.pack("<Q", 1) * 2048])
def test_another_file_is_no_ring(tmp_path: Path, content: bytes) -> None:
    """A file that is too short or holds something else is refused."""
    other = tmp_path / "other"
    other.write_bytes(content)
    with pytest.raises(RingError):
        open_ring(other)


def test_a_ring_that_was_cut_is_refused(path: Path, writer: RingWriter) -> None:
    """A shorter file than its header states is not mapped for reading records."""
    os.truncate(path, SIZE // 2)
    with pytest.raises(RingError):
        open_ring(path)
