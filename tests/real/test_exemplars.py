"""The trace of a slow phase is found from the histogram that counts it: a real trainer, a real Prometheus."""

import json
import time
import urllib.parse
from pathlib import Path

import pytest

import overwatch.sdk
from overwatch.collector import Service
from tests.overwatch.collector.running import eventually, http, running
from tests.real.servers import instant_query, need, prometheus

HISTOGRAM = "overwatch_run_phase_duration_seconds"


def exemplars(url: str, query: str) -> list[dict[str, object]]:
    """Exemplars of the last minute."""
    requested = urllib.parse.urlencode({"query": query, "start": time.time() - 60, "end": time.time() + 60})
    answer = json.loads(http(f"{url}/api/v1/query_exemplars?{requested}").body)
    assert answer["status"] == "success", answer
    return [one for series in answer["data"] for one in series["exemplars"]]


def spans(service: Service, folder: Path) -> set[tuple[str, str]]:
    """Trace and span id of each span that the collector wrote down."""
    del service
    found = set()
    for path in folder.rglob("traces.jsonl"):
        for line in path.read_text().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found |= {(span["traceId"], span["spanId"]) for span in scope["spans"]}
    return found


@pytest.mark.timeout(120)
def test_prometheus_finds_the_span_of_a_phase(tmp_path: Path) -> None:
    """A run with spans on: the exemplar of a bucket names a span that went the same way."""
    need("prometheus")
    with (
        running(tmp_path) as service,
        prometheus(tmp_path, service, "--enable-feature=exemplar-storage") as url,
    ):
        run = overwatch.sdk.start(endpoint=str(service.endpoints.otlp_http), run_id="traced", sample=False)
        for n in range(5):
            with run.phase("update"):
                time.sleep(0.02)
            run.update(update=n, kl_divergence=0.01)
        query = f'{HISTOGRAM}_bucket{{rl_run_id="traced",phase="update"}}'
        found = eventually(lambda: exemplars(url, query), 60)
        counted = instant_query(url, f'{HISTOGRAM}_count{{rl_run_id="traced"}}')
        assert run.close(10.0).delivered
        # Five phases, each below its turn.
        known = eventually(lambda: len(reported := spans(service, tmp_path)) == 10 and reported, 20)

    labels = [one["labels"] for one in found]
    assert {(one["trace_id"], one["span_id"]) for one in labels if isinstance(one, dict)} <= known
    assert counted
    assert all(0.02 <= float(str(one["value"])) < 5 for one in found)
