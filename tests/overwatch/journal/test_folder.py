"""The folder: what is gone is noticed, small files are replaced whole, the lock is seen from outside."""

import shutil
from pathlib import Path

import pytest

from overwatch.journal import Folder, FolderLostError, is_held


@pytest.mark.parametrize("harm", ["deleted", "moved", "link", "unlocked"])
def test_a_folder_that_is_not_where_it_was_is_noticed(tmp_path: Path, harm: str) -> None:
    """Deleted, moved, replaced by a link to itself, or without its lock: the check states it."""
    path = tmp_path / "log"
    folder = Folder(path)
    folder.check()
    if harm == "deleted":
        shutil.rmtree(path)
    elif harm == "unlocked":
        (path / "lock").unlink()
    else:
        path.rename(tmp_path / "elsewhere")
        if harm == "link":
            path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FolderLostError):
        folder.check()
    assert folder.is_deleted is (harm == "deleted")
    folder.close()


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    """The second content takes the place of the first, and no scratch file stays."""
    folder = Folder(tmp_path / "log")
    folder.replace("meta.json", b"a longer first content")
    folder.replace("meta.json", b"second")

    assert (tmp_path / "log" / "meta.json").read_bytes() == b"second"
    assert sorted(folder.names()) == ["lock", "meta.json"]


def test_whether_a_folder_is_held_is_seen_without_disturbing_it(tmp_path: Path) -> None:
    """Held while its owner lives; free afterwards; an error where there is no folder."""
    folder = Folder(tmp_path / "log")
    assert is_held(tmp_path / "log")
    folder.close()
    assert not is_held(tmp_path / "log")
    with pytest.raises(FileNotFoundError):
        is_held(tmp_path / "none")


def test_a_folder_can_be_removed_with_all_its_files(tmp_path: Path) -> None:
    """Nothing stays, and the path can be used again."""
    folder = Folder(tmp_path / "log")
    folder.replace("meta.json", b"x")
    folder.discard()

    assert list(tmp_path.iterdir()) == []
    Folder(tmp_path / "log").close()
