"""Who computes leaves a core to who is waited for."""

import os
import subprocess
import sys
import threading
import time

import pytest

from overwatch.background import Periodic, leave_a_core

CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_a_thread_and_what_it_starts_leave_a_core() -> None:
    """However often it is reported; other threads may go on to use all."""
    found: list[set[int]] = []

    def compute() -> None:
        leave_a_core()
        leave_a_core()
        found.append(os.sched_getaffinity(0))
        code = "import os; print(*os.sched_getaffinity(0))"
        stated = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        found.append({int(word) for word in stated.split()})

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert found == [CORES - {max(CORES)}] * 2
    assert os.sched_getaffinity(0) == CORES


@pytest.mark.skipif(not CORES, reason="this system pins no threads")
def test_the_only_core_is_used() -> None:
    """Where there is one, it is for all."""
    code = (
        "import os, threading; from overwatch.background import Periodic, leave_a_core\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "thread = threading.Thread(target=lambda: (leave_a_core(), print(len(os.sched_getaffinity(0)))))\n"
        "thread.start(); thread.join()"
    )
    stated = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert stated.split() == [b"1"]


def test_work_is_repeated_with_rests_until_it_is_stopped() -> None:
    """One that takes long rests for longer; stopping waits for what is under way, also twice and at first."""
    began, again = [], threading.Event()

    def work() -> None:
        began.append(time.monotonic())
        if len(began) > 1:
            again.set()
        time.sleep(0.05)

    periodic = Periodic("test", 0.01, work, share=0.5)
    Periodic("never begun", 0.01, work).stop()
    periodic.start()
    assert again.wait(30)
    assert periodic.is_running()
    periodic.stop()
    periodic.stop()

    assert not periodic.is_running()
    assert began[1] - began[0] >= 0.15
