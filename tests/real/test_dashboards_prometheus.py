"""Every question of the shipped dashboards and rules is answered by a real Prometheus that scraped a run."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from overwatch.catalog import Kind, Scope, of_scope
from overwatch.catalog.tallies import SERVICES
from overwatch.collector import Service
from overwatch.events import Buckets, Measured, Origin, Record, Tallied, TallySeries, scalars
from overwatch.generate.boards import Board
from overwatch.generate.rules import Plan, recordings, steady_alerts, windowed_alerts
from overwatch.otlp.encode import request
from tests import fakes, promql
from tests.overwatch.collector.pki import authority, signed
from tests.overwatch.collector.running import eventually, http, reported, run_started, running
from tests.real.servers import instant_query, need, prometheus

ROOT = Path(__file__).parents[2]
SECONDS = 90
MADE_BY_PROMETHEUS = {"up", "ALERTS"}


def requested() -> dict[str, str]:
    """All expressions of all dashboards with everything chosen, by board and panel."""
    found = {}
    for board in Board:
        shown = json.loads((ROOT / board.file).read_text(encoding="utf-8"))
        for panel in shown["panels"]:
            for target in panel["targets"]:
                where = f"{board.uid}: {panel['title']} {target['refId']}"
                found[where] = promql.filled(target["expr"])
    return found


def needed() -> dict[str, str]:
    """All series that all rules stand on, as questions, by alert; that each rule can fire, promtool shows."""
    plan = Plan(collector_job="collector")
    found = {}
    for alert in (*steady_alerts(plan), *windowed_alerts(plan)):
        for number, one in enumerate(promql.selected(alert.expr)):
            labels = ",".join(f'{label}=~"{word}"' for label, word in one.labels.items())
            found[f"{alert.name}: series {number}"] = f"{one.name}{{{labels}}}"
    return found


@contextmanager
def stormy(service: Service) -> Iterator[None]:
    """A run with lanes, slots and trouble, emitted while the block lasts."""
    flags = ["--gpus", "2", "--envs", "16", "--slots", "4", "--seconds", str(SECONDS), "--run-id", "stormy"]
    faults = ["--fault", "crash-storm@5", "--fault", "cull-storm@8", "--fault", "reward-hacking@0"]
    to = ["--endpoint", str(service.endpoints.otlp_http)]
    trainer = subprocess.Popen(
        [sys.executable, "-m", "overwatch.cli", "simulate", *flags, *faults, *to],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        trainer.terminate()
        trainer.wait(20)


def crowded(service: Service) -> None:
    """A run with more envs than there is room for."""
    ids = range(6000)
    events = [run_started(), fakes.envs(time.time_ns(), ids, 1, reward=[1.0] * len(ids))]
    url, kind = f"{service.endpoints.otlp_http}/v1/logs", "application/x-protobuf"
    assert http(url, reported("crowded", events), "POST", content_type=kind).status == 200


def served(service: Service, scope: Scope, turn: int) -> None:
    """All that a service reports, its counts higher with each turn."""
    gauges: dict[str, float] = {}
    series = []
    for row in of_scope(scope):
        labels = dict.fromkeys(row.labels, "x")
        if row.kind is Kind.GAUGE:
            gauges[row.name] = 1.0
        elif row.kind is Kind.COUNTER:
            series.append(TallySeries(metric=row.name, labels=labels, sum=float(turn)))
        else:
            held = Buckets(bounds=row.buckets, counts=(turn, *[0] * len(row.buckets)))
            series.append(
                TallySeries(metric=row.name, labels=labels, sum=1.0 * turn, count=turn, buckets=held)
            )
    at = time.time_ns()
    events = (
        Measured(at=at, scope=scope, values=scalars(gauges)),
        Tallied(at=at, scope=scope, series=tuple(series)),
    )
    origin = Origin(run_id="stormy", role=scope.value, epoch="e", ours=True)
    body = request([Record(origin=origin, event=event) for event in events], {})
    url, kind = f"{service.endpoints.otlp_http}/v1/logs", "application/x-protobuf"
    assert http(url, body, "POST", content_type=kind).status == 200


def exported(service: Service) -> set[str]:
    """Names of all samples on the collector's two pages."""
    ends = service.context.urls
    pages = [http(f"{ends[page]}/metrics").body.decode() for page in ("metrics", "telemetry")]
    lines = [line for page in pages for line in page.splitlines() if line and not line.startswith("#")]
    return {line.partition("{")[0].partition(" ")[0] for line in lines}


@pytest.mark.timeout(240)
def test_every_question_has_an_answer(tmp_path: Path) -> None:
    """Only what is exported is asked for, and all of it comes back with data."""
    need("prometheus")
    questions = requested() | needed()
    authority(tmp_path, "ca")
    signed(tmp_path, "server")
    sets = (
        f"receivers.otlp.protocols.grpc.tls.cert_file={tmp_path / 'server.pem'}",
        f"receivers.otlp.protocols.grpc.tls.key_file={tmp_path / 'server.key'}",
        "exporters.aggregator.max_state_mib=8",
    )
    with running(tmp_path, *sets) as service, prometheus(tmp_path, service) as url, stormy(service):
        crowded(service)
        eventually(lambda: instant_query(url, 'overwatch_policy_status{rl_run_id="stormy"}'), 40)
        unanswered = set(questions)
        deadline = time.monotonic() + SECONDS
        for turn in count(1):
            if not unanswered or time.monotonic() >= deadline:
                break
            for scope in SERVICES:
                served(service, scope, turn)
            unanswered = {where for where in unanswered if not instant_query(url, questions[where])}
            time.sleep(0.2)
        known = exported(service) | MADE_BY_PROMETHEUS | {one.name for one in recordings(Plan())}

    assert {where: questions[where] for where in unanswered} == {}
    named = {one.name for expr in questions.values() for one in promql.selected(expr)}
    assert named - known == set()
    assert len(questions) > 120
