"""A collector under floods: bounded memory, and a good client that is answered all the while.

Figures are printed; memory, answers and the good client's completeness are held, times are not.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from overwatch.events import EnvCrashed, Origin, Record
from overwatch.otlp.encode import request
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.flooding import (
    Flood,
    GoodClient,
    bomb,
    empty_attributes,
    flood,
    label_values,
    most_memory_mib,
    named_attributes,
    post,
    slow_connections,
)
from tests.e2e.killing import Collector

MOST_MIB = 256
QUIET_S = 4.0
SEEN_S = 30.0
"""A fold that lags minutes behind is no tower."""


def shows(endpoints: Endpoints, line: str) -> bool:
    """Whether a line of the good client's is in its feed."""
    found = snapshot_of(endpoints, "good")
    return found is not None and any(entry.message == line for entry in found.feed)


def million_label_values(url: str) -> str:
    """A million names of slots and users, 5,000 a request."""
    return str(flood(url, "/v1/metrics", label_values(1_000_000, 5_000), 2))


def gzip_bomb(url: str) -> str:
    """A GiB of zeros in a MiB, several times at once; each is refused."""
    answers = flood(url, "/v1/logs", repeat(bomb(1), 8), 4, **{"Content-Encoding": "gzip"})
    assert not answers.statuses[200]
    return str(answers)


def ten_million_attributes(url: str) -> str:
    """Ten million empty attributes: in bodies beyond the most elements, and in some just below."""
    refused = flood(url, "/v1/logs", repeat(empty_attributes(2_000_000), 5), 2)
    assert not refused.statuses[200]
    return f"{refused}, then {flood(url, '/v1/logs', repeat(empty_attributes(500_000), 20), 2)}"


def five_million_names(url: str) -> str:
    """Attributes that all have another name, as many as a body may hold."""
    answers = flood(url, "/v1/logs", repeat(named_attributes(250_000), 20), 2)
    assert set(answers.statuses) <= {200, 503}
    return str(answers)


def thousand_slow_connections(url: str) -> str:
    """A thousand connections that never finish a header; each is cut."""
    with slow_connections(url, 1000) as connections:
        time.sleep(QUIET_S)
        return f"{len(connections)} connections"


def overload(url: str) -> str:
    """As many requests as forty senders can have answered."""
    origin = Origin(run_id="load", epoch="1", ours=True)
    at = time.time_ns()
    crashes = [EnvCrashed(at=at, env_id=number % 64, error="boom") for number in range(100)]
    body = request([Record(origin=origin, event=e, seq=n) for n, e in enumerate(crashes, 1)], {})
    return str(flood(url, "/v1/logs", repeat(body, 4000), 40))


FLOODS: tuple[Flood, ...] = (
    million_label_values,
    gzip_bomb,
    ten_million_attributes,
    five_million_names,
    thousand_slow_connections,
    overload,
)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flooding", FLOODS, ids=lambda flooding: flooding.__name__)
def test_a_flood_costs_little_memory_and_drowns_nobody(tmp_path: Path, flooding: Flood) -> None:
    """The collector's memory stays bounded, and every request of a good client is accepted meanwhile."""
    collector = Collector(tmp_path)
    endpoints = collector.start()
    url = str(endpoints.otlp_http)
    try:
        before, during = GoodClient(url), GoodClient(url)
        with before.going_on():
            time.sleep(QUIET_S)
        began = time.monotonic()
        # From a process of its own, so that only the collector makes the good client wait.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool, during.going_on():
            came = pool.submit(flooding, url).result()
        took = time.monotonic() - began
        until(lambda: shows(endpoints, during.last), "the good client's last line", SEEN_S)
        seen_s = time.monotonic() - began - took
        memory = most_memory_mib(endpoints.pid)
        assert post(url, "/v1/logs", request([], {})) == 200
    finally:
        collector.kill()
    print(f"\n{flooding.__name__}, {took:.0f} s: {came}")
    for name, client in (("before", before), ("during", during)):
        waits = sorted(client.waits_ms)
        p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
        print(f"  good client {name}: {len(waits)} answers, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print(f"  the good client's last line is shown {seen_s:.1f} s after the flood")
    print(f"  most memory: {memory:.0f} MiB; good client refused: {dict(during.refused)}")
    assert not during.refused
    assert memory <= MOST_MIB
