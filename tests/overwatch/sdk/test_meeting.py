"""Many processes in one exporter: how they meet, what is kept out, and what the end of one costs others."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from overwatch import discovery
from overwatch.events import LogLine, RunFinished
from overwatch.sdk import meeting
from overwatch.sdk.exporter import hub
from overwatch.sdk.exporter.hub import Listener, Visit, serve_all
from overwatch.sdk.frames import Arrival
from overwatch.sdk.meeting import Meeting
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.overwatch.sdk.test_link import run_script, wait_for
from tests.overwatch.sdk.test_shared import begin, is_gone

TRAINERS = """
import os, socket, sys
import overwatch.sdk

def train(number):
    run = overwatch.sdk.start(run_id=f"r{number}", endpoint=ENDPOINT, sample=False)
    line, update = socket.create_connection(("127.0.0.1", PORT)), 0
    line.sendall(b"%d %d\\n" % (number, os.getpid()))
    while line.recv(1) == b"g":
        run.log(str(number * 1000 + update))
        update += 1
        assert run.flush(60.0)
        line.sendall(b"%d\\n" % run.exporter_pid)
    report = run.close(60.0)
    return 0 if report.delivered and not report.dropped else 1

children = []
for number in range(COUNT):
    if not (pid := os.fork()):
        os._exit(train(number))
    children.append(pid)
sys.stdin.read()
"""
FEW = 12
MANY = 50


class Trainer:
    """A process with a run, which emits a line when it is asked to."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._file = line.makefile("rb")
        self.number, self.pid = map(int, self._file.readline().split())
        self.requested = 0

    def emit(self) -> None:
        """Ask for one more line."""
        self._line.sendall(b"g")
        self.requested += 1

    def exporter(self) -> int:
        """The process that delivers, once that line has arrived."""
        return int(self._file.readline())

    def close(self) -> None:
        """Ask it to close its run, after which the process ends."""
        self._line.sendall(b"c")

    def expected(self) -> set[int]:
        """What it was asked to emit."""
        return {self.number * 1000 + update for update in range(self.requested)}

    def disconnect(self) -> None:
        """Let go of it."""
        self._file.close()
        self._line.close()


@contextlib.contextmanager
def trainers(sink: Sink, count: int) -> Iterator[list[Trainer]]:
    """So many processes, each with a run; none is left afterwards."""
    with socket.create_server(("127.0.0.1", 0), backlog=count) as listener:
        port = listener.getsockname()[1]
        script = f"ENDPOINT, PORT, COUNT = {sink.endpoint!r}, {port}, {count}\n{TRAINERS}"
        parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        assert parent.stdin is not None
        found = list[Trainer]()
        with parent.stdin:
            try:
                listener.settimeout(60.0)
                found += (Trainer(listener.accept()[0]) for _ in range(count))
                yield found
            finally:
                for one in found:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one.pid, signal.SIGKILL)
                    one.disconnect()
        parent.wait()


def exporters(of: list[Trainer]) -> set[int]:
    """The processes that deliver a line of each."""
    for one in of:
        one.emit()
    return {one.exporter() for one in of}


def ends(sink: Sink) -> dict[str, tuple[str, str | None]]:
    """How each run ended, as far as that has arrived."""
    return {
        record.origin.run_id: (record.event.outcome, record.event.reason)
        for record in sink.records()
        if isinstance(record.event, RunFinished)
    }


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_processes_share_one_exporter_and_none_is_harmed_by_another(count: int) -> None:
    """The first leaves, one stands still, one is killed, then the exporter is: every other run is whole."""
    with http_sink() as sink, trainers(sink, count) as all_of_them:
        (exporter,) = exporters(all_of_them)
        first, killed, stopped, *others = sorted(all_of_them, key=lambda one: one.number)
        first.close()
        sink.wait(lambda sink: ends(sink).get("r0") == ("completed", None))
        os.kill(stopped.pid, signal.SIGSTOP)
        os.kill(killed.pid, signal.SIGKILL)
        sink.wait(lambda sink: ends(sink).get(f"r{killed.number}"))
        assert ends(sink)[f"r{killed.number}"] == ("lost", "trainer killed by signal 9 (SIGKILL)")
        assert exporters(others) == {exporter}

        os.kill(exporter, signal.SIGKILL)
        (follower,) = exporters(others)
        os.kill(stopped.pid, signal.SIGCONT)
        assert exporters([stopped]) == {follower} != {exporter}
        for one in (stopped, *others):
            one.close()
        sink.wait(lambda sink: len(ends(sink)) == count)
        assert [how for how, _ in ends(sink).values()].count("completed") == count - 1
        expected = set[int]().union(*(one.expected() for one in all_of_them))
        assert {int(event.message) for event in sink.events(LogLine)} == expected
        wait_for(lambda: is_gone(follower))
        assert {path.suffix for path in discovery.path().parent.iterdir()} <= {".log"}


