"""A trainer that forks, exits, is signalled to end, logs in circles, or loses its clock, as whole processes.

Each script is a program of its own; what it prints on standard error must hold no traceback.
"""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.events import LogLine, RunFinished, RunStarted
from tests.e2e.sdk.chaos import environment, sync, training
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.ports import free_port

LIMIT_S = 60.0


FORKS = """
import os, threading, overwatch.sdk
run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
over = threading.Event()
counts = [0, 0, 0]
def speak(place):
    while not over.wait(0.0005):
        counts[place] += 1
        run.log(f"{{place}}:{{counts[place]}}")
        run.update(kl_divergence=0.01)
threads = [threading.Thread(target=speak, args=(place,)) for place in range(3)]
for thread in threads:
    thread.start()
for _ in range({forks}):
    child = os.fork()
    if child == 0:
        run.log("from a child")
        run.envs(reward=[1.0])
        assert not run.flush(0.1)
        assert not run.close(1.0).delivered
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
over.set()
for thread in threads:
    thread.join()
report = run.close(20.0)
assert report.delivered, report
print(*counts)
"""
"""A program that forks while three threads speak; it prints how much each has emitted."""


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def run_program(folder: Path, body: str, endpoint: str, *, status: int = 0, limit_s: float = LIMIT_S) -> str:
    """Run a trainer from a file of its own, as spawned workers need it; what it printed."""
    program = folder / "program.py"
    program.write_text(f"ENDPOINT = {endpoint!r}\n{textwrap.dedent(body)}")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        env=environment(folder),
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout


def lines(sink: Sink) -> list[str]:
    """The lines' texts, each record once."""
    by_number = {(record.origin.epoch, record.seq): record.event for record in sink.records()}
    return [event.message for event in by_number.values() if isinstance(event, LogLine)]


def test_forks_with_events_queued_and_while_everything_is_busy(sink: Sink, tmp_path: Path) -> None:
    """No child hangs, sends, or repeats what its parent had queued; the parent loses nothing."""
    stated = run_program(
        tmp_path,
        FORKS.format(forks=100),
        sink.endpoint,
    )
    expected = {
        f"{place}:{n}" for place, count in enumerate(stated.split()) for n in range(1, int(count) + 1)
    }
    assert sorted(lines(sink)) == sorted(expected)
    assert len(sink.events(RunFinished)) == 1


def test_a_forked_child_may_begin_a_run_of_its_own(sink: Sink, tmp_path: Path) -> None:
    """It has its own producer; the parent's goes on."""
    run_program(
        tmp_path,
        """
        import os, overwatch.sdk
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        run.log("parent before")
        child = os.fork()
        if child == 0:
            mine = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
            mine.log("child")
            os._exit(0 if mine.close(20.0).delivered else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        run.log("parent after")
        assert run.close(20.0).delivered
        """,
        sink.endpoint,
    )
    assert sorted(lines(sink)) == ["child", "parent after", "parent before"]
    assert len({record.origin.epoch for record in sink.records()}) == 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_started_another_way(sink: Sink, tmp_path: Path, method: str) -> None:
    """A pool of workers starts and ends as without telemetry."""
    run_program(
        tmp_path,
        f"""
        import multiprocessing, overwatch.sdk
        def work(number):
            return number * 2
        if __name__ == "__main__":
            run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
            run.log("before")
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                assert pool.map(work, [1, 2, 3]) == [2, 4, 6]
            run.log("after")
            assert run.close(20.0).delivered
        """,
        sink.endpoint,
    )
    assert lines(sink) == ["before", "after"]


def test_a_program_that_becomes_another(sink: Sink, tmp_path: Path) -> None:
    """`os.execv` is an end without a word: what was sent arrives, the next program has its own producer."""
    run_program(
        tmp_path,
        """
        import os, sys, overwatch.sdk
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        run.log("second" if len(sys.argv) > 1 else "first")
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        assert run.close(20.0).delivered
        """,
        sink.endpoint,
    )
    sink.wait(lambda _: len(lines(sink)) == 2)
    assert sorted(lines(sink)) == ["first", "second"]
    assert len(sink.events(RunStarted)) == 2


@pytest.mark.parametrize("state", ["healthy", "dead"])
def test_speaking_while_the_interpreter_ends(sink: Sink, tmp_path: Path, state: str) -> None:
    """From atexit, `__del__`, a daemon thread, after close: no traceback, no new thread, out in time."""
    endpoint = sink.endpoint if state == "healthy" else f"http://127.0.0.1:{free_port()}"
    stated = run_program(
        tmp_path,
        """
        import atexit, threading, time
        @atexit.register
        def last():
            run.log("after the close")
            run.update(kl_divergence=0.1)
            assert run.close().accepted
            print(time.monotonic() - leaving, flush=True)
        import overwatch.sdk
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        @atexit.register
        def first():
            run.log("from atexit")
        class Object:
            def __del__(self):
                run.log("from del")
                run.envs(reward=[1.0])
                run.flush(0.1)
        thing = Object()
        cycle = Object()
        cycle.itself = cycle
        def speak():
            while True:
                run.log("from a daemon")
                time.sleep(0.001)
        threading.Thread(target=speak, daemon=True).start()
        time.sleep(0.05)
        leaving = time.monotonic()
        """,
        endpoint,
    )
    assert float(stated) <= 2.2
    if state == "healthy":
        sync(tmp_path)
        sink.wait(lambda sink: sink.events(RunFinished))
        assert "from atexit" in lines(sink)
        assert "after the close" not in lines(sink)


