"""Telemetry against a registry: what is sent that is not registered, or not as it is registered.

The ids of findings are those of Weaver's `registry live-check`. Rules: equal findings are one with a count;
a violation breaks the registry, an improvement would be better, an information is worth knowing; memory is
bounded by `MAX_FINDINGS`. Must not know where telemetry comes from.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, assert_never

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as MetricMessage
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overwatch.catalog import CUSTOM_PREFIX
from overwatch.catalog.phases import phase_of_span
from overwatch.conventions.model import Attribute, EventDef, Level, Registry, Signal, refs_of
from overwatch.conventions.registry import PHASE_PREFIX
from overwatch.otlp import wire
from overwatch.otlp.value import Value, attributes_to_python

MAX_FINDINGS: Final = 4096
"""Most different findings that are kept; further ones are only counted."""
_KINDS: Final = {str: "string", bool: "boolean", int: "int", float: "double"}
_MEASURED: Final = "overwatch.measured"


class Advice(Enum):
    """How much a finding matters; the value is Weaver's word."""

    VIOLATION = "violation"
    IMPROVEMENT = "improvement"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that does not fit."""

    advice: Advice
    id: str
    signal: str
    """Kind and name of what sent it, e.g. `metric hw.power`."""
    message: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found so far."""

    registry: Registry
    items: Counter[str] = field(default_factory=Counter)
    """Log records, points, spans and resources that were looked at."""
    findings: Counter[Finding] = field(default_factory=Counter)
    """Each with how often it was met."""
    overflow: int = 0
    """Findings beyond those that are kept."""
    seen: dict[str, set[str]] = field(default_factory=dict)
    """Names that were met, by kind: those that are registered."""
    strange: dict[str, set[str]] = field(default_factory=dict)
    """Those that are not."""

    def add(self, finding: Finding) -> None:
        """Count a finding."""
        if finding in self.findings or len(self.findings) < MAX_FINDINGS:
            self.findings[finding] += 1
        else:
            self.overflow += 1

    def met(self, kind: str, name: str, *, known: bool) -> None:
        """Note a name."""
        names = self.seen if known else self.strange
        held = names.setdefault(kind, set())
        if len(held) < MAX_FINDINGS:
            held.add(name)

    def count(self, advice: Advice) -> int:
        """How many different findings of a kind there are."""
        return sum(one.advice is advice for one in self.findings)

    @property
    def registered(self) -> tuple[int, int]:
        """Of the names that were met, how many are registered, and how many there are."""
        known = sum(map(len, self.seen.values()))
        return known, known + sum(map(len, self.strange.values()))

    @property
    def coverage(self) -> tuple[int, int]:
        """Of the registry's names, how many were met, and how many there are."""
        held = self.registry
        sizes = len(held.attributes) + sum(1 for _ in held.signals())
        return sum(map(len, self.seen.values())), sizes