APART = """
import ctypes, os, pathlib, sys
from overwatch.sdk import meeting

UNSHARE = {"cgroup": 0x02000000, "uts": 0x04000000, "net": 0x40000000, "mnt": 0x00020000}
here = meeting.common_name()

def leave(way):
    if way == "user":
        os.setresuid(65534, 65534, 65534)
        ctypes.CDLL(None).prctl(4, 1)  # as after `exec`: it may read of itself
    elif ctypes.CDLL(None, use_errno=True).unshare(UNSHARE[way]):
        os._exit(2)
    os._exit(meeting.common_name() == here)

for way in ("user", *UNSHARE):
    if not (pid := os.fork()):
        leave(way)
    print(way, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user or leave a namespace")
def test_users_and_namespaces_do_not_meet() -> None:
    """Each has an exporter of its own, by the name of its place."""
    found = dict(line.split() for line in run_script(APART).stdout.splitlines())
    assert set(found.values()) <= {"0", "2"}, found
    assert found["user"] == "0"
    if "2" in found.values():
        pytest.skip(f"the system does not let this process leave: {found}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_process_of_another_user_is_not_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a folder was opened to all, the socket itself shows whose process is at its other end."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    place, listener = Meeting(tmp_path, "exporter"), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.closing(place), listener:
        listener.bind("socket")
        listener.listen(1)
        entry = Listener(listener, place)
        tmp_path.chmod(0o755)
        Path("socket").chmod(0o666)
        if not (pid := os.fork()):
            with contextlib.suppress(BaseException):
                os.setresuid(65534, 65534, 65534)
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("socket")
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        come = entry.next()
        assert come is not None
        with pytest.raises(PermissionError, match="user 65534"):
            come()


LIVES, JOINERS = 25, 2


def test_a_run_that_comes_as_the_last_one_leaves_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exporters that leave at once, and runs that come one after another: each is served, once."""
    monkeypatch.setattr(hub, "_LOOK_S", 0.001)
    served, lives, arrived = list[str](), list[threading.Thread](), threading.Condition()

    def serve(visit: Visit) -> None:
        with arrived:
            served.append(str(visit.rings))
            arrived.notify_all()

    def start(stdin: int, stderr: int, arguments: tuple[str, ...], env: dict[str, str]) -> int:
        listener, place = socket.socket(fileno=os.dup(stdin)), Meeting(Path(arguments[0]), arguments[1])

        def live() -> None:
            with contextlib.closing(place):
                serve_all(Listener(listener, place), serve, linger_s=0.0)

        lives.append(threading.Thread(target=live))
        lives[-1].start()
        return os.getpid()

    def join(joiner: int) -> None:
        with Path(os.devnull).open("rb") as nothing:
            for number in itertools.takewhile(lambda _: len(lives) < LIVES, itertools.count()):
                name = f"{joiner}/{number}"
                data = Arrival(rings=name.encode(), has_handle=False, has_errors=False)
                with contextlib.closing(Meeting(tmp_path, "exporter")) as place:
                    place.join(msgspec.msgpack.encode(data), [nothing.fileno()] * 2, start)
                with arrived:
                    assert arrived.wait_for(lambda name=name: name in served, 30.0)

    joiners = [threading.Thread(target=join, args=(number,)) for number in range(JOINERS)]
    for one in joiners:
        one.start()
    for one in (*joiners, *lives):
        one.join()
    for one in lives:
        one.join()
    assert len(served) == len(set(served))
    assert len(lives) >= LIVES
    assert not list(tmp_path.iterdir())


def bring(data: bytes, handles: list[int]) -> None:
    """Send something to the exporter of this process."""

    def refused(*_: object) -> int:
        raise AssertionError("an exporter is there")

    with contextlib.closing(meeting.here()) as place:
        place.join(data, handles, refused)


