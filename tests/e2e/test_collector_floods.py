"""A collector under floods: bounded memory, and a good client that retries and loses nothing.

Figures are printed; memory, answers and the good client's completeness are held, times are not.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from overwatch.discovery import Endpoints
from overwatch.otlp.encode import request
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.flooding import GoodClient, most_memory_mib, post
from tests.e2e.floods import FLOODS, PARTS, Flood, get_ready, go
from tests.e2e.killing import Collector

MOST_MIB = 256
MOST_TOGETHER_MIB = 320
"""With the process that packs the recording."""
QUIET_S = 5.0
SEEN_S = 30.0
"""A fold that lags minutes behind is no tower."""


def shows(endpoints: Endpoints, line: str) -> bool:
    """Whether a line of the good client's is in its feed."""
    found = snapshot_of(endpoints, "good")
    return found is not None and any(entry.message == line for entry in found.feed)


def figures(client: GoodClient) -> str:
    """How long a good client waited."""
    waits = sorted(client.waits_ms)
    p50, p99 = (waits[int(len(waits) * share)] for share in (0.5, 0.99))
    return f"{len(waits)} answers, p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {waits[-1]:.1f} ms"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flooding", FLOODS, ids=lambda flooding: flooding.__name__)
def test_a_flood_costs_little_memory_and_drowns_nobody(tmp_path: Path, flooding: Flood) -> None:
    """Quiet, flood, quiet, flood: memory stays bounded, a good client gets each request accepted."""
    collector = Collector(tmp_path)
    endpoints = collector.start()
    url, process = str(endpoints.otlp_http), psutil.Process(endpoints.pid)
    quiet, during = GoodClient(url, "1"), GoodClient(url, "2")
    try:
        # From a process of its own, so that only the collector makes the good client wait.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            for part in range(PARTS):
                pool.submit(get_ready, flooding, url, part).result()
                with quiet.going_on():
                    time.sleep(QUIET_S)
                before = process.cpu_times()
                with during.going_on():
                    came = pool.submit(go).result()
                after = process.cpu_times()
                ended = time.monotonic()
                until(lambda: shows(endpoints, during.last), "the good client's last line", SEEN_S)
                seen_s = time.monotonic() - ended
                took = after.user + after.system - before.user - before.system
                print(f"\n{flooding.__name__}, {came.took_s:.0f} s: {came.stated}")
                print(f"  cores: flood {came.cpu_s / came.took_s:.2f}, collector {took / came.took_s:.2f}")
                print(f"  the good client's last line is shown {seen_s:.1f} s after the flood")
        memory = most_memory_mib(endpoints.pid)
        assert post(url, "/v1/logs", request([], {})) == 200
    finally:
        collector.kill()
    print(f"  good client, quiet: {figures(quiet)}\n  good client, flood: {figures(during)}")
    held = ", ".join(f"{name} {mib:.0f}" for name, mib in memory.items())
    print(f"  most memory in MiB: {held}; good client refused: {dict(during.refused)}")
    assert next(iter(memory.values())) <= MOST_MIB
    # They need not have held their most at once: together it was less.
    assert sum(memory.values()) <= MOST_TOGETHER_MIB
