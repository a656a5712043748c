"""Acknowledging a finding of a running collector, from the route to the next life and to a replay."""

import json
import time
from pathlib import Path
from urllib.parse import quote

from overwatch.collector import Service
from overwatch.events import EnvCrashed, Event
from overwatch.feeds.recording import Recording
from overwatch.snapshot import Finding, Snapshot
from tests.overwatch.collector.running import Reply, eventually, fill, http, reported, run_started, running

RUN = "run-ack"


def crash(service: Service) -> Finding:
    """A run with a finding."""
    events: list[Event] = [run_started(), EnvCrashed(at=time.time_ns(), env_id=3, error="boom")]
    url = f"{service.context.urls.get('otlp_http')}/v1/logs"
    assert http(url, reported(RUN, events), content_type="application/x-protobuf").status == 200
    return eventually(lambda: next(iter(findings(service)), None))


def findings(service: Service) -> tuple[Finding, ...]:
    """What is wrong with the run now."""
    aggregator = service.context.aggregator
    assert aggregator is not None
    snapshots = {} if aggregator.frame is None else aggregator.frame.snapshots
    own: list[Snapshot] = [snapshot for (run_id, _), snapshot in snapshots.items() if run_id == RUN]
    return own[0].findings if own else ()


def acknowledge(service: Service, finding: str, query: str = f"run={RUN}", token: str | None = "") -> Reply:
    """Ask with the collector's own token, another one, or none."""
    view = str(service.context.urls.get("view")).replace("ws", "http", 1)
    own = service.context.guard.announced.control if token == "" else token
    headers = {} if own is None else {"authorization": f"Bearer {own}"}
    return http(f"{view}/api/v1/findings/{quote(finding, safe='')}/ack?{query}", b"", "POST", **headers)


def test_an_acknowledged_finding_is_seen_by_all_readers_and_lives(tmp_path: Path) -> None:
    """The next snapshots state it, the next life goes on with it, and a replay shows it."""
    with running(tmp_path) as service:
        finding = crash(service)
        reply = acknowledge(service, finding.id, f"run={RUN}&by=kim")
        assert reply.status == 200
        assert json.loads(reply.body) == {"run": RUN, "finding": finding.id, "acknowledged": True}
        eventually(lambda: [one.acknowledged for one in findings(service) if one.id == finding.id] == [True])

    with running(tmp_path) as service:
        eventually(lambda: [one.acknowledged for one in findings(service) if one.id == finding.id] == [True])

    *_, last = Recording(tmp_path / "otlp").recorded()
    assert [one.acknowledged for one in last.findings if one.id == finding.id] == [True]
    stated = [line for line in last.feed if line.kind == "finding_acknowledged"]
    assert [line.fields for line in stated] == [{"finding": finding.id, "by": "kim"}]


def test_who_asks_again_gets_the_same_answer_and_nothing_is_written(tmp_path: Path) -> None:
    """One word of one operator is one event."""
    with running(tmp_path) as service:
        finding = crash(service)
        assert acknowledge(service, finding.id).status == 200
        eventually(lambda: findings(service)[0].acknowledged)
        assert acknowledge(service, finding.id, "").status == 200

    *_, last = Recording(tmp_path / "otlp").recorded()
    assert [line.kind for line in last.feed].count("finding_acknowledged") == 1


def test_only_a_token_that_controls_may_acknowledge(tmp_path: Path) -> None:
    """Without one it is 401, and the finding stays as it is."""
    with running(tmp_path) as service:
        finding = crash(service)
        assert acknowledge(service, finding.id, token=None).status == 401
        assert acknowledge(service, finding.id, token="wrong").status == 401  # noqa: S106 it is none
        assert not findings(service)[0].acknowledged


def test_what_cannot_be_acknowledged_is_named(tmp_path: Path) -> None:
    """A finding, a run, a parameter that is unknown, a name that is too long, a journal without room."""
    with running(tmp_path, "exporters.aggregator.journal_size_mib=1") as service:
        finding = crash(service)
        for which, query, status, parameter in (
            ("no-such:finding", f"run={RUN}", 404, "finding"),
            (finding.id, "run=no-such-run", 404, "run"),
            (finding.id, f"run={RUN}&who=kim", 400, "who"),
            (finding.id, f"run={RUN}&by={'k' * 101}", 400, "by"),
        ):
            reply = acknowledge(service, which, query)
            assert (reply.status, json.loads(reply.body)["parameter"]) == (status, parameter)
        hung = fill(service, leave=16)
        assert acknowledge(service, finding.id).status == 503
        assert not findings(service)[0].acknowledged
        hung.wait(0)
