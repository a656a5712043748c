"""Places that survive: the newest whole one counts, a lost one is reported."""

from pathlib import Path

import pytest

from overwatch.journal import CursorFile, Folder, Place
from overwatch.journal.cursors import MAX_NOTE_BYTES
from tests.overwatch.journal.faults import Fault, FaultyFiles


def test_the_last_place_and_its_note_survive(tmp_path: Path) -> None:
    """A new cursor has no place and is not lost; each saved place replaces the one before it."""
    folder = Folder(tmp_path / "log")
    cursor = CursorFile(folder, "a")
    assert (cursor.place, cursor.is_lost) == (None, False)

    for position in range(1, 6):
        place = Place(position=position, note=b"n" * position)
        cursor.save(place, sync=position == 3)
        assert CursorFile(folder, "a").place == place
    assert CursorFile(folder, "b").place is None


def test_a_note_has_a_limit(tmp_path: Path) -> None:
    """The longest note is kept whole; a longer one is refused."""
    folder = Folder(tmp_path / "log")
    cursor = CursorFile(folder, "a")
    longest = Place(position=1, note=b"x" * MAX_NOTE_BYTES)
    cursor.save(longest)

    with pytest.raises(ValueError, match="at most"):
        cursor.save(Place(position=2, note=b"x" * (MAX_NOTE_BYTES + 1)))
    assert CursorFile(folder, "a").place == longest


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.long)])
def test_damage_to_one_slot_gives_the_place_before_it(tmp_path: Path, step: int) -> None:
    """Whatever byte is damaged, the cursor is at its last place or at the one before, never elsewhere.

    A slot is a head and a note, then filled up with zeros, of which the quick way takes a few.
    """
    folder = Folder(tmp_path / "log")
    cursor = CursorFile(folder, "a")
    for position in (1, 2):
        cursor.save(Place(position=position, note=b"note"))
    file = tmp_path / "log" / "a.cursor"
    data = file.read_bytes()
    places = set()
    for at in (at for at, byte in enumerate(data) if byte or at % 4096 < 64 or at % step == 0):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        file.write_bytes(damaged)
        again = CursorFile(folder, "a")
        assert again.place is not None
        assert again.place.note == b"note"
        places.add(again.place.position)

    assert places == {1, 2}


@pytest.mark.parametrize("harm", ["empty", "garbage", "link", "folder"])
def test_a_lost_cursor_shows_it_and_can_be_saved_again(tmp_path: Path, harm: str) -> None:
    """No whole slot means no place and `is_lost`; where a file can be written the next place is kept."""
    folder = Folder(tmp_path / "log")
    CursorFile(folder, "a").save(Place(position=1))
    file = tmp_path / "log" / "a.cursor"
    file.unlink()
    if harm == "link":
        (tmp_path / "target").write_bytes(b"")
        file.symlink_to(tmp_path / "target")
    elif harm == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"" if harm == "empty" else b"garbage" * 2000)

    cursor = CursorFile(folder, "a")
    assert (cursor.place, cursor.is_lost) == (None, True)
    if harm in ("empty", "garbage"):
        cursor.save(Place(position=7))
        assert CursorFile(folder, "a").place == Place(position=7)
    else:
        with pytest.raises(OSError, match=r"link|directory"):
            cursor.save(Place(position=7))
    assert not (tmp_path / "target").exists() or (tmp_path / "target").read_bytes() == b""


def test_a_place_that_was_not_kept_leaves_the_one_before(tmp_path: Path) -> None:
    """A short write is an error, and both this process and the next stand at the place before."""
    fault = Fault()
    folder = Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault))
    cursor = CursorFile(folder, "a")
    cursor.save(Place(position=1))
    fault.room = 10
    with pytest.raises(OSError, match="no room"):
        cursor.save(Place(position=2))
    assert cursor.place == CursorFile(folder, "a").place == Place(position=1)

    fault.room = None
    cursor.save(Place(position=3))
    assert CursorFile(folder, "a").place == Place(position=3)
