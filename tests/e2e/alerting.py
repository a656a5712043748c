"""Labelled runs played to a real collector, Prometheus and Alertmanager; the same runs as promtool's series.

Holds are divided by `DIVISOR`; nothing else of the shipped rules and of the shipped Alertmanager is changed
but addresses and the time that notifications are gathered for.
"""

import http.client
import json
import multiprocessing
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from heapq import merge
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path

import numpy as np
import yaml

from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.generate.rules import Plan, rule_file, steady_alerts
from overwatch.journal import Batch, Signal
from overwatch.serve.prometheus import RunPage
from overwatch.simulate import SECOND, Script, Settings
from overwatch.simulate.delivery import Reported, Teller
from tests.ports import free_port
from tests.promql import named
from tests.real.servers import instant_query, need, serving

ROOT = Path(__file__).parents[2]
DIVISOR = 12
EVERY_S = 2
"""Between two scrapes, and between two evaluations."""
DELAY_NS = 5_000_000
START_NS = 1_800_000_000 * SECOND
BEYOND_S = 12
"""Seconds that a silent or finished run is watched for."""
SENT_EVERY_S = 0.2
SENT_AGAIN = 30
"""Times that a request is sent while the collector is busy with what came before."""
PLAN = Plan(divisor=DIVISOR, scrape_s=EVERY_S)
Fired = set[tuple[str, str]]
"""Alert and run."""
FIRED = 'group by (alertname, rl_run_id) (last_over_time(ALERTS{alertstate="firing",rl_run_id!=""}[30m]))'


def rules() -> str:
    """The rules with divided holds."""
    return rule_file(steady_alerts(PLAN), PLAN)


