"""A batch opened up: its records one by one, each with its run, ready to be taken out or replaced.

Owns what counts as a number: measurements and tallies, of which few stand for many, and metric points, of
which the newest are left as they came; a delta is an increment and stays. Everything else, spans included, is
a fact. Must not know why records are taken out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, assert_never

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from overwatch.catalog import Scope
from overwatch.events import Measured, Record, Tallied, TallySeries
from overwatch.journal import Batch, Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import measurement
from overwatch.otlp.encode import log_record
from overwatch.otlp.folding import fold
from overwatch.otlp.origin import attribute, resource_of, run_id_of
from overwatch.otlp.points import count_points
from overwatch.otlp.value import to_pairs

_SECOND_NS: Final = 1_000_000_000
_DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


@dataclass(frozen=True, slots=True)
class _Source:
    """Who says a record: a resource and an instrumentation scope."""

    resource: ResourceMessage
    scope: InstrumentationScope
    key: bytes
    """Equal for equal sources."""


@dataclass(slots=True)
class _Line:
    """One log record."""

    source: _Source
    run_id: str
    log: LogRecord | None
    """`None` once it was taken out."""
    said: Record | None = None
    """Of a measurement that was chosen."""
    is_own: bool = True
    """Whether the run is named by the record, not by its resource."""


@dataclass(slots=True)
class _Block:
    """What is kept or goes as a whole: the metrics or the spans of one resource."""

    run_id: str
    message: ResourceMetrics | ResourceSpans
    is_chosen: bool = False
    is_out: bool = False


@dataclass(slots=True)
class Sheet:
    """One batch."""

    batch: Batch
    lines: list[_Line] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)
    is_changed: bool = False
    silenced: dict[tuple[bytes, str], _Line] = field(default_factory=dict)
    """Of each source and run the last line that was taken out."""

    @property
    def second(self) -> int:
        """Which second it is in."""
        return self.batch.stamp // _SECOND_NS

    @property
    def runs(self) -> list[str]:
        """Whose records it has, the empty id for those of none."""
        named = (*(line.run_id for line in self.lines), *(block.run_id for block in self.blocks))
        return list(dict.fromkeys(named))

    def drop(self, run_id: str) -> int:
        """Take out everything of a run; returns how many records that were."""
        lines = [line for line in self.lines if line.run_id == run_id]
        blocks = [block for block in self.blocks if block.run_id == run_id]
        self.lines = [line for line in self.lines if line.run_id != run_id]
        self.blocks = [block for block in self.blocks if block.run_id != run_id]
        self.is_changed = True
        return len(lines) + sum(_items(block.message) for block in blocks)

    def choose(self, run_id: str, *, only_many: bool = False) -> None:
        """Let the numbers of a run be thinned; with `only_many` those that speak of many subjects."""
        for line in self.lines:
            if line.run_id == run_id and line.log is not None:
                line.said = _number(line, only_many=only_many)
        for block in self.blocks:
            block.is_chosen = block.is_chosen or (block.run_id == run_id and _is_replaceable(block.message))

    def take_out(self, line: _Line) -> None:
        """Take one line out; its source is still heard."""
        self.is_changed = True
        self.silenced[line.source.key, line.run_id] = replace(line)
        line.log = None

    def take_in(self, earlier: Sequence["Sheet"]) -> None:
        """Add what earlier batches of the same second have, before what is here."""
        if earlier:
            self.is_changed = True
            self.lines = [line for sheet in (*earlier, self) for line in sheet.lines]
            self.blocks = [block for sheet in (*earlier, self) for block in sheet.blocks]
            silenced: dict[tuple[bytes, str], _Line] = {}
            for sheet in (*earlier, self):
                silenced.update(sheet.silenced)
            self.silenced = silenced

    def batches(self) -> Iterator[Batch]:
        """What is left, as batches; none where nothing is."""
        lines = [line for line in self.lines if line.log is not None]
        heard = {(line.source.key, line.run_id) for line in lines}
        lines += [_breath(line) for key, line in self.silenced.items() if key not in heard]
        if lines:
            yield self._batch(Signal.LOGS, _logs(lines))
        messages = [block.message for block in self.blocks if not block.is_out]
        metrics = [message for message in messages if isinstance(message, ResourceMetrics)]
        spans = [message for message in messages if isinstance(message, ResourceSpans)]
        if metrics:
            body = ExportMetricsServiceRequest(resource_metrics=metrics).SerializeToString()
            yield self._batch(Signal.METRICS, body)
        if spans:
            body = ExportTraceServiceRequest(resource_spans=spans).SerializeToString()
            yield self._batch(Signal.TRACES, body)

    def _batch(self, signal: Signal, body: bytes) -> Batch:
        return msgspec.structs.replace(self.batch, signal=signal, body=body)


def sheet_of(batch: Batch, message: wire.Request) -> Sheet:
    """A batch opened up."""
    sheet = Sheet(batch=batch)
    match message:
        case ExportLogsServiceRequest():
            sheet.lines += _lines(message)
        case ExportMetricsServiceRequest():
            for metrics in message.resource_metrics:
                sheet.blocks.append(_Block(resource_of(metrics.resource).origin.run_id, metrics))
        case ExportTraceServiceRequest():
            for spans in message.resource_spans:
                sheet.blocks.append(_Block(resource_of(spans.resource).origin.run_id, spans))
        case _:
            assert_never(message)
    return sheet


def join_numbers(sheets: Iterable[Sheet], period_ns: int) -> None:
    """Fold the chosen numbers of batches, in order, all of one period of stamps.

    What came late comes fast: what is left has one number a period of the producer's time too.
    """
    series: dict[tuple[object, ...], list[tuple[Sheet, _Line, Measured]]] = {}
    tallies: dict[tuple[object, ...], list[tuple[Sheet, _Line, Tallied]]] = {}
    newest: dict[tuple[object, ...], tuple[Sheet, _Block]] = {}
    for sheet in sheets:
        for line in sheet.lines:
            if line.said is not None and isinstance(line.said.event, Measured):
                series.setdefault(_series(line, line.said.event), []).append((sheet, line, line.said.event))
            elif line.said is not None and isinstance(line.said.event, Tallied):
                who = line.source.key, line.run_id, line.said.event.scope
                tallies.setdefault(who, []).append((sheet, line, line.said.event))
        for block in sheet.blocks:
            if block.is_chosen:
                key = block.run_id, *_told_by(block.message)
                if key in newest:
                    before, older = newest[key]
                    before.is_changed = older.is_out = True
                newest[key] = sheet, block
    for told in series.values():
        first = told[0][2].at
        for _, together in groupby(told, key=lambda item: (item[2].at - first) // period_ns):
            _fold(list(together))
    for counted in tallies.values():
        first = counted[0][2].at
        for _, alike in groupby(counted, key=lambda item: (item[2].at - first) // period_ns):
            _join(list(alike))


def _join(counted: Sequence[tuple[Sheet, _Line, Tallied]]) -> None:
    """Leave the last of some tallies, with the newest of each series: all count from the beginning."""
    series: dict[str, TallySeries] = {}
    for _, _, event in counted:
        for one in event.series:
            key = f"{one.metric} {msgspec.json.encode(sorted(one.labels.items())).decode()}"
            if key not in series or one.size >= series[key].size:
                series[key] = one
    for sheet, line, _ in counted[:-1]:
        sheet.take_out(line)
    sheet, line, last = counted[-1]
    if line.said is not None and len(counted) > 1:
        whole = msgspec.structs.replace(last, series=tuple(series.values()))
        sheet.is_changed = True
        line.log = _rewritten(line, msgspec.structs.replace(line.said, event=whole))


def _fold(told: list[tuple[Sheet, _Line, Measured]]) -> None:
    left = dict(fold([event for _, _, event in told]))
    for place, (sheet, line, event) in enumerate(told):
        kept = left.get(place)
        if kept is None:
            sheet.take_out(line)
        elif kept is not event and line.said is not None:
            sheet.is_changed = True
            line.log = _rewritten(line, msgspec.structs.replace(line.said, event=kept))


def _series(line: _Line, event: Measured) -> tuple[object, ...]:
    names = tuple((name, column.labels is None, column.dtype[1]) for name, column in event.values.items())
    # Updates without a number are counted apart: beside a repeated number their count would be ambiguous.
    return line.source.key, line.run_id, event.scope, names, tuple(event.keys), event.index is None


def _number(line: _Line, *, only_many: bool) -> Record | None:
    """What a line measures; `None` for a fact, and for what says only that its source is there."""
    if line.log is None:
        return None
    record = measurement(resource_of(line.source.resource), line.log)
    if record is not None and isinstance(record.event, Tallied):
        return None if only_many else record
    if record is None or not isinstance(record.event, Measured) or not record.event.values:
        return None
    return None if only_many and not record.event.keys else record


def _lines(message: ExportLogsServiceRequest) -> Iterator[_Line]:
    for resource_logs in message.resource_logs:
        resource = resource_of(resource_logs.resource)
        for scope_logs in resource_logs.scope_logs:
            source = _source(resource_logs.resource, scope_logs.scope)
            for log in scope_logs.log_records:
                run_id = run_id_of(resource, log.attributes) or ""
                yield _Line(source, run_id, log, is_own=run_id != resource.origin.run_id)


def _source(resource: ResourceMessage, scope: InstrumentationScope) -> _Source:
    parts = (resource.SerializeToString(deterministic=True), scope.SerializeToString(deterministic=True))
    return _Source(resource, scope, b"%d:" % len(parts[0]) + b"".join(parts))


def _rewritten(line: _Line, record: Record) -> LogRecord:
    log = LogRecord.FromString(log_record(record))
    if line.is_own and line.run_id:
        log.attributes.extend(to_pairs({wire.RUN_ID: line.run_id}))
    return log


def _breath(line: _Line) -> _Line:
    """A line that says nothing but that its source is there."""
    at = 0 if line.log is None else line.log.time_unix_nano
    attributes: list[KeyValue] = to_pairs({wire.SCOPE: Scope.TOWER.value})
    seq = None if line.log is None else attribute(line.log.attributes, wire.SEQ)
    attributes += to_pairs({wire.SEQ: seq} if isinstance(seq, int) else {})
    attributes += to_pairs({wire.RUN_ID: line.run_id} if line.is_own and line.run_id else {})
    log = LogRecord(
        time_unix_nano=at,
        observed_time_unix_nano=at,
        event_name=f"{wire.EVENT_PREFIX}{wire.TAGS[Measured]}",
        attributes=attributes,
    )
    return _Line(line.source, line.run_id, log)


def _is_replaceable(message: ResourceMetrics | ResourceSpans) -> bool:
    """Whether later points of the same metrics say all that these say: they are no deltas."""
    if isinstance(message, ResourceSpans):
        return False
    return all(
        getattr(getattr(metric, metric.WhichOneof("data") or "gauge"), "aggregation_temporality", 0) != _DELTA
        for scope in message.scope_metrics
        for metric in scope.metrics
    )


def _told_by(message: ResourceMetrics | ResourceSpans) -> tuple[object, ...]:
    """Who says what: equal where a later message replaces an earlier one."""
    resource = message.resource.SerializeToString(deterministic=True)
    if isinstance(message, ResourceSpans):
        return (resource,)
    metrics = [metric for scope in message.scope_metrics for metric in scope.metrics]
    return (resource, *(metric.name for metric in metrics), *map(_began, metrics))


def _began(metric: Metric) -> tuple[int, ...]:
    """Since when its points count: what was counted before a restart is not what is counted after it."""
    points = getattr(metric, metric.WhichOneof("data") or "gauge").data_points
    return tuple(dict.fromkeys(point.start_time_unix_nano for point in points))


def _logs(lines: Sequence[_Line]) -> bytes:
    """A request of lines in order."""
    request = ExportLogsServiceRequest()
    source, records = None, None
    for line in lines:
        if records is None or source != line.source.key:
            source = line.source.key
            added = request.resource_logs.add()
            added.resource.CopyFrom(line.source.resource)
            scope = added.scope_logs.add()
            scope.scope.CopyFrom(line.source.scope)
            records = scope.log_records
        if line.log is not None:
            records.append(line.log)
    return request.SerializeToString()


def _items(message: ResourceMetrics | ResourceSpans) -> int:
    if isinstance(message, ResourceSpans):
        return sum(len(scope.spans) for scope in message.scope_spans)
    return sum(count_points(metric) for scope in message.scope_metrics for metric in scope.metrics)
