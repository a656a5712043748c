"""What a page of metrics costs: CPU of a scrape at the cap of series, and ingest beside scrapers.

*Scrape*: CPU seconds in which a page at the cap is collected and rendered, plain and packed, in each format
(asked: 0.3 s). *Ingest*: requests a second that a collector process takes, without scrapers and with 50.
Prints, gates nothing.

    python tests/bench/bench_prometheus.py [--quick]
"""

import argparse
import http.client
import os
import statistics
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.aggregator import Frame
from overwatch.serve.exposition import Exposition
from overwatch.serve.prometheus import PageLimits, RunPage
from tests.e2e.collecting import collecting
from tests.overwatch.collector.running import reported, update
from tests.overwatch.serve.framed import Frames, busy_run

CAP: Final = 20_000


def _full() -> Frame:
    """As many runs as fill a page."""
    frames = Frames()
    frame = busy_run(frames, "run-0")
    per_run = sum(len(family.samples) for family in RunPage().families(frame)) - 4
    for number in range(1, min(CAP // per_run + 1, 250)):
        busy_run(frames, f"run-{number}")
    return frames.skip(1)


def scrape(times: int) -> None:
    """Part one."""
    frame, page = _full(), RunPage(PageLimits(most_series=CAP))
    for accept in ("", "application/openmetrics-text;version=1.0.0"):
        for is_packed in (False, True):
            took = []
            for _ in range(times):
                exposition = Exposition(lambda: page.families(frame))
                began = time.process_time()
                body, content_type = exposition.page(accept, is_packed=is_packed)
                took.append(time.process_time() - began)
            words = f"{content_type.partition(';')[0]}{', gzip' if is_packed else ''}"
            print(
                f"scrape of {CAP:,} series, {words}: {statistics.median(took):.2f} CPU s, {len(body):,} bytes"
            )


def ingest(seconds: float) -> None:
    """Part two."""
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
    """Both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    quick = parser.parse_args().quick
    print(f"prometheus_client {version('prometheus_client')}, load {os.getloadavg()[0]:.1f}")
    scrape(3 if quick else 9)
    ingest(5 if quick else 20)


if __name__ == "__main__":
    main()
