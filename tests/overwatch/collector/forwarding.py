"""A collector in the middle that forwards, for the tests that need one; its target is somebody else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overwatch.collector import Service
from overwatch.events import LogLine, Severity
from overwatch.journal import Signal
from tests.fakes import START_NS
from tests.overwatch.collector.running import eventually as running_eventually
from tests.overwatch.collector.running import http, reported, running

T = TypeVar("T")

PATHS = {Signal.LOGS: "/v1/logs", Signal.METRICS: "/v1/metrics", Signal.TRACES: "/v1/traces"}
PROTOBUF = "application/x-protobuf"


def sets(name: str, endpoint: str | None, *more: str) -> tuple[str, ...]:
    """Settings of a collector that forwards all signals by exporter `name`, with short pauses."""
    pipelines = (f"service.pipelines.{signal.value}.exporters=[aggregator, {name}]" for signal in PATHS)
    here = f"exporters.{name}"
    quick = (f"{here}.retry_on_failure.initial_interval=20ms", f"{here}.retry_on_failure.max_interval=100ms")
    return (*pipelines, f"{here}.endpoint={endpoint}", *quick, *more)


@contextmanager
def forwarding(folder: Path, endpoint: str | None, *more: str, name: str = "otlphttp") -> Iterator[Service]:
    """A collector that forwards to an endpoint."""
    with running(folder, *sets(name, endpoint, *more)) as service:
        yield service


def line(run_id: str, number: int, size: int = 0) -> bytes:
    """A request with one numbered line of a run, in so many bytes: the rest is a field nobody knows."""
    body = reported(
        run_id, [LogLine(at=START_NS + number, severity=Severity.WARNING, message=f"line {number}")], number
    )
    rest = size - len(body)
    if rest <= 0:
        return body
    length = bytes((rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14))
    return body + b"\xa2\x06" + length + bytes(rest)


def eventually(look: Callable[[], T | None]) -> T:
    """The first truthy result of `look`, on however busy a machine."""
    return running_eventually(look, within_s=60)


def give(service: Service, body: bytes, signal: Signal = Signal.LOGS) -> None:
    """Hand a request to a collector, which must accept it; where it asks to be left alone, in its time."""
    url = f"{service.endpoints.otlp_http}{PATHS[signal]}"
    statuses: list[int] = []

    def accepted() -> bool:
        statuses.append(http(url, body, Content_Type=PROTOBUF).status)
        return statuses[-1] == 200

    eventually(accepted)
    assert set(statuses) <= {200, 503}


def points() -> bytes:
    """A request with two metric points."""
    message = ExportMetricsServiceRequest()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="a")
    for value in (1.0, 2.0):
        metric.gauge.data_points.add(as_double=value, time_unix_nano=1_800_000_000_000_000_000)
    return message.SerializeToString()


def spans() -> bytes:
    """A request with a span, and a field of a newer version."""
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add(name="a")
    span.trace_id, span.span_id = bytes(range(16)), bytes(range(8))
    span.start_time_unix_nano = span.end_time_unix_nano = 1
    return message.SerializeToString() + b"\xa2\x06\x03new"


def counted(service: Service, verb: str, items: str = "log_records", name: str = "otlphttp") -> float:
    """A counter of an exporter."""
    return service.context.tally.get(f"otelcol_exporter_{verb}_{items}", exporter=name)


def dropped(service: Service, reason: str, name: str = "otlphttp") -> float:
    """How many log records an exporter gave up for a reason."""
    return service.context.tally.get(
        "overwatch_exporter_dropped_items", exporter=name, reason=reason, signal="logs"
    )


def trouble(service: Service, name: str = "otlphttp") -> str:
    """What health reports of an exporter; empty when it is well."""
    return service.context.health.degraded.get(f"exporter:{name}", "")