def test_an_ending_signal(sink: Sink, tmp_path: Path) -> None:
    """A trainer that leaves by its own handler of SIGTERM has, in two seconds, sent or kept everything."""
    with training(tmp_path, sink.endpoint) as trainer:
        trainer.wait_steps(50)
        trainer.kill(signal.SIGTERM)
        stated = max(trainer.numbers("a"))
        sync(tmp_path)
        sink.wait(lambda _: len(lines(sink)) >= stated)
        assert lines(sink)[:stated] == [f"line {step}" for step in range(1, stated + 1)]


def test_a_handler_of_the_ending_signal_that_raises(sink: Sink, tmp_path: Path) -> None:
    """`sys.exit` out of a handler, in the middle of a call: the run is closed and has lost nothing.

    What two seconds are too short for, on a busy machine, is kept: `overwatch sync` delivers it.
    """
    run_program(
        tmp_path,
        """
        import os, signal, sys, threading, time, overwatch.sdk
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        def leave(*_):
            run.log("leaving now")
            sys.exit(3)
        signal.signal(signal.SIGTERM, leave)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        number = 0
        while True:
            number += 1
            run.log(f"{number}")
            run.update(kl_divergence=0.01)
            time.sleep(0.0002)
        """,
        sink.endpoint,
        status=3,
    )
    sync(tmp_path)
    sink.wait(lambda sink: sink.events(RunFinished))
    found = lines(sink)
    numbers = [int(line) for line in found if line != "leaving now"]
    assert "leaving now" in found
    assert numbers[:-1] == list(range(1, len(numbers)))
    assert [(event.outcome, event.reason) for event in sink.events(RunFinished)] == [
        ("interrupted", "SIGTERM")
    ]


def test_logging_that_leads_back_to_itself(sink: Sink, tmp_path: Path) -> None:
    """Everything the trainer logs is sent, also what the SDK logs; 20,000 lines never recurse."""
    run_program(
        tmp_path,
        """
        import logging, sys, overwatch.sdk
        from overwatch.sdk.logs import RunHandler
        sys.setrecursionlimit(200)
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        logging.basicConfig(level=logging.DEBUG, handlers=[RunHandler(run, logging.DEBUG)])
        class Loud:
            def __str__(self):
                logging.getLogger("loud").warning("asked for its text")
                return "loud"
        for number in range(20_000):
            logging.getLogger("trainer").info("line %s", number if number % 100 else Loud())
            if number % 100 == 0:
                run.update(kl_divergence=object())
        report = run.close(30.0)
        assert report.accepted - sum(report.dropped.values()) > 20_000, report
        """,
        sink.endpoint,
    )
    assert len([line for line in lines(sink) if line.startswith("line")]) == 20_000


def test_many_threads_in_many_processes(sink: Sink, tmp_path: Path) -> None:
    """64 threads in 8 processes: all accounts add up, nothing is torn, nothing is lost."""
    program = """
        import json, sys, threading, overwatch.sdk
        run = overwatch.sdk.start(run_id="many", endpoint=ENDPOINT, sample=False)
        name = sys.argv[1]
        def speak(thread):
            for number in range(50):
                run.log(f"{name}:{thread}:{number}")
                run.update(update=number, kl_divergence=0.01)
        threads = [threading.Thread(target=speak, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = run.close(30.0)
        assert report.accepted == 8 * 50 * 2 + 1, report
        assert report.delivered, report
    """
    file = tmp_path / "program.py"
    file.write_text(f"ENDPOINT = {sink.endpoint!r}\n{textwrap.dedent(program)}")
    processes = [
        subprocess.Popen([sys.executable, str(file), str(name)], env=environment(tmp_path))
        for name in range(8)
    ]
    assert [process.wait(LIMIT_S) for process in processes] == [0] * 8
    expected = {f"{name}:{thread}:{n}" for name in range(8) for thread in range(8) for n in range(50)}
    assert sorted(lines(sink)) == sorted(expected)


def test_an_interpreter_that_is_held(sink: Sink, tmp_path: Path) -> None:
    """A C call that does not let go of the interpreter holds up the training, and nothing that was sent."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import ctypes, overwatch.sdk
        run = overwatch.sdk.start(endpoint={sink.endpoint!r}, sample=False)
        run.log("before")
        ctypes.PyDLL(None).getchar()
        run.log("after")
        assert run.close(20.0).delivered
        """)
    )
    trainer = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, env=environment(tmp_path)
    )
    try:
        sink.wait(lambda _: lines(sink) == ["before"])
    finally:
        trainer.communicate(b"x", timeout=LIMIT_S)
    assert trainer.returncode == 0
    assert lines(sink) == ["before", "after"]


def test_a_clock_that_jumps(sink: Sink, tmp_path: Path) -> None:
    """The trainer's wall clock goes back an hour, then on ten years: order and durations are unharmed."""
    run_program(
        tmp_path,
        """
        import time, overwatch.sdk
        true, shift = time.time_ns, 0
        time.time_ns = lambda: true() + shift
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        for number, hours in enumerate((0, -1, 87_600, 0)):
            shift = hours * 3_600_000_000_000
            for step in range(20):
                with run.phase("update"):
                    run.log(f"{20 * number + step}")
        assert run.flush(10.0)
        assert run.close(20.0).delivered
        """,
        sink.endpoint,
    )
    from overwatch.events import PhaseEnded

    assert sorted(map(int, lines(sink))) == list(range(80))
    durations = [event.duration_s for event in sink.events(PhaseEnded)]
    assert len(durations) == 80
    assert min(durations) >= 0
