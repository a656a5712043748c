"""Checkpoints are written beside the training, by one process at a time."""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from overwatch_rl.artifacts.signing import Verifier, make_key
from overwatch_rl.checkpoints.manager import LOCK, Manager
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.checkpoints.store import Retention, Saving
from overwatch_rl.checkpoints.writer import Written
from tests.overwatch_rl.checkpoints.made import state

LONG_S = 120.0
TENSORS = {"policy.safetensors:policy.w": torch.arange(5.0), "algorithm.safetensors:order": torch.ones(3)}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Callable[[], Manager]]:
    """Managers of one folder, closed in the end."""
    made: list[Manager] = []

    def make() -> Manager:
        made.append(Manager(tmp_path / "checkpoints", Retention(keep=2), patience_s=0.0))
        return made[-1]

    yield make
    for one in made:
        try:
            one.close(None, {})
        except OSError:
            continue  # It was closed already.


def stand_still(pid: int) -> None:
    """Return when a child has stopped."""
    os.kill(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])


def waited(manager: Manager) -> list[Written]:
    """What became of the save that is under way."""
    until = time.monotonic() + LONG_S
    while not (done := manager.finished(1.0)):
        assert time.monotonic() < until
    return done


def test_a_save_is_there_when_it_is_reported(manager: Callable[[], Manager], tmp_path: Path) -> None:
    """With path, size and duration; the last one waits; lineages count on."""
    made = manager()
    assert (made.next_lineage, made.save(state(1), TENSORS)) == (1, [])
    (written,) = waited(made)
    found = find_checkpoint(tmp_path)

    assert (written.updates, written.path, written.error) == (1, str(found.path), None)
    assert written.size_bytes == sum(one.stat().st_size for one in found.path.iterdir())
    assert written.duration_s > 0
    assert found.tensors("policy.safetensors")["policy.w"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [one.updates for one in made.close(state(3), TENSORS)] == [3]
    assert find_checkpoint(tmp_path).state.updates == 3
    assert manager().next_lineage == 2


def test_while_one_is_under_way_others_are_skipped_and_counted(
    manager: Callable[[], Manager], tmp_path: Path
) -> None:
    """Training goes on; the one under way is the one that comes."""
    made = manager()
    made.save(state(1), TENSORS)
    waited(made)
    assert made._sender is not None
    stand_still(made._sender.pid)
    assert [made.save(state(updates), TENSORS) for updates in (2, 3, 4)] == [[], [], []]
    assert made.skipped == 2
    os.kill(made._sender.pid, signal.SIGCONT)

    assert [one.updates for one in made.close(state(5), TENSORS)] == [2, 5]
    assert find_checkpoint(tmp_path).state.updates == 5


def test_a_process_that_was_killed_costs_its_save(manager: Callable[[], Manager], tmp_path: Path) -> None:
    """The failure is reported, the next save starts another."""
    made = manager()
    made.save(state(1), TENSORS)
    waited(made)
    assert made._sender is not None
    stand_still(made._sender.pid)
    made.save(state(2), TENSORS)
    os.kill(made._sender.pid, signal.SIGKILL)
    (failed,) = waited(made)

    assert failed.error is not None
    assert "ended; the next save starts another" in failed.error
    assert find_checkpoint(tmp_path).state.updates == 1
    assert [one.updates for one in made.close(state(3), TENSORS)] == [3]


def test_what_is_saved_with_a_key_is_signed(tmp_path: Path) -> None:
    """By the process that writes, which reads the key's file."""
    public = make_key(tmp_path / "signing.key").public
    made = Manager(tmp_path / "checkpoints", Retention(), Saving(key=tmp_path / "signing.key", zstd=1))
    assert [one.error for one in made.close(state(1), TENSORS)] == [None]
    found = find_checkpoint(tmp_path, verifier=Verifier(public))

    assert "policy.safetensors.zst" in found.files
    assert found.tensors("algorithm.safetensors")["order"].tolist() == [1.0, 1.0, 1.0]


def test_a_key_that_is_none_costs_the_save_only(tmp_path: Path) -> None:
    """The error names its file."""
    made = Manager(tmp_path / "checkpoints", Retention(), Saving(key=tmp_path / "none.key"))
    (failed,) = made.close(state(1), TENSORS)
    assert failed.error is not None
    assert "none.key cannot be read" in failed.error


def test_a_folder_has_one_writer(manager: Callable[[], Manager], tmp_path: Path) -> None:
    """Also a process that outlives its trainer keeps others out until it is done."""
    made = manager()
    with pytest.raises(ValueError, match=r"another process writes checkpoints in .*; end it, or"):
        Manager(made.place, Retention(), patience_s=0.0)
    made.save(state(1), TENSORS)
    waited(made)
    made.close(None, {})
    with (Path(made.place) / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Before any training."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"below cannot be written: .*; name another --out folder"):
        Manager(tmp_path / "file" / "below" / "checkpoints", Retention())


def test_a_save_that_fails_is_an_answer(manager: Callable[[], Manager], tmp_path: Path) -> None:
    """The folder turned into a file: the error names it, and the manager goes on."""
    made = manager()
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    (tmp_path / "checkpoints").touch()
    made.save(state(1), TENSORS)
    (failed,) = waited(made)

    assert failed.error is not None
    assert "checkpoints" in failed.error
    (tmp_path / "checkpoints").unlink()
    assert [one.error for one in made.close(state(2), TENSORS)] == [None]
