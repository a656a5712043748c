"""Many runs of one process in one exporter: what they share, and what they do not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import overwatch.sdk
from overwatch.events import LogLine, RunFinished
from overwatch.sdk.exporter.hub import LINGER_S
from overwatch.sdk.exporter.orphan_recovery import deliver_all
from overwatch.sdk.meeting import common_name
from overwatch.sdk.process import OWN, VARIABLE
from overwatch.sdk.run import Run
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.overwatch.sdk.test_link import run_script, wait_for

RUNS = 8
UPDATES = 20


def begin(sink: Sink | str, number: int) -> Run:
    """Start one run without samples."""
    endpoint = sink if isinstance(sink, str) else sink.endpoint
    return overwatch.sdk.start(endpoint=endpoint, run_id=f"r{number}", sample=False)


def train(runs: list[Run], first: int) -> None:
    """Some updates of every run, and with each a line of its own, which are never folded."""
    for update in range(first, first + UPDATES):
        for number, run in enumerate(runs):
            run.update(update=update, kl_divergence=0.01)
            run.log(str(number * 1000 + update))


def markers(sink: Sink) -> list[int]:
    """The lines that arrived, sorted."""
    return sorted(int(event.message) for event in sink.events(LogLine))


def is_gone(pid: int | None) -> bool:
    """Whether a process has ended and was reaped."""
    return not Path(f"/proc/{pid}").exists()


def test_runs_of_one_process_share_one_exporter_and_keep_their_own_destination() -> None:
    """Every update of every run arrives once, where its run sends to; the process ends with the last."""
    with http_sink() as first, http_sink() as second:
        runs = [begin(first if number % 2 else second, number) for number in range(RUNS)]
        dead = begin("http://127.0.0.1:9", RUNS)
        (pid,) = {run.exporter_pid for run in [*runs, dead]}
        dead.log(str(1))
        train(runs, 0)
        began = time.monotonic()
        reports = [run.close(30.0) for run in runs]
        assert time.monotonic() - began < 30.0
        assert [(one.delivered, one.dropped) for one in reports] == [(True, {})] * RUNS
        assert markers(first) == [n * 1000 + u for n in range(1, RUNS, 2) for u in range(UPDATES)]
        assert markers(second) == [n * 1000 + u for n in range(0, RUNS, 2) for u in range(UPDATES)]
        last = dead.close(0.5)
        assert (last.delivered, last.dropped) == (False, {})
    wait_for(lambda: is_gone(pid))


def test_a_killed_shared_exporter_loses_nothing() -> None:
    """Every run goes on with the one process that follows."""
    with http_sink() as sink:
        runs = [begin(sink, number) for number in range(RUNS)]
        train(runs, 0)
        pid = runs[0].exporter_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        train(runs, UPDATES)
        wait_for(lambda: all(run.exporter_pid not in (None, pid) for run in runs))
        assert len({run.exporter_pid for run in runs}) == 1
        reports = [run.close(30.0) for run in runs]
        assert [(one.delivered, one.dropped) for one in reports] == [(True, {})] * RUNS
        expected = {n * 1000 + u for n in range(RUNS) for u in range(2 * UPDATES)}
        assert set(markers(sink)) == expected


def test_an_exporter_that_ends_twice_in_a_row_is_followed_by_one_for_each_run() -> None:
    """What ends it may be one of the runs, which then ends its own alone."""
    with http_sink() as sink:
        runs = [begin(sink, number) for number in range(3)]
        for _ in range(2):
            pid = runs[0].exporter_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: all(run.exporter_pid not in (None, pid) for run in runs))
        assert len({run.exporter_pid for run in runs}) == len(runs)
        train(runs, 0)
        assert [run.close(30.0).dropped for run in runs] == [{}] * len(runs)
        assert markers(sink) == [n * 1000 + u for n in range(len(runs)) for u in range(UPDATES)]


def test_runs_one_after_another_share_and_an_exporter_that_left_is_followed() -> None:
    """The next run of a sweep joins at once; one that comes after the linger starts another process."""
    with http_sink() as sink:
        pids = []
        for number in range(3):
            run = begin(sink, number)
            run.log(str(number))
            pids.append(run.exporter_pid)
            assert run.close(30.0).delivered
        assert len(set(pids)) == 1
        wait_for(lambda: is_gone(pids[0]))
        run = begin(sink, 3)
        run.log(str(3))
        assert run.exporter_pid not in pids
        assert run.close(LINGER_S + 30.0).delivered
        assert markers(sink) == [0, 1, 2, 3]


def resources(sink: Sink) -> list[dict[str, str]]:
    """The attributes that each logs request bears, as text."""
    bodies = [body for path, body in sink.bodies if path == "/v1/logs"]
    found = [one for body in bodies for one in ExportLogsServiceRequest.FromString(body).resource_logs]
    return [{pair.key: pair.value.string_value for pair in one.resource.attributes} for one in found]


def revision_in(folder: Path) -> str:
    """A new repository's only commit."""
    author = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "-q"), (*author, "commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    )
    return head.stdout.strip()


def test_runs_of_two_environments_share_and_each_has_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Endpoint, headers, token, attributes, job, spool, rings and revision are those where the run began."""
    with http_sink() as first, http_sink() as second:
        runs, dead, revisions = list[Run](), list[Run](), list[str]()
        for name, sink in (("a", first), ("b", second)):
            folder = tmp_path / name
            folder.mkdir()
            revisions.append(revision_in(folder))
            (folder / "token").write_text(f"secret-{name}")
            own = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint,
                "OTEL_EXPORTER_OTLP_HEADERS": f"x-team={name}",
                "OVERWATCH_INGEST_TOKEN_FILE": "token",
                "OTEL_RESOURCE_ATTRIBUTES": f"team={name}%20team,only.{name}=1",
                "SLURM_JOB_ID": f"job-{name}",
                "OVERWATCH_SPOOL_DIR": "spool",
                "OVERWATCH_RING_DIR": "rings",
            } | ({"OTEL_SERVICE_NAME": "named"} if name == "a" else {})
            for variable, value in own.items():
                monkeypatch.setenv(variable, value)
            monkeypatch.chdir(folder)
            runs.append(overwatch.sdk.start(run_id=name, sample=False))
            dead.append(begin("http://127.0.0.1:9", len(dead)))
            monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
        assert len({run.exporter_pid for run in (*runs, *dead)}) == 1
        assert all(run.flush(30.0) for run in runs)
        assert all(list((tmp_path / name / "rings").iterdir()) for name in "ab")
        assert all(run.close(30.0).delivered for run in runs)
        assert all(run.close(0.5).kept for run in dead)
        assert all(list((tmp_path / name / "spool").iterdir()) for name in "ab")
        for name, sink, service, head in zip(
            "ab", (first, second), ("named", "overwatch-trainer"), revisions, strict=True
        ):
            assert {one["x-team"] for one in sink.headers} == {name}
            assert {one["authorization"] for one in sink.headers} == {f"Bearer secret-{name}"}
            wanted = {
                "service.name": service,
                "team": f"{name} team",
                "slurm.job.id": f"job-{name}",
                "vcs.ref.head.revision": head,
                f"only.{name}": "1",
            }
            requested = {*wanted, "only.a", "only.b"}
            for found in resources(sink):
                assert {key: value for key, value in found.items() if key in requested} == wanted


@pytest.mark.parametrize(
    "variable", ["SSL_CERT_FILE", "OTEL_TRACES_SAMPLER", "grpc_proxy", "LD_LIBRARY_PATH", "PYTHONPATH"]
)
def test_what_libraries_read_by_themselves_is_common_to_all_of_an_exporter(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """With another value a trainer goes to another process; what travels with its run changes nothing."""
    before = common_name()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1")
    monkeypatch.setenv("WANDB_RUN_ID", "7")
    assert common_name() == before
    monkeypatch.setenv(variable, "/somewhere")
    assert common_name() != before


def test_an_environment_and_folders_that_are_no_text_turn_nothing_off(tmp_path: Path) -> None:
    """Names are bytes to the system: such a variable is left out, such a folder is used."""
    odd = os.fsencode(tmp_path) + b"/\xff"
    with http_sink() as sink:
        run_script(f"""
            import os, overwatch.sdk
            os.mkdir({odd!r})
            os.chdir({odd!r})
            for name in (b"HOME", b"PATH", b"OTEL_RESOURCE_ATTRIBUTES", b"NO_PROXY"):
                os.environb[name] = {odd!r}
            run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False)
            assert run.exporter_pid is not None
            assert run.close(30.0).delivered
        """)


def test_a_forked_child_shares_the_exporter() -> None:
    """The child's runs and the parent's arrive, and neither ends the other's."""
    with http_sink() as sink:
        run_script(f"""
            import os, overwatch.sdk
            start = lambda name: overwatch.sdk.start(run_id=name, endpoint={sink.endpoint!r}, sample=False)
            run = start("parent")
            pid, child = run.exporter_pid, os.fork()
            if not child:
                own = start("child")
                is_same = own.exporter_pid == pid
                own.log(str(1))
                os._exit(0 if own.close(30.0).delivered and is_same else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            run.log(str(2))
            assert run.close(30.0).delivered
        """)
        assert markers(sink) == [1, 2]


