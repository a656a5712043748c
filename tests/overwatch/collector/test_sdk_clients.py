"""The OpenTelemetry SDK's own exporters as clients of a real collector."""

import logging
import threading
from pathlib import Path

import grpc
import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from overwatch.collector import Service
from overwatch.snapshot import Snapshot, View
from tests.overwatch.collector.running import eventually, fill, running

RESOURCE = Resource.create({"rl.run.id": "sdk-run", "service.name": "someone-else"})


def snapshot(service: Service) -> Snapshot | None:
    """The run's latest default snapshot."""
    aggregator = service.context.aggregator
    frame = None if aggregator is None else aggregator.frame
    return None if frame is None else frame.snapshots.get(("sdk-run", View()))


def log_exporter(service: Service, transport: str) -> LogRecordExporter:
    """The SDK's log exporter for one transport, with gzip."""
    if transport == "http":
        return HttpLogs(f"{service.endpoints.otlp_http}/v1/logs", compression=Compression.Gzip, timeout=30)
    endpoint = str(service.endpoints.otlp_grpc)
    return GrpcLogs(endpoint, insecure=True, compression=grpc.Compression.Gzip, timeout=30)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_foreign_log_line_reaches_the_feed(tmp_path: Path, transport: str) -> None:
    """A log line that the SDK exports is in the feed, and counted."""
    with running(tmp_path) as service:
        provider = LoggerProvider(RESOURCE, shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(log_exporter(service, transport)))
        provider.get_logger("loader").emit(body="shard 7 is slow", severity_number=SeverityNumber.WARN)
        provider.shutdown()

        found = eventually(lambda: (shot := snapshot(service)) and shot.feed and shot)
        assert found.feed[-1].message == "shard 7 is slow"
        assert found.feed[-1].severity == "warning"
        labels = {"receiver": "otlp", "transport": transport}
        assert service.context.tally.get("otelcol_receiver_accepted_log_records", **labels) == 1


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_foreign_gauge_reaches_the_policy(tmp_path: Path, transport: str) -> None:
    """A gauge under an alias of the catalogue is folded for a run that is not ours."""
    with running(tmp_path) as service:
        url = f"{service.endpoints.otlp_http}/v1/metrics"
        grpc_url = str(service.endpoints.otlp_grpc)
        exporter = HttpMetrics(url) if transport == "http" else GrpcMetrics(grpc_url, insecure=True)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)
        provider = MeterProvider([reader], RESOURCE, shutdown_on_exit=False)
        provider.get_meter("sb3").create_gauge("losses/approx_kl").set(0.011)
        provider.shutdown()

        found = eventually(lambda: (shot := snapshot(service)) and shot.policy.get("kl_divergence") and shot)
        assert found.policy["kl_divergence"].value == 0.011


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_spans_are_recorded(tmp_path: Path, transport: str) -> None:
    """Spans go to their file."""
    with running(tmp_path) as service:
        provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
        url, grpc_url = f"{service.endpoints.otlp_http}/v1/traces", str(service.endpoints.otlp_grpc)
        exporter = HttpSpans(url) if transport == "http" else GrpcSpans(grpc_url, insecure=True)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        provider.get_tracer("loop").start_span("rl.train").end()
        provider.shutdown()

    assert '"name":"rl.train"' in (tmp_path / "otlp" / "traces.jsonl").read_text()


@pytest.mark.parametrize("transport", ["http", "grpc"])
@pytest.mark.parametrize(
    "temporality",
    [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA],
    ids=["totals", "changes"],
)
def test_the_sdks_counters_are_totals(
    tmp_path: Path, transport: str, temporality: AggregationTemporality
) -> None:
    """A counter that is exported three times is the run's total, as changes and as totals alike."""
    preferred = dict.fromkeys((Counter, Histogram), temporality)
    with running(tmp_path) as service:
        url, grpc_url = f"{service.endpoints.otlp_http}/v1/metrics", str(service.endpoints.otlp_grpc)
        exporter = (
            HttpMetrics(url, preferred_temporality=preferred)
            if transport == "http"
            else GrpcMetrics(grpc_url, insecure=True, preferred_temporality=preferred)
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        provider = MeterProvider([reader], RESOURCE, shutdown_on_exit=False)
        meter = provider.get_meter("trainer")
        steps, kl = meter.create_counter("overwatch.run.steps"), meter.create_histogram("losses/approx_kl")
        for taken in (300, 40, 2):
            steps.add(taken)
            kl.record(taken / 10_000)
            provider.force_flush()
        provider.shutdown()

        found = eventually(lambda: (shot := snapshot(service)) and shot.counters["steps"] == 342 and shot)
        assert found.policy["kl_divergence"].value == pytest.approx(0.0002)


def test_the_sdk_retries_until_there_is_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An exporter that is asked to retry delivers once the journal has room again."""
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    with running(tmp_path, "exporters.aggregator.journal_size_mib=1") as service:
        hung = fill(service, leave=10)
        provider = LoggerProvider(RESOURCE, shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(log_exporter(service, "http")))

        def make_room() -> bool:
            refused = service.context.tally.get(
                "otelcol_receiver_refused_log_records", receiver="otlp", transport="http"
            )
            return bool(refused) and bool(hung.wait(0))

        room = threading.Thread(target=lambda: eventually(make_room))
        room.start()
        provider.get_logger("loader").emit(body="kept", severity_number=SeverityNumber.INFO)
        room.join()
        provider.shutdown()
        hung.wait(0)
        found = eventually(lambda: (shot := snapshot(service)) and shot.feed and shot)

    assert found.feed[-1].message == "kept"
