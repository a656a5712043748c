"""OTLP files as other programs write them, by hand from the specifications.

The file exporter of the OpenTelemetry specification and otelcol's `file` exporter: JSON lines with one
request each; protobuf, and whatever is packed, with four bytes of length, the highest first, before each
message; zstd message by message.
"""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import zstandard

START_S: Final = 1_760_000_000
RUN: Final = "hand-made"


def at(second: float) -> str:
    """A time as OTLP/JSON writes it."""
    return str(round((START_S + second) * 1e9))


def _resource(**more: str) -> dict[str, Any]:
    pairs = {"service.name": "trainer", "rl.run.id": RUN, **more}
    return {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in pairs.items()]}


def metrics(second: float, reward: float = 1.0) -> dict[str, Any]:
    """One gauge and one sum, as a foreign exporter writes them."""
    gauge = {"dataPoints": [{"timeUnixNano": at(second), "asDouble": reward}]}
    total = {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [{"startTimeUnixNano": at(0), "timeUnixNano": at(second), "asInt": str(int(second))}],
    }
    return {
        "resourceMetrics": [
            {
                "resource": _resource(),
                "scopeMetrics": [
                    {
                        "scope": {"name": "cleanrl", "version": "1"},
                        "metrics": [
                            {"name": "charts/episodic_return", "unit": "{reward}", "gauge": gauge},
                            {"name": "overwatch.custom.batches", "unit": "{batch}", "sum": total},
                        ],
                    }
                ],
            }
        ]
    }


def logs(second: float, text: str = "an epoch is over", **record: Any) -> dict[str, Any]:
    """One log line."""
    log = {
        "timeUnixNano": at(second), "severityNumber": 9, "severityText": "INFO",
        "body": {"stringValue": text},
        "attributes": [{"key": "epoch", "value": {"intValue": "3"}}], **record,
    }  # fmt: skip
    return {
        "resourceLogs": [
            {"resource": _resource(), "scopeLogs": [{"scope": {"name": "train"}, "logRecords": [log]}]}
        ]
    }


def traces(second: float) -> dict[str, Any]:
    """One span."""
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "update",
        "kind": 1, "startTimeUnixNano": at(second - 0.2), "endTimeUnixNano": at(second),
    }  # fmt: skip
    return {
        "resourceSpans": [
            {"resource": _resource(), "scopeSpans": [{"scope": {"name": "train"}, "spans": [span]}]}
        ]
    }


def reported(seconds: Iterable[float]) -> list[dict[str, Any]]:
    """A log line, a metric and a span at each of these seconds."""
    return [request for second in seconds for request in (logs(second), metrics(second), traces(second))]


def lines(requests: Iterable[dict[str, Any]]) -> bytes:
    """As JSON lines."""
    return b"".join(json.dumps(request, separators=(",", ":")).encode() + b"\n" for request in requests)


def protobuf(request: dict[str, Any]) -> bytes:
    """A request as protobuf, by Google's own reader of its JSON, which writes ids in base64."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    kinds = {
        "resourceLogs": ExportLogsServiceRequest,
        "resourceMetrics": ExportMetricsServiceRequest,
        "resourceSpans": ExportTraceServiceRequest,
    }
    text = json.dumps(request)
    for name in ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"):
        text = text.replace(name, base64.b64encode(bytes.fromhex(name)).decode())
    kind = kinds[next(iter(request))]
    return bytes(json_format.Parse(text, kind()).SerializeToString())


def framed(messages: Iterable[bytes]) -> bytes:
    """Each message with its length before it."""
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


def packed(messages: Iterable[bytes]) -> bytes:
    """Each message packed with zstd, its packed length before it."""
    pack = zstandard.ZstdCompressor().compress
    return framed(pack(message) for message in messages)


def written(path: Path, data: bytes) -> Path:
    """A file that holds this; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