def test_a_trainer_that_is_killed_leaves_its_end_and_no_process() -> None:
    """Each run of it ends with the signal, at once."""
    with http_sink() as sink:
        done = run_script(
            f"""
            import os, signal, overwatch.sdk
            to = {sink.endpoint!r}
            runs = [overwatch.sdk.start(run_id=str(n), endpoint=to, sample=False) for n in (0, 1)]
            for run in runs:
                run.log(str(1))
                run.flush(30.0)
            print(runs[0].exporter_pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """,
            status=-signal.SIGKILL,
        )
        wait_for(lambda: is_gone(int(done.stdout)))
        ends = sink.events(RunFinished)
        assert [(end.outcome, end.reason) for end in ends] == [
            ("lost", "trainer killed by signal 9 (SIGKILL)")
        ] * 2


def test_an_exporter_that_ended_before_its_run_came_is_an_end_like_any_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is followed by others until it is given up; what was emitted is kept."""

    class Ended(subprocess.Popen[bytes]):
        def __init__(self, command: tuple[str, ...], *, stdin: int, stdout: int, **_: object) -> None:
            super().__init__([command[0], "-c", "pass"], stdin=stdin, stdout=stdout)
            self.wait()
            with Path(os.devnull).open("rb") as nothing:
                os.dup2(nothing.fileno(), stdin)  # this process's copy of its end is closed too

    monkeypatch.setattr("overwatch.sdk.process.subprocess.Popen", Ended)
    monkeypatch.setattr("overwatch.sdk.process._COMMAND", ("ended",))
    monkeypatch.setattr("overwatch.sdk.link.BACKOFF_S", 0.001)
    run = begin("http://127.0.0.1:9", 0)
    wait_for(lambda: "telemetry is kept back" in caplog.text)
    run.log("1")
    report = run.close(1.0)
    assert (report.kept, report.dropped) == (report.accepted, {})


def test_without_a_process_to_share_the_exporter_is_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started the records arrive all the same."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with http_sink() as sink:
        run = begin(sink, 0)
        run.log("1")
        assert run.exporter_pid is None
        assert run.close(30.0).delivered
        assert markers(sink) == [1]


def test_each_run_has_a_process_of_its_own_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends with its run, without a wait for others; another word is named, and changes nothing."""
    with http_sink() as sink:
        monkeypatch.setenv(VARIABLE, OWN)
        runs = [begin(sink, number) for number in range(2)]
        pids = [run.exporter_pid for run in runs]
        assert len(set(pids)) == len(runs)
        assert all(run.close(30.0).delivered for run in runs)
        for pid in pids:
            wait_for(lambda pid=pid: is_gone(pid))
        assert caplog.text == ""
        monkeypatch.setenv(VARIABLE, "alone")
        runs = [begin(sink, number) for number in range(2)]
        assert len({run.exporter_pid for run in runs}) == 1
        assert "OVERWATCH_EXPORTER=alone" in caplog.text
        assert all(run.close(30.0).delivered for run in runs)


