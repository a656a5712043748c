"""A batch opened up: its records one by one, each with its run, ready to be taken out or replaced.

Owns what counts as a number: measurements and tallies, of which few stand for many, and metric points, of
which the newest are left as they came; a delta is an increment and stays. Everything else, spans included, is
a fact. Of many measurements of the same subjects and names few are left, each in the place of the last it
stands for: values that were sent, with the number of measurements, the finite extremes and how many were
beyond each absolute limit; folding what was folded gives the same as folding all at once. A row that the last
measurement does not have stands in the place of the one that had it last. Pure. Must not know why records are
taken out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from overwatch.catalog import BY_NAME, Limit, NonFinite, Scope
from overwatch.events import Column, Conflated, Event, Measured, Record, Tallied, TallySeries
from overwatch.journal import Batch, Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import measurement
from overwatch.otlp.encode import as_bytes, encode
from overwatch.otlp.origin import attribute, resource_of, run_id_of
from overwatch.otlp.points import count_points

_SECOND_NS: Final = 1_000_000_000
_FINITE_KINDS: Final = "iu"
"""Kinds of columns whose values are all finite."""
_DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


@dataclass(frozen=True, slots=True)
class _Source:
    """What emitted a record: a resource and an instrumentation scope."""

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
        """Let the numbers of a run be thinned; with `only_many` those of many subjects."""
        for line in self.lines:
            if line.run_id == run_id and line.log is not None:
                line.said = _number(line, only_many=only_many)
        for block in self.blocks:
            block.is_chosen = block.is_chosen or (block.run_id == run_id and _is_replaceable(block.message))

    def take_out(self, line: _Line) -> None:
        """Take one line out; its source is still there."""
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
    if isinstance(message, ExportLogsServiceRequest):
        return Sheet(batch=batch, lines=list(_lines(message)))
    parts: Iterable[ResourceMetrics | ResourceSpans] = (
        message.resource_metrics
        if isinstance(message, ExportMetricsServiceRequest)
        else message.resource_spans
    )
    return Sheet(
        batch=batch, blocks=[_Block(resource_of(part.resource).origin.run_id, part) for part in parts]
    )


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
        sheet.is_changed = True
        whole = msgspec.structs.replace(last, series=tuple(series.values()))
        line.log = _written(line, whole, line.said.seq)


def _fold(told: list[tuple[Sheet, _Line, Measured]]) -> None:
    left = dict(fold([event for _, _, event in told]))
    for place, (sheet, line, event) in enumerate(told):
        kept = left.get(place)
        if kept is None:
            sheet.take_out(line)
        elif kept is not event and line.said is not None:
            sheet.is_changed = True
            line.log = _written(line, kept, line.said.seq)


def _series(line: _Line, event: Measured) -> tuple[object, ...]:
    names = tuple((name, column.labels is None, column.dtype[1]) for name, column in event.values.items())
    # Updates without a number are counted apart: beside a repeated number their count would be ambiguous.
    return line.source.key, line.run_id, event.scope, names, tuple(event.keys), event.index is None


def _number(line: _Line, *, only_many: bool) -> Record | None:
    """What a line measures; `None` for a fact, and for what shows only that its source is there."""
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


def _written(line: _Line, event: Event, seq: int | None) -> LogRecord:
    """A log record of an event in the place of a line's."""
    pieces = encode(event)
    if line.is_own and line.run_id:
        pieces = msgspec.structs.replace(pieces, attributes={**pieces.attributes, wire.RUN_ID: line.run_id})
    return LogRecord.FromString(as_bytes(pieces, event.at, seq))


def _breath(line: _Line) -> _Line:
    """A line that holds nothing but that its source is there."""
    at = 0 if line.log is None else line.log.time_unix_nano
    seq = None if line.log is None else attribute(line.log.attributes, wire.SEQ)
    event = Measured(at=at, scope=Scope.TOWER, values={})
    log = _written(line, event, seq if isinstance(seq, int) else None)
    return replace(line, log=log, said=None)