class LiveCheck:
    """Checks one message after another against a registry."""

    def __init__(self, registry: Registry) -> None:
        self.report = Report(registry=registry)
        self._registry = registry

    def take(self, message: wire.Request) -> None:
        """Check all that a request holds."""
        match message:
            case ExportLogsServiceRequest():
                for resource_logs in message.resource_logs:
                    self._resource(resource_logs.resource)
                    for scope_logs in resource_logs.scope_logs:
                        for log in scope_logs.log_records:
                            self._log(log)
            case ExportMetricsServiceRequest():
                for resource_metrics in message.resource_metrics:
                    self._resource(resource_metrics.resource)
                    for scope_metrics in resource_metrics.scope_metrics:
                        for metric in scope_metrics.metrics:
                            self._metric(metric)
            case ExportTraceServiceRequest():
                for resource_spans in message.resource_spans:
                    self._resource(resource_spans.resource)
                    for scope_spans in resource_spans.scope_spans:
                        for span in scope_spans.spans:
                            self._span(span)
            case _:
                assert_never(message)

    def _resource(self, resource: Resource) -> None:
        self.report.items["resources"] += 1
        self._attributes("resource", resource.attributes)

    def _log(self, log: LogRecord) -> None:
        self.report.items["log records"] += 1
        attributes = attributes_to_python(log.attributes)
        name = log.event_name
        legacy = attributes.pop(wire.EVENT_NAME, None)
        if not name and isinstance(legacy, str):
            name = legacy
            self._emit(Advice.IMPROVEMENT, "legacy_event_name", f"event {name}",
                      "its name is in the attribute event.name; use the field EventName")  # fmt: skip
        if not name:
            self._values("log", attributes)
            return
        known = self._registry.events.get(name)
        self.report.met("event", name, known=known is not None)
        where = f"event {name}"
        if known is None:
            self._emit(Advice.VIOLATION, "missing_event", where, "no event of the registry is called so")
        else:
            self._wanted(where, known, attributes)
        if not log.time_unix_nano:
            self._emit(Advice.VIOLATION, "missing_timestamp", where, "it has no time: set Timestamp")
        self._values(where, attributes)
        if known is not None and known.columns and log.body.HasField("kvlist_value"):
            self._body(known, attributes_to_python(log.body.kvlist_value.values))

    def _body(self, known: EventDef, body: Mapping[str, Value]) -> None:
        """The names of an event's columns."""
        for name in body:
            if name not in known.columns:
                stated = f"its body has {name!r}, which is none of {', '.join(known.columns)}"
                self._emit(Advice.VIOLATION, "unexpected_body", f"event {known.name}", stated)
        if known.name == _MEASURED:
            for part in ("keys", "values"):
                columns = body.get(part)
                for name in columns if isinstance(columns, Mapping) else ():
                    self._column(name)

    def _column(self, name: str) -> None:
        """A column of a measurement: a metric, an attribute, or a trainer's own."""
        key = wire.COLUMNS.get(name, name)
        if key in self._registry.metrics:
            self.report.met("metric", key, known=True)
            return
        attribute = self._registry.attribute(key)
        self.report.met("attribute", key if attribute is None else attribute.key, known=attribute is not None)
        if attribute is None:
            stated = f"column {name!r} is no metric of the registry; your own are {CUSTOM_PREFIX}NAME"
            self._emit(Advice.VIOLATION, "missing_metric", f"event {_MEASURED}", stated)

    def _metric(self, metric: MetricMessage) -> None:
        data = metric.WhichOneof("data")
        points = () if data is None else getattr(metric, data).data_points
        self.report.items["points"] += len(points)
        known, where = self._registry.metrics.get(metric.name), f"metric {metric.name}"
        self.report.met("metric", metric.name, known=known is not None)
        if known is None:
            self._emit(Advice.VIOLATION, "missing_metric", where, "no metric of the registry is called so")
        else:
            if metric.unit != known.unit:
                stated = f"unit {metric.unit!r} should be {known.unit!r}"
                self._emit(Advice.VIOLATION, "unit_mismatch", where, stated)
            reported = _instrument(metric)
            if reported is not None and reported != known.instrument:
                stated = f"it is sent as a {reported} and should be a {known.instrument}"
                self._emit(Advice.VIOLATION, "unexpected_instrument", where, stated)
        for point in points:
            attributes = attributes_to_python(point.attributes)
            if known is not None:
                self._wanted(where, known, attributes)
            self._values(where, attributes)

    def _span(self, span: Span) -> None:
        self.report.items["spans"] += 1
        known = next((one for one in self._registry.spans.values() if span.name in one.names), None)
        if known is None and (phase := phase_of_span(span.name)) is not None:
            known = self._registry.spans.get(f"{PHASE_PREFIX}{phase.value}")
        where = f"span {span.name}"
        attributes = attributes_to_python(span.attributes)
        if known is None:
            self._emit(Advice.INFORMATION, "unknown_span", where,
                      "a phase of the trainer's own: shown, explains no bound")  # fmt: skip
        else:
            self.report.met("span", known.type, known=True)
            self._wanted(where, known, attributes)
        self._values(where, attributes)
        for event in span.events:
            self._attributes(f"event {event.name} of {where}", event.attributes)

    def _wanted(self, where: str, signal: Signal, attributes: Mapping[str, Value]) -> None:
        """Whether an item has what its convention asks for."""
        for ref in refs_of(signal):
            if ref.level is Level.REQUIRED and ref.key not in attributes:
                stated = f"{ref.key} is required and not there"
                self._emit(Advice.VIOLATION, "required_attribute_not_present", where, stated)

    def _attributes(self, where: str, pairs: Iterable[KeyValue]) -> None:
        self._values(where, attributes_to_python(pairs))

    def _values(self, where: str, attributes: Mapping[str, Value]) -> None:
        for key, value in attributes.items():
            known = self._registry.attribute(key)
            self.report.met("attribute", key if known is None else known.key, known=known is not None)
            if known is None:
                self._emit(
                    Advice.VIOLATION, "missing_attribute", where, f"{key} is no attribute of the registry"
                )
            else:
                self._fits(where, known, key, value)

    def _fits(self, where: str, known: Attribute, key: str, value: Value) -> None:
        reported, wanted = _kind(value), known.plain_kind
        if reported is not None and wanted not in ("any", reported):
            stated = f"{key} is a {reported} and should be a {wanted}"
            self._emit(Advice.VIOLATION, "type_mismatch", where, stated)
        elif known.members and isinstance(value, str) and value not in {one.value for one in known.members}:
            stated = f"{key} is {_short(value)}, which is none of its words"
            self._emit(Advice.INFORMATION, "undefined_enum_variant", where, stated)

    def _emit(self, advice: Advice, kind: str, signal: str, message: str) -> None:
        self.report.add(Finding(advice=advice, id=kind, signal=_short(signal, 120), message=message))


def _instrument(metric: MetricMessage) -> str | None:
    match metric.WhichOneof("data"):
        case "gauge":
            return "gauge"
        case "sum":
            return "counter" if metric.sum.is_monotonic else "updowncounter"
        case "histogram" | "exponential_histogram":
            return "histogram"
        case _:
            return None


def _kind(value: Value) -> str | None:
    """The type of a value in a registry's words; `None` where an empty one has none."""
    if value is None or value == []:
        return None
    if isinstance(value, list):
        kinds = {_KINDS.get(type(one), "any") for one in value}
        return f"{kinds.pop()}[]" if len(kinds) == 1 and "any" not in kinds else "any"
    return _KINDS.get(type(value), "any")


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
