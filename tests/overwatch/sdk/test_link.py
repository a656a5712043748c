"""The link under every misfortune: full rings, dead and stopped exporters, forks, signals, threads."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

import overwatch.sdk
from overwatch.catalog import Scope
from overwatch.events import LogLine, Measured, RunFinished, RunStarted
from overwatch.sdk.exporter.core import Exporter, ShutdownSignal
from tests.overwatch.sdk.sink import DEADLINE_S, Sink, http_sink


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, or fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def run_script(
    body: str, *, status: int = 0, timeout: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    """Run a trainer as its own program."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def test_a_stopped_exporter_costs_columns_never_time_nor_facts(sink: Sink) -> None:
    """With a full ring columns are dropped and counted, facts are held; afterwards all accounts agree."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    sink.wait(lambda sink: sink.events(RunStarted))
    pid = run.exporter_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        for step in range(150):
            run.envs(step=step, reward=[1.0] * 8192, env_id=list(range(step, step + 8192)))
            run.log(f"fact {step}")
    finally:
        os.kill(pid, signal.SIGCONT)
    report = run.close(10.0)
    numbers = [event for event in sink.events(Measured) if "overwatch.env.reward" in event.values]
    reported = [
        event.values["overwatch.sdk.dropped"].first() for event in sink.events(Measured) if not event.keys
    ]
    assert [event.message for event in sink.events(LogLine)] == [f"fact {step}" for step in range(150)]
    assert (report.accepted, report.kept) == (301, 0)
    assert report.dropped == {"ring_full": 150 - len(numbers)}
    assert 0 < len(numbers) < 150
    assert reported[-1] == report.dropped["ring_full"]


def test_updates_that_meet_a_full_ring_become_one(sink: Sink) -> None:
    """No update is lost while the exporter stands still: each counts, the breach between them too."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    sink.wait(lambda sink: sink.events(RunStarted))
    pid = run.exporter_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        for step in range(100_000):
            run.update(update=step, kl_divergence=0.2 if step == 90_000 else 0.001, entropy=0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    report = run.close(30.0)
    updates = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert report.dropped == {}
    assert sum(event.conflated.n if event.conflated else 1 for event in updates) == 100_000
    assert sum(sum(event.conflated.criticals.values()) for event in updates if event.conflated) == 1
    assert updates[-1].index == 99_999


def test_a_killed_exporter_is_replaced_and_nothing_is_lost_or_doubled(sink: Sink) -> None:
    """A new process goes on where the dead one stopped: same epoch, every number once."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.log("before")
    sink.wait(lambda sink: sink.events(LogLine))
    first = run.exporter_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    stated = 1

    def replaced() -> bool:
        nonlocal stated
        run.log(f"after {stated}")
        stated += 1
        return run.exporter_pid not in (None, first)

    wait_for(replaced)
    report = run.close(10.0)
    by_seq = {record.seq: record for record in sink.records()}
    assert {record.origin.epoch for record in by_seq.values()} == {sink.records()[0].origin.epoch}
    lines = [record.event.message for record in by_seq.values() if isinstance(record.event, LogLine)]
    assert sorted(lines) == sorted(["before", *(f"after {number}" for number in range(1, stated))])
    assert sum(isinstance(record.event, RunStarted) for record in by_seq.values()) == 1
    assert report == msgspec.structs.replace(report, delivered=True, accepted=stated + 1, kept=0, dropped={})


def test_an_exporter_that_dies_before_the_close_is_followed_for_the_close(sink: Sink) -> None:
    """Between two exporters a close does not give up: it delivers, and its account forgets nothing."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.log("before")
    assert run.flush(10.0)
    pid = run.exporter_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: run.exporter_pid is None)
    run.log("after")
    report = run.close(10.0)
    assert report == overwatch.sdk.Report(delivered=True, accepted=3, dropped={})
    assert [event.message for event in sink.events(LogLine)] == ["before", "after"]


