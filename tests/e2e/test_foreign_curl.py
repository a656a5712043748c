"""curl with requests written by hand, in the ways that OTLP's documents show: no library at all."""

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from overwatch.discovery import Endpoints
from overwatch.journal import Signal
from overwatch.otlp.jsonl import from_json
from tests.e2e.collecting import collecting, snapshot_of, until

PROTOBUF, JSON = "application/x-protobuf", "application/json"
NANOS = 1_544_712_660_300_000_000


def resource(run_id: str) -> dict[str, Any]:
    """Who speaks."""
    reported = {"service.name": "my.service", "rl.run.id": run_id, "rl.algorithm": "ppo"}
    return {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in reported.items()]}


SCOPE = {
    "name": "my.library",
    "version": "1.0.0",
    "attributes": [{"key": "my.scope.attribute", "value": {"stringValue": "some scope attribute"}}],
}


def log(run_id: str) -> dict[str, Any]:
    """A log record with an attribute of every kind, ids in capital letters, times as bare numbers."""
    values: dict[str, dict[str, Any]] = {
        "string": {"stringValue": "some string"}, "boolean": {"boolValue": True}, "int": {"intValue": 10},
        "wide": {"intValue": "9223372036854775807"}, "double": {"doubleValue": 637.704},
        "array": {"arrayValue": {"values": [{"stringValue": "many"}, {"stringValue": "values"}]}},
        "map": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "some value"}}]}},
        "bytes": {"bytesValue": "AP8="}, "empty": {},
    }  # fmt: skip
    record = {
        "timeUnixNano": NANOS,
        "observedTimeUnixNano": str(NANOS),
        "severityNumber": 10,
        "severityText": "Information",
        "traceId": "5B8EFFF798038103D269B633813FC60C",
        "spanId": "EEE19B7EC3C1B174",
        "body": {"stringValue": "Example log record"},
        "attributes": [{"key": f"{name}.attribute", "value": value} for name, value in values.items()],
        "fieldOfTomorrow": {"any": ["thing"]},
    }
    return {
        "resourceLogs": [
            {"resource": resource(run_id), "scopeLogs": [{"scope": SCOPE, "logRecords": [record]}]}
        ]
    }


def metrics(run_id: str) -> dict[str, Any]:
    """A counter, a gauge and a histogram."""
    window = {"startTimeUnixNano": NANOS - 10**9, "timeUnixNano": NANOS}
    found = [
        {"name": "train/approx_kl", "gauge": {"dataPoints": [{"asDouble": 0.02, "timeUnixNano": NANOS}]}},
        {
            "name": "overwatch.run.steps",
            "sum": {
                "aggregationTemporality": 1,
                "isMonotonic": True,
                "dataPoints": [{"asInt": "5", **window}],
            },
        },
        {
            "name": "my.histogram",
            "unit": "1",
            "histogram": {
                "aggregationTemporality": 1,
                "dataPoints": [
                    {
                        "count": 3, "sum": 3, "bucketCounts": [1, "2"], "explicitBounds": [1],
                        "min": 1, "max": 1, **window,
                    }
                ],
            },
        },
    ]  # fmt: skip
    return {
        "resourceMetrics": [
            {"resource": resource(run_id), "scopeMetrics": [{"scope": SCOPE, "metrics": found}]}
        ]
    }


def trace(run_id: str) -> dict[str, Any]:
    """A server's span."""
    span = {
        "traceId": "5B8EFFF798038103D269B633813FC60C",
        "spanId": "EEE19B7EC3C1B174",
        "parentSpanId": "EEE19B7EC3C1B173",
        "name": "I'm a server span",
        "startTimeUnixNano": NANOS,
        "endTimeUnixNano": str(NANOS + 10**9),
        "kind": 2,
    }
    return {
        "resourceSpans": [{"resource": resource(run_id), "scopeSpans": [{"scope": SCOPE, "spans": [span]}]}]
    }


class Case(NamedTuple):
    """One way to send."""

    kind: str = JSON
    packed: bool = False
    more: tuple[str, ...] = ()
    """Further words for curl."""


