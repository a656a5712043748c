"""A checkpoint is whole or it is not there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch_rl.checkpoints.manifest import LATEST, MANIFEST
from overwatch_rl.checkpoints.reading import find_checkpoint, verified
from overwatch_rl.checkpoints.store import Retention
from tests.overwatch_rl.checkpoints.made import FILES, state, write

ROOT = Path(__file__).parents[3]


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A file system in memory."""
    place.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system needs privileges that this machine does not give")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Tensors, state and files, through a run's folder, its checkpoints' and its own; `latest` names it."""
    path = write(tmp_path / "checkpoints", state(3, score=0.5))

    for folder in (tmp_path, tmp_path / "checkpoints", path):
        found = find_checkpoint(folder)
        assert (found.path, found.state) == (path, state(3, score=0.5))
        assert found.tensors(FILES[1])["b"].tolist() == [3.0] * 64
        assert found.tensors("none.safetensors") == {}
    assert json.loads((path.parent / LATEST).read_text())["name"] == path.name
    assert {oct(one.stat().st_mode & 0o777) for one in path.iterdir()} == {
        oct((path.parent / LATEST).stat().st_mode & 0o777)
    }


def damage(path: Path, how: str) -> None:
    """Truncate, flip a bit of, or remove a file."""
    whole = path.read_bytes()
    match how:
        case "truncated":
            path.write_bytes(whole[: len(whole) // 2])
        case "emptied":
            path.write_bytes(b"")
        case "removed":
            path.unlink()
        case _:
            at = {"first": 0, "middle": len(whole) // 2, "last": len(whole) - 2}[how]
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


@pytest.mark.parametrize("how", ["truncated", "emptied", "removed", "first", "middle", "last"])
@pytest.mark.parametrize("name", [*FILES, "state.json", MANIFEST])
def test_a_damaged_file_is_found_and_the_one_before_is_taken(tmp_path: Path, name: str, how: str) -> None:
    """The error names file and fix; the run's folder gives the newest that is whole."""
    before = write(tmp_path, state(1))
    path = write(tmp_path, state(2))
    damage(path / name, how)

    with pytest.raises(ValueError, match=rf"{path.name}/.*name another checkpoint of the run"):
        find_checkpoint(path)
    assert find_checkpoint(tmp_path).path == before
    damage(before / name, "removed")
    with pytest.raises(ValueError, match="no checkpoint"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_flipped_bit_anywhere_in_a_manifest_changes_nothing_unseen(tmp_path: Path, at: float) -> None:
    """It is found, or it lies where it means nothing."""
    path = write(tmp_path, state(2, score=1.5))
    whole = (path / MANIFEST).read_bytes()
    for bit in range(8):
        place = int(len(whole) * at)
        changed = bytes([whole[place] ^ (1 << bit)])
        (path / MANIFEST).write_bytes(whole[:place] + changed + whole[place + 1 :])
        try:
            found = verified(path)
        except ValueError:
            continue
        assert (found.state, set(found.files)) == (state(2, score=1.5), {*FILES, "state.json"})


def test_a_later_lineage_is_newer_than_more_updates(tmp_path: Path) -> None:
    """A resumed run goes on from where it was taken."""
    write(tmp_path, state(9))
    assert find_checkpoint(tmp_path).state.updates == 9
    resumed = write(tmp_path, state(4, lineage=2))
    assert find_checkpoint(tmp_path).path == resumed


def test_the_same_updates_are_saved_once_more(tmp_path: Path) -> None:
    """A damaged one of the same name is replaced."""
    damage(write(tmp_path, state(2)) / "state.json", "truncated")
    path = write(tmp_path, state(2))

    assert find_checkpoint(tmp_path).path == path


def test_killed_at_any_line_a_save_leaves_what_verifies(tmp_path: Path) -> None:
    """The one before or the new one; what is left over goes with the next save."""
    script = Path(__file__).with_name("killed.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], check=False, capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    kills, left = (int(word) for word in ran.stdout.split())
    assert kills >= 100
    assert left == 0


def test_a_full_disk_costs_the_save_only(tmp_path: Path) -> None:
    """The error is the system's, nothing half written stays, and the next smaller one fits."""
    with mounted(tmp_path / "disk", "size=256k", "mode=700") as disk:
        before = write(disk, state(1))
        with pytest.raises(OSError, match="space"):
            write(disk, state(2), values=1 << 18)
        assert find_checkpoint(disk).path == before
        assert list(disk.glob("**/.*.partial")) == []
        assert find_checkpoint(write(disk, state(3))).state.updates == 3


def test_a_folder_that_is_read_only_is_named(tmp_path: Path) -> None:
    """By the system's own error."""
    with (
        mounted(tmp_path / "disk", "ro", "size=64k") as disk,
        pytest.raises(OSError, match="Read-only") as caught,
    ):
        write(disk, state(1))
    assert str(disk) in str(caught.value)


def test_none_are_not_kept() -> None:
    """At least one."""
    with pytest.raises(ValueError, match="keep is 0; use 1 or more"):
        Retention(keep=0)


def test_a_folder_without_any_is_named(tmp_path: Path) -> None:
    """With what to give instead."""
    with pytest.raises(ValueError, match="holds no checkpoint; name the --out folder"):
        find_checkpoint(tmp_path)