def _is_replaceable(message: ResourceMetrics | ResourceSpans) -> bool:
    """Whether later points of the same metrics hold all that these hold: they are no deltas."""
    if isinstance(message, ResourceSpans):
        return False
    return all(
        getattr(getattr(metric, metric.WhichOneof("data") or "gauge"), "aggregation_temporality", 0) != _DELTA
        for scope in message.scope_metrics
        for metric in scope.metrics
    )


def _told_by(message: ResourceMetrics | ResourceSpans) -> tuple[object, ...]:
    """Resource and metrics: equal where a later message replaces an earlier one."""
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
    signal = Signal.TRACES if isinstance(message, ResourceSpans) else Signal.METRICS
    items = wire.items_in(message, wire.ITEMS[signal][1:])
    return sum(count_points(item) if isinstance(item, Metric) else 1 for item in items)


Rows = npt.NDArray[np.intp]


def fold(events: Sequence[Measured]) -> list[tuple[int, Measured]]:
    """What is left of measurements of one scope with the same names: positions of those kept, with them.

    Measurements that do not fit together are all left.
    """
    if len(events) < 2 or not events[0].values:
        return list(enumerate(events))
    table = _Table(events)
    if not table.fits:
        return list(enumerate(events))
    extremes = {
        name: _extremes(table, name) for name, column in events[0].values.items() if column.labels is None
    }
    kept = sorted(set(table.last.tolist()))
    return [(place, _stand_in(table, place, extremes, counts=place == kept[-1])) for place in kept]


class _Table:
    """Which row of all subjects each row of each measurement is, and where each was reported last."""

    def __init__(self, events: Sequence[Measured]) -> None:
        self.events = events
        self.rows: list[Rows] = []
        self.fits = True
        signatures: dict[tuple[tuple[str, bytes, tuple[str, ...] | None], ...], int] = {}
        order: list[int] = []
        distinct: list[Measured] = []
        for event in events:
            columns = event.keys.values() or [Column(dtype="|i1", data=bytes(_length(event)))]
            signature = tuple((column.dtype, column.data, column.labels) for column in columns)
            if signature not in signatures:
                signatures[signature] = len(distinct)
                distinct.append(event)
            order.append(signatures[signature])
        found, size = _numbered(distinct)
        self.rows = [found[place] for place in order]
        self.fits = all(rows.size == _length(event) for rows, event in zip(self.rows, events, strict=True))
        self.last = np.full(size, -1, dtype=np.intp)
        self.n = np.zeros(size, dtype=np.int64)
        for place, (event, rows) in enumerate(zip(events, self.rows, strict=True)):
            self.last[rows] = place
            self.n[rows] += 1 if event.conflated is None else max(event.conflated.n, 1)


def _length(event: Measured) -> int:
    return len(next(iter(event.values.values()), ()))


def _numbered(events: Sequence[Measured]) -> tuple[list[Rows], int]:
    """Of each set of subjects the numbers of its rows among all, and how many there are."""
    words: dict[str | None, int] = {}
    tables = []
    for event in events:
        ids = [_ids(column, words) for column in event.keys.values()]
        tables.append(np.stack(ids, axis=1) if ids else np.arange(_length(event))[:, None])
    unique, inverse = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    numbers = inverse.reshape(-1).astype(np.intp)
    return np.split(numbers, np.cumsum([table.shape[0] for table in tables])[:-1]), unique.shape[0]


def _ids(column: Column, words: dict[str | None, int]) -> npt.NDArray[np.int64]:
    """A key column as numbers; equal words are equal numbers in all measurements."""
    if column.labels is None:
        return column.array().astype(np.int64)
    codes = [words.setdefault(word, len(words)) for word in (*column.labels, None)]
    return np.array(codes, dtype=np.int64)[column.array().astype(np.int64)]