CASES = {
    "json": Case(),
    "json-gzip": Case(packed=True),
    "protobuf": Case(PROTOBUF),
    "protobuf-gzip": Case(PROTOBUF, packed=True),
    "chunked": Case(more=("-H", "Transfer-Encoding: chunked")),
    "asks-first": Case(more=("-H", "Expect: 100-continue")),
    "http-1.0": Case(more=("--http1.0",)),
    "wants-gzip": Case(more=("--compressed",)),
    "charset": Case(kind="application/json; charset=utf-8"),
}


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoints, Path]]:
    """One collector for this module, and its folder."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    folder = tmp_path_factory.mktemp("curl")
    with collecting(folder) as endpoints:
        yield endpoints, folder


def send(url: str, body: bytes, case: Case, folder: Path) -> tuple[int, str, bytes]:
    """The status, the content type and the body of the answer to one request of curl."""
    file = folder / "body"
    file.write_bytes(gzip.compress(body) if case.packed else body)
    packing = ["-H", "Content-Encoding: gzip"] if case.packed else []
    command = [
        "curl",
        "-sS",
        "--max-time",
        "30",
        "-o",
        str(folder / "answer"),
        "-w",
        "%{http_code} %{content_type}",
    ]
    command += ["-H", f"Content-Type: {case.kind}", *packing, *case.more, "--data-binary", f"@{file}", url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    status, _, kind = ran.stdout.partition(" ")
    return int(status), kind, (folder / "answer").read_bytes()


@pytest.mark.parametrize("way", CASES)
def test_what_the_documents_show_is_taken(
    collector: tuple[Endpoints, Path], tmp_path: Path, way: str
) -> None:
    """Three signals in one way: full success, in the encoding that was asked in, and the run is there."""
    (endpoints, folder), case, run_id = collector, CASES[way], f"curl-{way}"
    reported = {Signal.LOGS: log(run_id), Signal.METRICS: metrics(run_id), Signal.TRACES: trace(run_id)}
    answers = []
    for signal, tree in reported.items():
        text = json.dumps(tree).encode()
        body = from_json(signal, text) if case.kind == PROTOBUF else text
        answers.append(send(f"{endpoints.otlp_http}/v1/{signal.value}", body, case, tmp_path))

    expected = PROTOBUF if case.kind == PROTOBUF else JSON
    assert {(status, kind.partition(";")[0]) for status, kind, _ in answers} == {(200, expected)}
    assert {body for _, _, body in answers} == {b"" if case.kind == PROTOBUF else b"{}"}

    def shown() -> bool:
        snapshot = snapshot_of(endpoints, run_id)
        return bool(snapshot and snapshot.feed and snapshot.policy["kl_divergence"].value == 0.02)

    until(shown, f"{run_id} in the tower")
    snapshot = snapshot_of(endpoints, run_id)
    assert snapshot is not None
    assert snapshot.feed[-1].message == "Example log record"
    assert snapshot.counters["steps"] == 5
    traces = folder / "otlp" / "traces.jsonl"
    until(lambda: traces.exists() and "I'm a server span" in traces.read_text(), "the span in the recording")


def test_a_refusal_states_what_to_do(collector: tuple[Endpoints, Path], tmp_path: Path) -> None:
    """A wrong path, method, type or body is answered in words that a person at a terminal can use."""
    endpoints, _ = collector
    url = f"{endpoints.otlp_http}/v1/logs"
    stated = {
        404: send(f"{endpoints.otlp_http}/v1/log", b"{}", Case(), tmp_path),
        405: send(url, b"{}", Case(more=("-X", "PUT")), tmp_path),
        415: send(url, b"{}", Case(kind="text/plain"), tmp_path),
        400: send(url, b'{"resourceLogs": 1}', Case(), tmp_path),
    }

    assert {status: answer[0] for status, answer in stated.items()} == {status: status for status in stated}
    words = {status: json.loads(answer[2])["message"] for status, answer in stated.items()}
    assert "/v1/logs" in words[404]
    assert "POST" in words[405]
    assert "application/json" in words[415]
    assert "resourceLogs" in words[400]