def test_a_close_that_its_own_exporter_does_not_answer_ends_it_with_its_last_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that stands still is killed by the last run alone; what it had not read is kept."""
    monkeypatch.delattr(os, "pidfd_open")  # the system shows no end of another's child
    with http_sink() as sink:
        runs = [begin(sink, number) for number in range(2)]
        assert all(run.flush(30.0) for run in runs)
        pid = runs[0].exporter_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        for run in runs:
            run.log("unread")
        first = runs[0].close(0.5)
        assert not is_gone(pid)
        second = runs[1].close(0.5)
        wait_for(lambda: is_gone(pid))
        assert [(one.kept, one.dropped) for one in (first, second)] == [(2, {}), (2, {})]


def test_a_shared_exporter_that_stands_still_is_ended_by_the_run_that_it_keeps_waiting() -> None:
    """What it had not read of that run is kept and can be delivered; the other runs go on with another."""
    with http_sink() as sink:
        runs = [begin(sink, number) for number in range(2)]
        assert all(run.flush(30.0) for run in runs)
        pid = runs[0].exporter_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        runs[0].log("7")
        report = runs[0].close(0.5)
        assert (report.kept, report.dropped) == (2, {})
        runs[1].log("8")
        assert runs[1].close(30.0).delivered
        wait_for(lambda: is_gone(pid))
        wait_for(lambda: 7 in markers(sink) or list(deliver_all(None, None, 20.0)))
        wait_for(lambda: markers(sink) == [7, 8])


def test_a_shared_exporter_that_is_slow_is_not_ended() -> None:
    """A collector that keeps one run waiting is no reason: the process may work for another."""
    with http_sink() as sink:
        late, other = begin("http://127.0.0.1:9", 0), begin(sink, 1)
        pid = other.exporter_pid
        late.log("1")
        assert not late.close(0.0).delivered
        other.log("2")
        assert other.flush(30.0)
        assert other.exporter_pid == pid
        assert other.close(30.0).delivered


def test_a_process_without_room_for_one_more_run_is_followed_by_another() -> None:
    """With few files to open each process takes some runs, and every run arrives."""
    with http_sink() as sink:
        run_script(f"""
            import resource, overwatch.sdk
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
            to = {sink.endpoint!r}
            runs = [overwatch.sdk.start(run_id=str(n), endpoint=to, sample=False) for n in range(6)]
            for number, run in enumerate(runs):
                run.log(str(number))
            assert all(run.flush(30.0) for run in runs)
            assert 1 < len({{run.exporter_pid for run in runs}}) < len(runs)
            assert all(run.close(30.0).delivered for run in runs)
        """)
        assert markers(sink) == list(range(6))


def test_runs_share_in_a_folder_that_was_removed(tmp_path: Path) -> None:
    """It has no path any more."""
    with http_sink() as sink:
        run_script(f"""
            import os, overwatch.sdk
            os.mkdir({str(tmp_path / "gone")!r})
            os.chdir({str(tmp_path / "gone")!r})
            os.rmdir({str(tmp_path / "gone")!r})
            runs = [overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False) for _ in range(2)]
            (pid,) = {{run.exporter_pid for run in runs}}
            assert pid is not None
            assert all(run.close(30.0).delivered for run in runs)
        """)


def test_runs_one_after_another_leave_nothing_in_their_exporter() -> None:
    """Neither a thread nor an open file stays of a run that was closed."""
    with http_sink() as sink:
        keeper = begin(sink, 0)

        def left() -> tuple[int, int]:
            process = Path(f"/proc/{keeper.exporter_pid}")
            return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))

        def one_more() -> None:
            run = begin(sink, 1)
            run.update(update=1, kl_divergence=0.01)
            assert run.close(30.0).delivered

        assert keeper.flush(30.0)
        one_more()

        def is_nothing_left() -> bool:
            # The exporter itself may begin a thread during one batch of runs, but not during each.
            threads, files = left()
            for _ in range(5):
                one_more()
            return left()[0] <= threads and left()[1] <= files

        wait_for(is_nothing_left)
        assert keeper.close(30.0).delivered
