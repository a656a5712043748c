"""What a page of metrics costs: its text beside prometheus_client's, scrapes at the cap, ingest beside them.

Three parts, each beside its comparator in the same run. *Text*: the same 5,000 samples as the text of the
page and as prometheus_client's `generate_latest`, in turn; both are read by prometheus_client's parser and
must be equal; an A/A control shows the noise. *Scrape*: a page at the cap of series over HTTP, in a process
of its own where each tenth of a second has a new snapshot: pages made ahead beside pages made when asked
for. *Ingest*: requests a second that a collector process takes, without scrapers and with 50.
Prints, gates nothing.

    python tests/bench/bench_prometheus.py [--quick]
"""

import argparse
import http.client
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import msgspec
from aiohttp import web
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from overwatch.aggregator import Frame
from overwatch.collector.connections import LoopThread
from overwatch.serve.exposition import Exposition
from overwatch.serve.metrics_text import Family, FamilyKind, Text, labels_text, page
from overwatch.serve.prometheus import PageLimits, RunPage
from tests.e2e.collecting import collecting
from tests.overwatch.collector.running import reported, update
from tests.overwatch.serve.framed import Frames, busy_run

SERIES: Final = 5_000
CAP: Final = 20_000
LABELS: Final = ("rl_run_id", "metric", "level")


