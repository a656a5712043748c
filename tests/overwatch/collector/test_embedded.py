"""The tower inside of a program: what the OpenTelemetry SDK exports is diagnosed in process."""

from collections.abc import Callable

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource

from overwatch.collector.embedded import Tower
from overwatch.snapshot import Snapshot
from tests.overwatch.collector.running import eventually

RESOURCE = Resource({"rl.run.id": "in-process"})


def _seen(tower: Tower, wanted: Callable[[Snapshot], object]) -> Snapshot:
    def look() -> Snapshot | None:
        snapshot = tower.snapshot()
        return snapshot if snapshot is not None and wanted(snapshot) else None

    return eventually(look)


def test_gauges_of_a_program_become_the_policy_pulse() -> None:
    """A KL above its limit is critical, as it would be behind a collector."""
    with Tower() as tower:
        reader = PeriodicExportingMetricReader(tower.metric_exporter(), export_interval_millis=60_000)
        meters = MeterProvider([reader], resource=RESOURCE, shutdown_on_exit=False)
        meters.get_meter("mine").create_gauge("overwatch.policy.kl_divergence", "{nat}").set(0.2)
        assert meters.force_flush()
        snapshot = _seen(tower, lambda seen: seen.policy["kl_divergence"].value is not None)
        meters.shutdown()
    kl = snapshot.policy["kl_divergence"]
    assert (snapshot.run.run_id, kl.value, kl.status) == ("in-process", 0.2, "critical")


def test_log_records_of_a_program_become_the_feed() -> None:
    """With their severity and attributes; a run of another name is its own."""
    with Tower() as tower:
        logs = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
        logs.add_log_record_processor(SimpleLogRecordProcessor(tower.log_exporter()))
        record = LogRecord(
            timestamp=1_700_000_000_000_000_000,
            severity_number=SeverityNumber.WARN,
            body="the pool is small",
            attributes={"pool": 3},
        )
        logs.get_logger("mine").emit(record)
        snapshot = _seen(tower, lambda seen: seen.feed)
        assert tower.snapshot("other") is None
    assert (snapshot.feed[0].message, snapshot.feed[0].severity) == ("the pool is small", "warning")
    assert snapshot.feed[0].fields["pool"] == "3"


def test_what_comes_before_the_first_tick_is_no_gap(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was before it: no time since is logged, and no silence is excused."""
    tower = Tower()
    logs = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    logs.add_log_record_processor(SimpleLogRecordProcessor(tower.log_exporter()))
    logs.get_logger("mine").emit(LogRecord(timestamp=1_700_000_000_000_000_000, body="early"))
    with tower:
        _seen(tower, lambda seen: seen.feed)

    assert "nothing was received" not in caplog.text


def test_a_tower_that_is_full_reports_failure() -> None:
    """Nothing ticks, so nothing is folded: what does not fit is refused, not dropped in silence."""
    tower = Tower(budget_mib=1)
    exporter = tower.log_exporter()
    records: list[LogRecordExportResult] = []

    class Keep(SimpleLogRecordProcessor):
        def on_emit(self, log_record: object) -> None:
            records.append(exporter.export([log_record]))  # type: ignore[list-item]

    logs = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    logs.add_log_record_processor(Keep(exporter))
    for _ in range(3):
        logs.get_logger("mine").emit(LogRecord(timestamp=1, body="x" * 600_000))
    assert records == [LogRecordExportResult.SUCCESS, *[LogRecordExportResult.FAILURE] * 2]
    tower.start()
    tower.stop()
    with pytest.raises(ValueError, match="not 0"):
        Tower(budget_mib=0)


def test_a_tower_that_was_stopped_reports_failure() -> None:
    """Nobody folds any more what a provider exports as it shuts down after its tower."""
    with Tower() as tower:
        reader = PeriodicExportingMetricReader(tower.metric_exporter(), export_interval_millis=60_000)
        meters = MeterProvider([reader], resource=RESOURCE, shutdown_on_exit=False)
        meters.get_meter("mine").create_gauge("overwatch.policy.kl_divergence", "{nat}").set(0.2)
        assert tower.log_exporter().export([]) is LogRecordExportResult.SUCCESS
    assert tower.log_exporter().export([]) is LogRecordExportResult.FAILURE
    assert tower.metric_exporter().export(MetricsData([])) is MetricExportResult.FAILURE
    meters.shutdown()
    assert tower.snapshot() is None