def _extremes(table: _Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest finite value of each row; NaN where there was none."""
    low = np.full(table.last.size, np.nan)
    high = np.full(table.last.size, np.nan)
    for event, rows in zip(table.events, table.rows, strict=True):
        many = event.conflated
        values = _finite(event.values[name])
        least = _finite(many.low[name]) if many is not None and name in many.low else values
        most = _finite(many.high[name]) if many is not None and name in many.high else values
        low[rows] = np.fmin(low[rows], least)
        high[rows] = np.fmax(high[rows], most)
    # Adding 0 leaves no -0.0, of which the order of folding would decide.
    return low + 0.0, high + 0.0


def _finite(column: Column) -> np.ndarray:
    values = column.array().astype(np.float64)
    return values if column.dtype[1] in _FINITE_KINDS else np.where(np.isfinite(values), values, np.nan)


def _stand_in(
    table: _Table, place: int, extremes: dict[str, tuple[np.ndarray, np.ndarray]], *, counts: bool
) -> Measured:
    """What stands for the rows that were reported last at a place; `counts` with all breaches."""
    event, rows = table.events[place], table.rows[place]
    mine = table.last[rows] == place
    n = int(table.n[rows[mine]].max())
    if not mine.all():
        event = msgspec.structs.replace(
            event,
            keys={name: _taken(column, mine) for name, column in event.keys.items()},
            values={name: _taken(column, mine) for name, column in event.values.items()},
            conflated=None,
        )
    if n == 1:
        return event
    low, high = {}, {}
    for name, (least, most) in extremes.items():
        dtype = event.values[name].dtype
        if np.isfinite(least[rows[mine]]).any():
            low[name] = Column.of(least[rows[mine]].astype(dtype))
            high[name] = Column.of(most[rows[mine]].astype(dtype))
    warnings, criticals = _breaches(table.events) if counts else ({}, {})
    first, updates = _numbers(table.events)
    many = Conflated(
        n=n, first=first, updates=updates, low=low, high=high, warnings=warnings, criticals=criticals
    )
    return msgspec.structs.replace(event, conflated=many)


def _taken(column: Column, mine: np.ndarray) -> Column:
    return Column(dtype=column.dtype, data=column.array()[mine].tobytes(), labels=column.labels)


def _numbers(events: Sequence[Measured]) -> tuple[int | None, int | None]:
    """The number of the first measurement; of the policy's also how many updates they are."""
    if events[0].scope is not Scope.POLICY:
        return _first(events), None
    before, updates = None, 0
    for event in events:
        more = event.updates(before)
        updates += more
        before = event.index if more else before
    many = events[0].conflated
    return events[0].index if many is None else many.first, updates


def _first(events: Sequence[Measured]) -> int | None:
    """The number of the first measurement that has one."""
    for event in events:
        if event.conflated is not None and event.conflated.first is not None:
            return event.conflated.first
        if event.index is not None:
            return event.index
    return None


def _breaches(events: Sequence[Measured]) -> tuple[dict[str, int], dict[str, int]]:
    """Values beyond the warning limit, not the critical one, and beyond that, by name."""
    warnings, criticals = Counter[str](), Counter[str]()
    for event in events:
        for name, column in event.values.items():
            if event.conflated is None:
                poor, bad = _beyond(name, column)
                warnings[name] += poor
                criticals[name] += bad
            else:
                warnings[name] += event.conflated.warnings.get(name, 0)
                criticals[name] += event.conflated.criticals.get(name, 0)
    # Adding leaves names without any out.
    return dict(+warnings), dict(+criticals)


def _beyond(name: str, column: Column) -> tuple[int, int]:
    row = BY_NAME.get(name)
    if row is None or column.labels is not None:
        return 0, 0
    values = column.array()
    poor, bad = np.zeros((2, values.size), dtype=np.bool_)
    for limits in row.limits.sides:
        bad |= _crossed(limits.critical, values)
        poor |= _crossed(limits.warning, values)
    if row.non_finite is NonFinite.CRITICAL:
        bad |= ~np.isfinite(values)
    return int(np.count_nonzero(poor & ~bad)), int(np.count_nonzero(bad))


def _crossed(limit: Limit | None, values: np.ndarray) -> npt.NDArray[np.bool_]:
    """Which values are beyond an absolute limit."""
    if limit is None or limit.relative:
        return np.zeros(values.size, dtype=np.bool_)
    return np.fromiter((limit.side.crossed(value, limit.value) for value in values.tolist()), dtype=np.bool_)