class _Made(Collector):
    """Families that are there already."""

    def __init__(self, families: Sequence[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families


def _both(series: int) -> tuple[list[Family], list[GaugeMetricFamily]]:
    """The same samples for both: half are states of 0 and 1, half numbers with all their digits."""
    ours, theirs = [], []
    for number in range(series // 50):
        name = f"overwatch_policy_metric_{number}"
        family, other = (
            Family(name, FamilyKind.GAUGE, "How is it?"),
            GaugeMetricFamily(name, "How is it?", labels=LABELS),
        )
        for place in range(50):
            value = math.sin(number * 50 + place) if place % 2 else float(place % 4 == 0)
            words = (f"run-{place}", "kl_divergence", "critical")
            family.put(labels_text(dict(zip(LABELS, words, strict=True))), value)
            other.add_metric(words, value)
        ours.append(family)
        theirs.append(other)
    return ours, theirs


def _read(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def text(pairs: int) -> None:
    """Part one."""
    ours, theirs = _both(SERIES)
    registry = _Made(theirs)

    def own() -> bytes:
        return page(ours, Text.PLAIN)

    def client() -> bytes:
        return generate_latest(registry)  # type: ignore[arg-type]  # all that it asks for is `collect`

    equal = _read(own()) == _read(client())
    a, b, c = [], [], []
    for _ in range(pairs):
        a.append(_timed(own))
        c.append(_timed(client))
        b.append(_timed(own))
    one, two, other = (statistics.median(times) * 1e3 for times in (a, b, c))
    ratio = statistics.median(client / own for client, own in zip(c, a, strict=True))
    print(f"text, {SERIES:,} series: {one:.2f} ms, prometheus_client {version('prometheus_client')} "
          f"{other:.1f} ms: {ratio:.1f} times (A/A {one / two:.2f}); equal when parsed: {equal}")  # fmt: skip


def _full() -> list[Frame]:
    """Two frames with as many runs as fill a page."""
    frames = Frames()
    frame = busy_run(frames, "run-0")
    per_run = sum(family.n for family in RunPage().families(frame)) - 4
    for number in range(1, min(CAP // per_run + 1, 250)):
        busy_run(frames, f"run-{number}")
    return [frames.skip(1), frames.skip(1)]


def serve() -> None:
    """A process with a page at the cap and, as a collector has, a new state each tenth of a second."""
    frames, newest = _full(), [0]
    made = RunPage(PageLimits(most_series=CAP))
    expositions = [
        Exposition(lambda: made.families(frames[newest[0]]), lambda: frames[newest[0]]) for _ in range(2)
    ]
    loop = LoopThread()
    loop.start()

    async def open_door(exposition: Exposition) -> int:
        runner = web.AppRunner(exposition.app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    ports = [loop.call(open_door(one)) for one in expositions]
    expositions[0].start_ahead()
    print(*ports, sum(family.n for family in made.families(frames[0])), flush=True)
    while True:
        time.sleep(0.1)
        newest[0] = 1 - newest[0]


def scrape(times: int) -> None:
    """Part two."""
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ahead, requested, n = map(int, server.stdout.readline().split())
            one, two, again = (_scrapes(port, times) for port in (ahead, requested, ahead))
        finally:
            server.kill()
    size = one[1]
    p50, p99 = (_quantile(one[0] + again[0], share) for share in (0.5, 0.99))
    print(f"scrape, {n:,} series, {size:,} bytes gzip: p50 {p50:.1f} ms, p99 {p99:.1f} ms; "
          f"made when asked for: p50 {_quantile(two[0], 0.5):.1f} ms, p99 {_quantile(two[0], 0.99):.1f} ms "
          f"(A/A of p50 {_quantile(one[0], 0.5) / _quantile(again[0], 0.5):.2f})")  # fmt: skip


def _scrapes(port: int, times: int) -> tuple[list[float], int]:
    """How long each of so many scrapes took, and the bytes of the last."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    took = []
    for number in range(times + 1):
        began = time.perf_counter()
        link.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        size = len(link.getresponse().read())
        took.append(time.perf_counter() - began)
        # The first of a scraper's life finds no page that was made for it.
        time.sleep(0.03 if number else 2.5)
    link.close()
    return took[1:], size


def _quantile(took: list[float], share: float) -> float:
    """In milliseconds."""
    return sorted(took)[int(len(took) * share)] * 1e3


def ingest(seconds: float) -> None:
    """Part three."""
    with TemporaryDirectory() as folder, collecting(Path(folder)) as ends:
        rates = [_rate(ends.otlp_http, ends.metrics, scrapers, seconds) for scrapers in (0, 50, 0, 50)]
    without, beside = (rates[0] + rates[2]) / 2, (rates[1] + rates[3]) / 2
    print(f"ingest: {without:.0f} requests/s, with 50 scrapers (each every 15 s) {beside:.0f}: "
          f"{beside / without:.2f} (A/A {rates[0] / rates[2]:.2f})")  # fmt: skip


def _rate(listener: str, metrics: str, scrapers: int, seconds: float) -> float:
    """Requests a second, one after another, while scrapers take the page every 15 s each."""
    over = threading.Event()

    def take(first_s: float) -> None:
        over.wait(first_s)
        while not over.is_set():
            link = http.client.HTTPConnection(metrics.removeprefix("http://"), timeout=30)
            link.request("GET", "/metrics")
            link.getresponse().read()
            link.close()
            over.wait(15)

    threads = [threading.Thread(target=take, args=(15 * n / 50,), daemon=True) for n in range(scrapers)]
    for thread in threads:
        thread.start()
    link = http.client.HTTPConnection(listener.removeprefix("http://"), timeout=30)
    run, done, began = f"bench-{time.time_ns()}", 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done += 1
        body = reported(run, [update(0.01, done)], done)
        link.request("POST", "/v1/logs", body, {"Content-Type": "application/x-protobuf"})
        link.getresponse().read()
    took = time.perf_counter() - began
    link.close()
    over.set()
    for thread in threads:
        thread.join(30)
    return done / took


def main() -> None:
    """All three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.serve:
        serve()
    quick = words.quick
    print(f"Python {sys.version.split()[0]}, msgspec {msgspec.__version__}, load {os.getloadavg()[0]:.1f}")
    text(30 if quick else 100)
    scrape(100 if quick else 400)
    ingest(5 if quick else 20)


if __name__ == "__main__":
    main()
