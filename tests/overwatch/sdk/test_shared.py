"""Many runs of one process in one exporter: what they share, and what they do not."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import overwatch.sdk
from overwatch.events import LogLine, RunFinished
from overwatch.sdk.exporter.hub import LINGER_S
from overwatch.sdk.run import Run
from overwatch.sdk.shared import SHARED, VARIABLE
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.overwatch.sdk.test_link import run_script, wait_for

RUNS = 8
UPDATES = 20


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters are shared."""
    monkeypatch.setenv(VARIABLE, SHARED)


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


def test_runs_of_another_environment_have_another_exporter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An exporter reads its environment and its folder, which are those of its runs."""
    with http_sink() as sink:
        runs = [begin(sink, 0)]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        runs.append(begin(sink, 1))
        monkeypatch.chdir(tmp_path)
        runs.append(begin(sink, 2))
        assert len({run.exporter_pid for run in runs}) == len(runs)
        assert all(run.close(30.0).delivered for run in runs)


def test_a_forked_child_has_an_exporter_of_its_own() -> None:
    """The child's runs and the parent's arrive, and neither ends the other's."""
    with http_sink() as sink:
        run_script(f"""
            import os, overwatch.sdk
            start = lambda name: overwatch.sdk.start(run_id=name, endpoint={sink.endpoint!r}, sample=False)
            run = start("parent")
            pid, child = run.exporter_pid, os.fork()
            if not child:
                own = start("child")
                is_other = own.exporter_pid != pid
                own.log(str(1))
                os._exit(0 if own.close(30.0).delivered and is_other else 1)
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


def test_without_a_process_to_share_the_exporter_is_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started the records arrive all the same."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with http_sink() as sink:
        run = begin(sink, 0)
        run.log("1")
        assert run.exporter_pid is None
        assert run.close(30.0).delivered
        assert markers(sink) == [1]
