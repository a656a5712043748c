"""Who computes leaves a core to who is waited for."""

import os
import subprocess
import sys
import threading

import pytest

from overwatch.background import leave_a_core

CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_a_thread_and_what_it_starts_leave_a_core() -> None:
    """However often it is said; other threads may go on to use all."""
    found: list[set[int]] = []

    def compute() -> None:
        leave_a_core()
        leave_a_core()
        found.append(os.sched_getaffinity(0))
        code = "import os; print(*os.sched_getaffinity(0))"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        found.append({int(word) for word in said.split()})

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert found == [CORES - {max(CORES)}] * 2
    assert os.sched_getaffinity(0) == CORES


@pytest.mark.skipif(not CORES, reason="this system pins no threads")
def test_the_only_core_is_used() -> None:
    """Where there is one, it is for all."""
    code = (
        "import os, threading; from overwatch.background import leave_a_core\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "thread = threading.Thread(target=lambda: (leave_a_core(), print(len(os.sched_getaffinity(0)))))\n"
        "thread.start(); thread.join()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert said.split() == [b"1"]
