"""Each way in which telemetry can differ from the registry is found; what fits is silent."""

from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overwatch.conventions import LiveCheck, registry
from overwatch.otlp import wire
from overwatch.otlp.value import Value
from tests.overwatch.otlp.attributes import to_any, to_pairs

_CRASH: dict[str, Value] = {"overwatch.env.id": 3, "overwatch.error": "boom"}


def _check(*messages: wire.Request) -> LiveCheck:
    check = LiveCheck(registry())
    for message in messages:
        check.take(message)
    return check


def _found(message: wire.Request) -> set[tuple[str, str]]:
    return {(one.advice.value, one.id) for one in _check(message).report.findings}


def _log(
    name: str, attributes: dict[str, Value], body: Value = None, *, at: int = 1
) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    log = LogRecord(event_name=name, time_unix_nano=at, attributes=to_pairs(attributes))
    if body is not None:
        log.body.CopyFrom(to_any(body))
    request.resource_logs.add().scope_logs.add().log_records.append(log)
    return request


def _metric(fill: Callable[[Metric], None], **named: str) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    fill(request.resource_metrics.add().scope_metrics.add().metrics.add(**named))
    return request


def _gauge(metric: Metric) -> None:
    metric.gauge.data_points.add(as_double=1.0)


def _span(name: str, attributes: dict[str, Value]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.append(
        Span(name=name, attributes=to_pairs(attributes))
    )
    return request


@pytest.mark.parametrize(
    ("message", "finding"),
    [
        (_log("overwatch.no_such", {}), ("violation", "missing_event")),
        (_log("overwatch.env_crashed", _CRASH | {"mine": 1}), ("violation", "missing_attribute")),
        (_log("overwatch.env_crashed", _CRASH | {"overwatch.step": "7"}), ("violation", "type_mismatch")),
        (_log("overwatch.env_crashed", {"overwatch.error": "boom"}),
         ("violation", "required_attribute_not_present")),
        (_log("overwatch.env_crashed", _CRASH, at=0), ("violation", "missing_timestamp")),
        (_log("", {"event.name": "overwatch.env_crashed", **_CRASH}), ("improvement", "legacy_event_name")),
        (_log("overwatch.measured", {"overwatch.scope": "fleet"}),
         ("information", "undefined_enum_variant")),
        (_log("overwatch.measured", {"overwatch.scope": "env"}, {"values": {"my.number": {}}}),
         ("violation", "missing_metric")),
        (_log("overwatch.episode_ended", {}, {"env_id": {}, "score": {}}),
         ("violation", "unexpected_body")),
        (_metric(_gauge, name="my.metric"), ("violation", "missing_metric")),
        (_metric(_gauge, name="overwatch.policy.loss", unit="1"), ("violation", "unit_mismatch")),
        (_metric(_gauge, name="system.memory.usage", unit="By"), ("violation", "unexpected_instrument")),
        (_metric(_gauge, name="hw.gpu.utilization", unit="1"),
         ("violation", "required_attribute_not_present")),
        (_span("nap", {}), ("information", "unknown_span")),
        (_span("rollout", {"overwatch.update": 1.5}), ("violation", "type_mismatch")),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_found(message: wire.Request, finding: tuple[str, str]) -> None:
    """With how much it matters and Weaver's id."""
    assert _found(message) == {finding}


@pytest.mark.parametrize(
    "message",
    [
        _log("overwatch.env_crashed", _CRASH),
        _log("overwatch.measured", {"overwatch.scope": "policy", "overwatch.policy.entropy": 0.5,
                                    "overwatch.custom.my_thing": 1.0}),
        _log("overwatch.measured", {"overwatch.scope": "env"},
             {"keys": {"env_id": {}}, "values": {"overwatch.env.reward": {}, "lane": {}}}),
        _metric(_gauge, name="overwatch.policy.loss", unit="{loss}"),
        _span("collect", {"overwatch.update": 4}),
    ],
)  # fmt: skip
def test_what_fits_is_silent(message: wire.Request) -> None:
    """And every name in it is registered."""
    check = _check(message)
    known, met = check.report.registered

    assert not check.report.findings
    assert known == met > 0


def test_equal_findings_are_one_with_a_count() -> None:
    """A thousand records that are wrong in one way are one line."""
    check = _check(*[_log("overwatch.no_such", {})] * 1000)

    assert list(check.report.findings.values()) == [1000]


def test_findings_without_end_are_only_counted() -> None:
    """Memory is bounded, whatever comes."""
    check = _check(*(_log(f"mine.{n}", {}) for n in range(5000)))

    assert len(check.report.findings) == 4096
    assert check.report.overflow == 904


def test_coverage_is_the_share_of_the_registry_that_was_emitted() -> None:
    """Names count once."""
    covered, held = _check(_log("overwatch.env_crashed", _CRASH)).report.coverage

    assert covered == 3
    assert held > 400
