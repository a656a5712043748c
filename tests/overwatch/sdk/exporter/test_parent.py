"""How a trainer's process went, as its exporter sees it: before and after its parent reads its status."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.sdk.exporter.parent import Parent, memory_group

WAITS = """
import os, sys
from overwatch.sdk.exporter.parent import Parent
pid = os.getppid()
trainer = Parent(pid, *map(int, sys.argv[2:]))
print("ready", flush=True)
assert trainer.wait(30.0)
while sys.argv[1] == "read" and os.path.exists(f"/proc/{pid}"):
    pass
print(trainer.status, flush=True)
"""
TRAINER = """
import os, subprocess, sys
handles = [os.pidfd_open(os.getpid())] if sys.argv[2] == "handle" else []
command = [sys.executable, "-c", sys.argv[1], sys.argv[3], *map(str, handles)]
subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=handles)
sys.stdin.readline()
exec(sys.argv[4])
"""
KNOWS_LATER = tuple(map(int, platform.release().split(".")[:2])) >= (6, 15)


def seen(way: str, *, handle: bool = True, is_read: bool = False) -> str:
    """The status that a child sees of a trainer that ends this way; with `is_read` after we have read it."""
    command = [sys.executable, "-c", TRAINER, WAITS, "handle" if handle else "none"]
    command += ["read" if is_read else "unread", way]
    trainer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    with trainer.stdin, trainer.stdout:
        assert trainer.stdout.readline() == "ready\n"
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        if is_read:
            trainer.wait()
        answer = trainer.stdout.readline().strip()
    trainer.wait()
    return answer


@pytest.mark.parametrize(
    ("way", "status"),
    [("os._exit(0)", 0), ("os._exit(7)", 7 << 8), ("os.kill(os.getpid(), 9)", 9), ("raise SystemExit", 0)],
)
def test_a_status_is_seen_while_nothing_has_read_it(way: str, status: int) -> None:
    """Of a zombie, as `waitpid` would give it."""
    assert seen(way) == str(status)


@pytest.mark.parametrize(("way", "status"), [("os._exit(7)", 7 << 8), ("os.kill(os.getpid(), 9)", 9)])
def test_a_status_that_was_read_is_seen_where_the_system_keeps_it(way: str, status: int) -> None:
    """The parent of the trainer is quicker; an older kernel then knows nothing more."""
    assert seen(way, is_read=True) == (str(status) if KNOWS_LATER else "None")


def test_without_a_handle_an_end_is_seen_and_its_reason_is_not() -> None:
    """An older system shows the end by another parent alone."""
    assert seen("os._exit(7)", handle=False) == "None"


def test_a_trainer_that_lives_is_waited_for_no_longer_than_asked() -> None:
    """With and without a handle."""
    assert not Parent(os.getppid()).wait(0.0)
    handle = os.pidfd_open(os.getppid())
    assert not Parent(os.getppid(), handle).wait(0.0)
    os.close(handle)


V1 = ("7:cpu,memory:/job/step", "memory/job/step/memory.oom_control", "oom_kill_disable 0\noom_kill {}\n")
V2 = ("0::/job/step", "job/step/memory.events", "low 0\noom 1\noom_kill {}\n")
INSIDE = ("0::/unseen", "memory.events", "oom_kill {}\n")
"""A container that does not see the way to its own group."""


@pytest.mark.parametrize(("line", "counter", "text"), [V1, V2, INSIDE])
def test_the_control_groups_counter_shows_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, counter: str, text: str
) -> None:
    """Only kills since the exporter began count, in either version of control groups, at any depth."""
    file = tmp_path / "fs" / counter
    file.parent.mkdir(parents=True)
    file.write_text(text.format(3))
    of = tmp_path / "cgroup"
    of.write_text(f"3:pids:/job\n{line}\n")
    found = memory_group(of, tmp_path / "fs")
    monkeypatch.setattr("overwatch.sdk.exporter.parent.memory_group", lambda: found)
    trainer = Parent(os.getppid())

    assert found == file
    assert trainer.out_of_memory is None
    file.write_text(text.format(4))
    assert trainer.out_of_memory == str(file.parent)
    file.unlink()
    assert trainer.out_of_memory is None


def test_without_a_counter_memory_is_not_blamed(tmp_path: Path) -> None:
    """No control groups, or one without a counter."""
    assert memory_group(tmp_path / "none", tmp_path) is None
    (tmp_path / "cgroup").write_text("0::/\n")
    assert memory_group(tmp_path / "cgroup", tmp_path) is None
