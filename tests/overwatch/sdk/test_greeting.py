"""What a trainer leaves beside its rings, as another process finds it at any moment."""

import fcntl
from pathlib import Path

import pytest

from overwatch.events import RunStarted
from overwatch.sdk import greeting
from overwatch.sdk.exporter.__main__ import greeting_of
from overwatch.sdk.exporter.hub import Visit
from overwatch.sdk.frames import Hello

HELLO = Hello(
    run_id="r", role="trainer", rank=0, epoch="e", pid=1, endpoint=None, sample=False,
    started=RunStarted(at=1),
)  # fmt: skip


def test_a_greeting_that_can_be_found_is_whole_and_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then one that looks for dead trainers does not take this one for dead."""
    rings, found = tmp_path / "rings", list[bool]()
    lock = fcntl.flock

    def locked(file: int, how: int) -> None:
        found.append(bool(list(tmp_path.glob(f"*{greeting.SUFFIX}"))))
        lock(file, how)

    with monkeypatch.context() as its:
        its.setattr(fcntl, "flock", locked)
        file = greeting.write_hello(rings, HELLO)
    with file:
        assert found == [False]
        assert greeting.read_hello(rings) == HELLO
        assert greeting.is_meant(rings)
    assert not greeting.is_meant(rings)
    assert [path.name for path in tmp_path.iterdir()] == ["rings.hello"]


def test_a_greeting_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without room."""

    def full(_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(greeting.msgspec.msgpack, "encode", full)
    with pytest.raises(OSError, match="No space left"):
        greeting.write_hello(tmp_path / "rings", HELLO)
    assert not list(tmp_path.iterdir())


def test_a_run_is_taken_of_its_own_process_alone(tmp_path: Path) -> None:
    """Of a run that another process brings the end could not be seen; through a private door comes none."""
    rings = tmp_path / "rings"
    greeting.write_hello(rings, HELLO).close()
    visit = Visit(rings=rings, line=0, account=0, handles=[], pid=HELLO.pid)
    assert greeting_of(visit) == greeting_of(visit._replace(pid=None)) == HELLO
    with pytest.raises(greeting.GreetingError, match="process 2 brought the run of process 1"):
        greeting_of(visit._replace(pid=2))
