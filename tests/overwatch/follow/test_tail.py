"""What was appended, whatever becomes of the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch.follow.tail import Tail


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, or will be."""
    return tmp_path / "log.csv"


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_beginning(path: Path) -> None:
    """Renamed with a line that was not read yet; until a new file is there, nothing."""
    path.write_bytes(b"a\n")
    tail = Tail(path)
    tail.read()
    with path.open("ab") as file:
        file.write(b"b\n")
    path.rename(path.with_suffix(".1"))

    assert tail.read() == (b"b\n", False)
    assert tail.read().data == b""
    path.write_bytes(b"c\n")
    assert tail.read() == (b"c\n", True)


def _truncate(path: Path) -> None:
    path.write_bytes(b"new\n")


def _grow_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other header\n1\n2\n3\n")


@pytest.mark.parametrize("rewrite", [_truncate, _grow_in_place])
def test_a_file_that_is_written_anew_is_read_once_its_beginning_is_whole(
    path: Path, rewrite: Callable[[Path], None]
) -> None:
    """Shorter, or with another beginning: one look waits, the next reads from the beginning."""
    path.write_bytes(b"header\n1\n2\n")
    tail = Tail(path)
    tail.read()
    rewrite(path)

    assert tail.read().data == b""
    assert tail.read() == (path.read_bytes(), True)
    assert tail.read().data == b""


def test_a_file_that_is_gone_stays_readable_and_is_closed(path: Path) -> None:
    """Removed after the first look: what was in it, then nothing."""
    path.write_bytes(b"a")
    tail = Tail(path)
    tail.read()
    path.unlink()

    assert tail.read().data == b""
    tail.close()
    tail.close()