def test_garbage_costs_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, files, paths of nothing and silence are refused one by one; runs before and after go on."""
    with http_sink() as sink, Path(os.devnull).open("rb") as file:
        before = begin(sink, 0)
        assert before.flush(30.0)
        os.mkfifo(tmp_path / "x.hello")
        whole = Arrival(rings=os.fsencode(tmp_path / "x"), has_handle=False, has_errors=False)
        nowhere = msgspec.structs.replace(whole, rings=b"\0/\xff")
        for data, files in (
            (b"\xff" * 100, 0), (b"", 0), (b"x" * 100_000, 8), (msgspec.msgpack.encode(whole), 0),
            (msgspec.msgpack.encode(whole), 2), (msgspec.msgpack.encode(whole), 4),
            (msgspec.msgpack.encode(nowhere), 2),
        ):  # fmt: skip
            bring(data, [file.fileno()] * files)
        (place,) = discovery.path().parent.glob("*.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            monkeypatch.chdir(place.parent)
            silent.connect(place.name)
            after = begin(sink, 1)
            assert after.exporter_pid == before.exporter_pid
            assert [run.close(30.0).delivered for run in (before, after)] == [True, True]


def linked(folder: Path) -> None:
    """A folder that is another's, by a link."""
    (folder / "theirs").mkdir()
    folder.joinpath(f"overwatch-{os.getuid()}").symlink_to(folder / "theirs")


def in_a_file(folder: Path) -> None:
    """No folder can be made."""
    folder.joinpath(f"overwatch-{os.getuid()}").touch()


def locked(folder: Path) -> None:
    """The lock cannot be taken."""
    place = folder / f"overwatch-{os.getuid()}"
    place.mkdir(mode=0o700)
    (place / f"exporter-{meeting.common_name()}.lock").mkdir()


@pytest.mark.parametrize("make", [linked, in_a_file, locked])
def test_without_a_place_to_meet_a_process_has_an_exporter_of_its_own(
    make: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its runs share that one, the reason is logged once, and they arrive."""
    make(tmp_path)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with http_sink() as sink:
        runs = [begin(sink, number) for number in range(2)]
        assert len({run.exporter_pid for run in runs}) == 1
        assert all(run.close(30.0).delivered for run in runs)
    assert caplog.text.count("it can share none") == 1
    assert not list(tmp_path.glob("*/*.sock"))


def test_a_runtime_folder_of_another_machine_is_made_up_for_below_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slurm hands on the login node's; a home that cannot be written changes nothing either."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.delenv("OVERWATCH_SPOOL_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with http_sink() as sink:
        run = begin(sink, 0)
        assert len(list(tmp_path.glob("overwatch-*/*.sock"))) == 1
        assert run.close(30.0).delivered
    assert caplog.text == ""


def test_a_lock_that_is_never_given_back_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that stands still while it holds it costs the others a moment, and the shared process."""
    import fcntl

    monkeypatch.setattr(meeting, "LOCK_S", 0.05)
    with contextlib.closing(Meeting(tmp_path, "e")) as place, (tmp_path / "e.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match=r"e\.lock is held"):
            place.join(b"", [], lambda *_: 0)
        assert not place.leave(lambda: False)


def test_an_exporter_whose_folder_was_removed_ends_all_the_same() -> None:
    """A session's runtime folder goes when its user logs out; no run can come there any more."""
    with http_sink() as sink:
        run = begin(sink, 0)
        assert run.flush(30.0)
        pid = run.exporter_pid
        shutil.rmtree(discovery.path().parent)
        assert run.close(30.0).delivered
    wait_for(lambda: is_gone(pid))


def test_a_run_does_not_come_to_an_exporter_that_is_dying(tmp_path: Path) -> None:
    """A process that was killed closes its files one by one: its socket may still take what nothing reads."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    started = list[socket.socket]()

    def start(stdin: int, *_: object) -> int:
        started.append(socket.socket(fileno=os.dup(stdin)))
        return dead.pid if len(started) == 1 else os.getpid()

    with contextlib.closing(Meeting(tmp_path, "e")) as place:
        pids = [place.join(b"run", [], start) for _ in range(3)]
    assert pids == [dead.pid, os.getpid(), os.getpid()]
    for one in started:
        one.close()
    dead.wait()


def test_what_is_logged_of_a_run_is_for_its_own_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the one that started the process, nor lost."""
    monkeypatch.delenv("OVERWATCH_QUIET")
    with http_sink() as sink:
        first = begin(sink, 0)
        assert first.flush(30.0)
        done = run_script(f"""
            import overwatch.sdk
            run = overwatch.sdk.start(endpoint="http://127.0.0.1:9", sample=False)
            assert run.exporter_pid == {first.exporter_pid}
            run.close(8.0)  # The whole of it passes: long enough for one attempt on a busy machine.
        """)
        assert "http://127.0.0.1:9 does not take telemetry" in done.stderr
        (log,) = discovery.path().parent.glob("*.log")
        assert log.read_text() == ""
        assert first.close(30.0).delivered