def test_an_account_outlives_the_exporter_that_gave_it(sink: Sink) -> None:
    """A close without the time for another exporter still knows what the dead one had delivered."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.log("before")
    assert run.flush(10.0)
    pid = run.exporter_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: run.exporter_pid is None)
    run.log("after")
    report = run.close(0.1)
    assert (report.accepted, report.kept, report.dropped) == (3, 2, {})


def test_an_exporter_that_always_dies_is_given_up_and_all_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After five restarts it is left alone, stated once; calls stay harmless, what they log lies on disk."""
    monkeypatch.setattr("overwatch.sdk.process._COMMAND", ("-c", "pass"))
    monkeypatch.setattr("overwatch.sdk.link.BACKOFF_S", 0.001)
    run = overwatch.sdk.start(sample=False)

    def is_off() -> bool:
        run.update(kl_divergence=0.01)
        return "telemetry is kept back" in caplog.text

    wait_for(is_off)
    run.log("held by nobody")
    report = run.close(1.0)
    assert not report.delivered
    assert report.kept == report.accepted > 1
    assert caplog.text.count("telemetry is kept back") == 1


def test_without_a_process_the_exporter_is_a_thread(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No executable: stated once, and everything arrives all the same."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.update(kl_divergence=0.01)
    run.log("from a thread")
    assert run.exporter_pid is None
    assert run.flush(10.0)
    assert run.close(10.0).delivered
    assert caplog.text.count("no process could be started") == 1
    assert [event.message for event in sink.events(LogLine)] == ["from a thread"]


def test_without_room_for_rings_the_exporter_is_a_thread(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither shared memory nor the temporary folder has room."""
    monkeypatch.setattr("overwatch.sdk.rings.ringset.places", list)
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.log("from a thread")
    assert run.close(10.0).delivered
    assert "there is no room for its rings" in caplog.text
    assert [event.message for event in sink.events(LogLine)] == ["from a thread"]


def test_a_thread_that_dies_is_replaced(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper starts another; what the first had not brought to the spool is reported by the second."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    threads: list[str] = []

    def dies_once(self: Exporter, shutdown: ShutdownSignal) -> None:
        threads.append(threading.current_thread().name)
        if len(threads) == 1:
            raise MemoryError
        real(self, shutdown)

    real = Exporter.run
    monkeypatch.setattr(Exporter, "run", dies_once)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.log("still logged")
    assert run.flush(10.0)
    assert len(threads) == 2
    assert run.close(10.0).delivered
    assert [event.message for event in sink.events(LogLine)] == ["still logged"]


def test_many_threads_lose_nothing(sink: Sink) -> None:
    """Facts of eight threads all arrive, untorn."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)

    def speak(name: int) -> None:
        for count in range(50):
            run.log(f"{name}:{count}")

    threads = [threading.Thread(target=speak, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.close(10.0).delivered
    arrived = {event.message for event in sink.events(LogLine)}
    assert arrived == {f"{name}:{count}" for name in range(8) for count in range(50)}


def test_a_trainer_without_python_signal_handling_survives_a_dead_exporter() -> None:
    """With SIGPIPE at its deadly default, a broken pipe still kills nobody."""
    run_script("""
        import os, signal, time, overwatch.sdk
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        run = overwatch.sdk.start(sample=False)
        pid = run.exporter_pid
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while run.exporter_pid == pid and time.monotonic() < deadline:
            run.update(kl_divergence=0.01)
        assert run.exporter_pid != pid
        run.close(0.2)
    """)


def test_a_forked_child_emits_nothing_and_the_parent_goes_on(sink: Sink) -> None:
    """A data loader's worker neither sends nor ends the run, even when the lock was held at the fork."""
    run_script(f"""
        import os, threading, overwatch.sdk
        run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False)
        stop = threading.Event()
        def speak():
            while not stop.is_set():
                run.update(kl_divergence=0.01)
        thread = threading.Thread(target=speak)
        thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                run.log("from the child")
                run.close()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        thread.join()
        run.log("from the parent")
        assert run.close(10.0).delivered
    """)
    assert [event.message for event in sink.events(LogLine)] == ["from the parent"]
    assert len(sink.events(RunFinished)) == 1


def test_what_a_forked_child_emits_is_counted_and_warned_of_once(sink: Sink) -> None:
    """Whatever way into the run it holds, short or long: one warning, and each call in its report."""
    done = run_script(f"""
        import os, sys, overwatch.sdk
        import numpy as np
        run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False, n_envs=4)
        report = run.updater("kl_divergence")
        for n in range(6):
            run.update(update=n, kl_divergence=0.01)
            run.envs(step=n, reward=np.ones(4, np.float32))
            report(0.01, update=n)
        held, held_envs = run.update, run.envs
        child = os.fork()
        if child == 0:
            held(update=7, kl_divergence=0.5)
            held_envs(step=7, reward=np.ones(4, np.float32))
            report(0.5, update=7)
            run.update(update=8, kl_divergence=0.5)
            run.updater("entropy")(0.5)
            run.env_crashed(0, "boom in worker")
            with run.phase("collect"):
                run.log("from the child")
            assert not run.flush(0.1)
            ended = run.close(3.0)
            assert (ended.delivered, ended.accepted, ended.dropped) == (False, 8, {{"forked": 8}}), ended
            run.log("after the end")
            assert run.close() == ended
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        ended = run.close(10.0)
        assert ended.delivered and ended.accepted == 19, ended
    """)
    assert done.stderr.count("forked child") == 1
    assert sink.events(LogLine) == []


def test_a_signal_handler_may_speak(sink: Sink) -> None:
    """A handler that runs in the middle of a call neither deadlocks nor tears a frame."""
    run_script(f"""
        import signal, time, overwatch.sdk
        run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False)
        caught = 0
        def handler(*_):
            global caught
            caught += 1
            run.log("tick")
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        deadline = time.monotonic() + 10
        while caught < 100 and time.monotonic() < deadline:
            run.log("tock")
        signal.setitimer(signal.ITIMER_REAL, 0)
        report = run.close(5.0)
        assert caught >= 100 and report.delivered, report
    """)


@pytest.mark.parametrize(
    ("ending", "status", "outcome"),
    [
        ("", 0, "completed"),
        ("raise ValueError('bad')", 1, "failed"),
        ("raise KeyboardInterrupt", 130, "interrupted"),
    ],
)
def test_exit_without_close_reports_how_it_ended(sink: Sink, ending: str, status: int, outcome: str) -> None:
    """The interpreter's end closes the run with the right word."""
    status = -signal.SIGINT if outcome == "interrupted" else status
    run_script(
        f"""
        import overwatch.sdk
        run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False)
        run.log("working")
        assert run.flush({DEADLINE_S})
        {ending}
        """,
        status=status,
        timeout=2 * DEADLINE_S,
    )
    sink.wait(lambda sink: sink.events(RunFinished))
    assert sink.events(RunFinished)[0].outcome == outcome


def test_a_killed_trainer_leaves_no_exporter_behind(sink: Sink) -> None:
    """What had been logged is delivered, then the exporter ends."""
    done = run_script(
        f"""
        import os, signal, sys, time, overwatch.sdk
        run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False)
        run.log("last words")
        print(run.exporter_pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-signal.SIGKILL,
    )
    sink.wait(lambda sink: sink.events(LogLine))
    exporter = int(done.stdout)
    wait_for(lambda: not os.path.exists(f"/proc/{exporter}/fd/0"))  # noqa: PTH110 a path of the kernel's
    (end,) = sink.events(RunFinished)
    assert (end.outcome, end.reason) == ("lost", "trainer killed by signal 9 (SIGKILL)")
