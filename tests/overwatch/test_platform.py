"""What stands in for what only some systems have: each is taken away, and the same comes of it."""

import errno
import os
import socket
import time
from pathlib import Path

import psutil
import pytest

from overwatch import platform


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


@pytest.mark.parametrize("case", ["there", "taken away"])
def test_files_are_whole_either_way(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written in parts, allocated and synced, as data, as a file and as a folder."""
    if case == "taken away":
        for name in ("fdatasync", "pwritev", "posix_fallocate", "posix_fadvise"):
            monkeypatch.delattr(os, name, raising=False)
    fd = _open(tmp_path / "file")
    try:
        platform.allocate(fd, 100_000)
        assert os.fstat(fd).st_size == 100_000
        assert platform.write_parts(fd, [b"one ", b"two"], 4) == 7
        platform.begin_writing(fd, 0, 11)
        platform.sync_data(fd)
        platform.sync(fd)
        assert os.pread(fd, 11, 0) == b"\0\0\0\0one two"
    finally:
        os.close(fd)
    platform.sync_folder(tmp_path)


def test_a_disk_that_has_a_cache_of_its_own_is_asked_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, whose `fsync` leaves the data in it; a volume that cannot is asked for the usual."""
    requested: list[int] = []

    def whole(fd: int, command: int) -> None:
        requested.append(command)
        if len(requested) > 1:
            raise OSError(errno.ENOTSUP, "not this volume")

    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", lambda _: requested.append(-1))
    monkeypatch.setattr("fcntl.F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr("fcntl.fcntl", whole)
    platform.sync_data(0)
    platform.sync_data(0)
    assert requested == [51, 51, -1]


@pytest.mark.parametrize("case", ["there", "taken away"])
def test_a_file_without_a_path_is_read_through_its_descriptor(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no name, in memory or not."""
    if case == "taken away":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    with platform.memory_file("account") as file:
        os.pwrite(file.fileno(), b"text", 0)
        assert os.pread(file.fileno(), 10, 0) == b"text"
        assert os.fstat(file.fileno()).st_nlink == 0


@pytest.mark.parametrize("case", ["there", "taken away"])
def test_messages_with_files_stay_apart(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each arrives as it was sent, with its own files; then comes the end."""
    if case == "taken away":
        monkeypatch.delattr(socket, "SOCK_SEQPACKET", raising=False)
    one, other = platform.message_pair()
    with other:
        with one:
            for number in range(3):
                socket.send_fds(one, [b"run %d" % number], [one.fileno(), other.fileno()])
        for number in range(3):
            data, files, *_ = socket.recv_fds(other, 1 << 16, 3)
            assert (data, len(files)) == (b"run %d" % number, 2)
            for fd in files:
                os.close(fd)
        assert socket.recv_fds(other, 1 << 16, 3)[0] == b""


def test_a_pair_that_the_system_refuses_is_one_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS knows the word for packets and makes no such pair."""
    made = socket.socketpair

    def streams(family: int, kind: int) -> tuple[socket.socket, socket.socket]:
        if kind != socket.SOCK_STREAM:
            raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
        return made(family, kind)

    monkeypatch.setattr(socket, "socketpair", streams)
    for end in platform.message_pair():
        assert end.type == socket.SOCK_STREAM
        end.close()


@pytest.mark.parametrize("gone", [(), ("CLOCK_BOOTTIME",), ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC")], ids=len)
def test_the_time_since_the_boot_goes_on(gone: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the best clock that there is."""
    for name in gone:
        monkeypatch.delattr(time, name)
    first = platform.since_boot_ns()
    assert 0 < first <= platform.since_boot_ns()


def test_without_a_kernels_view_of_processes_psutil_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory, the folder and the beginning of a process; another page size changes nothing."""
    began = platform.process_began(os.getpid())
    assert len(began) == 2
    fd = platform.resident_file()
    assert fd is not None
    near = platform.resident_in(fd)
    os.close(fd)
    monkeypatch.setattr(platform, "PROC", tmp_path)
    assert platform.resident_file() is None
    held = platform.resident_in(None)
    assert held is not None
    assert near is not None
    assert near / 2 < held < near * 2
    (since,) = platform.process_began(os.getpid())
    assert float(since) == psutil.Process().create_time()
    assert platform.working_folder(os.getpid()) == Path.cwd()


def test_what_nothing_can_read_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No number stands for it but what the C library knows."""

    def refuse(*_: object) -> None:
        raise psutil.NoSuchProcess(0)

    whole = platform.machine_memory()
    monkeypatch.setattr(platform, "PROC", tmp_path)
    monkeypatch.setattr(psutil, "Process", refuse)
    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    assert platform.resident_in(None) is None
    assert platform.process_began(1) == ()
    assert platform.working_folder(1) == Path.cwd()
    assert platform.machine_memory() == pytest.approx(whole, rel=0.01)


def test_cores_that_cannot_be_asked_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything kept to them, nor put behind others."""
    for name in ("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "pidfd_open"):
        monkeypatch.delattr(os, name, raising=False)
    assert platform.cores() == frozenset()
    platform.keep_to(frozenset({0}))
    platform.work_as_batch(0)
    assert platform.own_handle() is None


def test_a_limit_that_the_system_names_and_does_not_take_has_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MacOS names no limit of open files and takes ten thousand."""
    put: list[int] = []

    def refuse_many(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > 10240:
            raise ValueError("current limit exceeds maximum limit")
        put.append(limits[0])

    resource = platform.resource
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse_many)
    platform.raise_file_limit(1 << 16)
    assert put == [10240]
