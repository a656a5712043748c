"""Notes that survive: the last one, or the one before it, whole."""

from pathlib import Path

import pytest

from overwatch.journal import Folder, Note
from tests.overwatch.journal.faults import Fault, FaultyFiles


def test_the_last_note_is_there_in_the_next_life(tmp_path: Path) -> None:
    """Each of its own name, whatever is in that; none before the first."""
    folder = Folder(tmp_path / "log")
    notes = {name: Note(folder, name) for name in ("webhook", "webhook/chat", "../../x")}
    assert [note.read() for note in notes.values()] == [None] * 3
    for turn in (b"", b"long " * 1000, b"short"):
        for name, note in notes.items():
            note.write(turn + name.encode())
    folder.close()

    again = Folder(tmp_path / "log")
    assert {name: Note(again, name).read() for name in notes} == {
        name: b"short" + name.encode() for name in notes
    }
    again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


@pytest.mark.parametrize("forever", [False, True])
def test_a_call_that_fails_leaves_the_note_before(tmp_path: Path, *, forever: bool) -> None:
    """Whichever it is: who writes gets an error, who reads finds a whole note."""
    failed = 0
    for number in range(1, 14):
        fault = Fault(fail_at=number, forever=forever)
        folder = Folder(tmp_path / f"{number}", lambda fd, fault=fault: FaultyFiles(fd, fault))  # type: ignore[misc]
        try:
            Note(folder, "a").write(b"one")
            Note(folder, "a").write(b"two")
            reported = b"two"
        except OSError:
            failed += 1
            reported = None
        found = Note(folder, "a").read()
        assert found in (None, b"one", b"two")
        assert reported is None or found == reported
        folder.close()
    assert failed == 12


def test_power_loss_leaves_a_whole_note(tmp_path: Path) -> None:
    """What `write` returned for is there, and what it failed for has not harmed it."""
    fault = Fault()
    folder = Folder(tmp_path / "log", lambda fd: FaultyFiles(fd, fault))
    Note(folder, "a").write(b"one")
    fault.refused = {"sync"}
    with pytest.raises(OSError, match="Input/output"):
        Note(folder, "a").write(b"two")
    folder.close()
    fault.lose_power(tmp_path / "log")
    again = Folder(tmp_path / "log")
    assert Note(again, "a").read() == b"one"
    again.close()


def test_a_note_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Somebody else's file is neither read nor written."""
    (tmp_path / "other").write_bytes(b"secret")
    folder = Folder(tmp_path / "log")
    (tmp_path / "log" / "a.note").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic link"):
        Note(folder, "a").read()
    Note(folder, "a").write(b"mine")
    assert (tmp_path / "other").read_bytes() == b"secret"
    assert Note(folder, "a").read() == b"mine"
    folder.close()