def play(runs: Iterable[Settings], endpoint: str) -> None:
    """All runs at once, in their own time, as one request each fifth of a second."""
    start = time.time_ns()
    reported = merge(*(_reported(run, start) for run in runs), key=lambda one: one.at)
    address = urllib.parse.urlsplit(endpoint).netloc
    link = http.client.HTTPConnection(address, timeout=30)
    slice_ns = int(SENT_EVERY_S * SECOND)
    with np.errstate(all="ignore"):
        for number, together in groupby(reported, key=lambda one: one.at // slice_ns):
            # Requests of one kind, one after another, are one request: that is how protobuf repeats a field.
            body = b"".join(one.body for one in together)
            time.sleep(max(0.0, ((number + 1) * slice_ns - time.time_ns()) / SECOND))
            _send(link, body)
    link.close()


def _send(link: http.client.HTTPConnection, body: bytes) -> None:
    """One request, again and again while the collector answers that it is busy: as every OTLP client does."""
    for _ in range(SENT_AGAIN):
        link.request("POST", "/v1/logs", body, {"Content-Type": "application/x-protobuf"})
        answer = link.getresponse()
        answer.read()
        if answer.status not in (429, 503):
            break
        time.sleep(1)
    assert answer.status == 200, answer.status


def _reported(run: Settings, start: int) -> Iterator[Reported]:
    return Teller(run.run_id, f"{run.run_id}-life").report(Script(run, start).moments())


@dataclass
class Webhook:
    """What Alertmanager reports, by receiver."""

    url: str = ""
    reported: dict[str, Fired] = field(default_factory=lambda: {"page": set(), "ticket": set()})


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A server that takes notifications."""
    taken = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                labels = alert["labels"]
                taken.reported[self.path.strip("/")].add((labels["alertname"], labels.get("rl_run_id", "")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the library's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    taken.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def alerting(
    folder: Path, runs_pages: Sequence[str], own_pages: Sequence[str]
) -> Iterator[tuple[str, Webhook]]:
    """Prometheus and Alertmanager beside the pages of collectors: Prometheus' URL, and what arrived."""
    with ExitStack() as stack:
        hook = stack.enter_context(webhook())
        manager, prom = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        (folder / "rules.yaml").write_text(rules())
        (folder / "alertmanager.yml").write_text(_alertmanager(hook.url))
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump(_prometheus(folder, manager, (runs_pages, own_pages)))
        )
        for address, command in (
            (manager, [need("prometheus-alertmanager"), f"--config.file={folder / 'alertmanager.yml'}",
             f"--storage.path={folder / 'am'}", f"--web.listen-address={manager}",
             "--cluster.listen-address="]),
            (prom, [need("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={prom}"]),
        ):  # fmt: skip
            stack.enter_context(serving(command, folder, address))
        yield f"http://{prom}", hook


def _alertmanager(url: str) -> str:
    text = (ROOT / "dashboards/alertmanager/alertmanager.yml").read_text()
    for gathered in ("group_wait: 30s", "group_wait: 10s", "group_interval: 5m"):
        text = text.replace(gathered, gathered.partition(":")[0] + ": 1s")
    return text.replace("http://127.0.0.1:9095", url)


def _prometheus(
    folder: Path, manager: str, pages: tuple[Sequence[str], Sequence[str]]
) -> Mapping[str, object]:
    def job(name: str, targets: Sequence[str], **more: bool) -> Mapping[str, object]:
        return {"job_name": name, **more, "static_configs": [{"targets": [*targets]}]}

    return {
        "global": {"scrape_interval": f"{EVERY_S}s", "evaluation_interval": f"{EVERY_S}s"},
        "rule_files": [str(folder / "rules.yaml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
        "scrape_configs": [
            job("overwatch", pages[0], honor_labels=True),
            job("overwatch-collector", pages[1]),
        ],
    }


def fired(url: str) -> Fired:
    """Alerts about runs that fired at any time so far."""
    found = instant_query(url, FIRED)
    labels = [series["metric"] for series in found]
    return {(one["alertname"], one["rl_run_id"]) for one in labels if isinstance(one, dict)}


NAMED = (
    "overwatch_run_findings",
    "overwatch_run_status",
    "overwatch_run_non_finite",
    "overwatch_sdk_dropped",
)


def sampled(run: Settings, seconds: int) -> dict[str, list[float | None]]:
    """What a scraper sees of a run at every scrape, judged offline; only series that rules ask for."""
    with np.errstate(all="ignore"):
        return _sampled(run, seconds)


def _sampled(run: Settings, seconds: int) -> dict[str, list[float | None]]:
    fold, page, tick = Fold(), RunPage(), next_tick(START_NS)
    waiting = list(_reported(run, START_NS))[::-1]
    series: dict[str, list[float | None]] = {}
    end = START_NS + seconds * SECOND
    while tick <= end:
        due = []
        while waiting and waiting[-1].at + DELAY_NS <= tick:
            one = waiting.pop()
            due.append(
                Batch(sequence=len(waiting), stamp=one.at + DELAY_NS, signal=Signal.LOGS, body=one.body)
            )
        if tick % (EVERY_S * SECOND):
            fold.skip(tick, due)
        else:
            _sample(series, page, fold, tick, due)
        tick += FAST_NS
    return series


def sampled_all(runs: Sequence[Settings], seconds: Sequence[int]) -> dict[str, list[float | None]]:
    """The same of several runs, each for its seconds, by as many processes as this machine has cores."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.map(sampled, runs, seconds)
        return {name: values for series in found for name, values in series.items()}


def _sample(
    series: dict[str, list[float | None]], page: RunPage, fold: Fold, tick: int, due: list[Batch]
) -> None:
    place = (tick - START_NS) // (EVERY_S * SECOND)
    for family in page.families(fold.advance(tick, due, [])):
        if family.name.startswith(NAMED):
            for sample in family.samples:
                values = series.setdefault(named(sample), [])
                values += [None] * (place - len(values)) + [sample.value]


def notation(values: Sequence[float | None]) -> str:
    """Values as promtool writes them: what is gone from a page is stale at once, as to a real scraper."""
    first = next((place for place, one in enumerate(values) if one is not None), len(values))
    reported = ["stale" if one is None else repr(one) for one in values[first:]]
    return " ".join(["_"] * first + reported + ["stale"])


def case_of(recorded: Mapping[str, list[float | None]], live: Fired, seconds: int) -> str:
    """A file for promtool: on series of recorded runs, the same alerts fire as live."""
    steps = seconds // EVERY_S
    series = [
        {"series": name, "values": notation(values)}
        for name, values in recorded.items()
        if any(values) or "non_finite" in name
    ]
    wanted = [
        {"labels": f'{{alertname="{alert}", rl_run_id="{run}"}}', "value": 1} for alert, run in sorted(live)
    ]
    test = {
        "interval": f"{EVERY_S}s",
        "input_series": series,
        "promql_expr_test": [{"expr": FIRED, "eval_time": f"{steps * EVERY_S}s", "exp_samples": wanted}],
    }
    return yaml.safe_dump(
        {"rule_files": ["rules.yaml"], "evaluation_interval": f"{EVERY_S}s", "tests": [test]}, width=10**9
    )
