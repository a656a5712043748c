"""OTLP requests as records: what a producer sent, with its origin.

Rules: one malformed record is a `Problem`, its neighbours are unharmed; the same bytes always give the same
records; nothing raises on valid protobuf. Spans yield no records in this version. Must not read a clock.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, assert_never

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from overwatch.catalog import Scope
from overwatch.events import (
    Column,
    EnvCrashed,
    EnvsRemoved,
    Event,
    LogLine,
    Measured,
    Record,
    RunFinished,
    Tallied,
)
from overwatch.journal import Batch, Signal
from overwatch.otlp import wire
from overwatch.otlp.origin import (
    NO_RUN,
    Resource,
    begins_run,
    resource_of,
    run_id_in,
    scope_name_of,
    with_run,
)
from overwatch.otlp.points import count_points, decode_points
from overwatch.otlp.result import (
    Decoded,
    Problem,
    RejectedError,
    can_be,
    checked_time,
    reject,
)
from overwatch.otlp.totals import Alive
from overwatch.otlp.value import Value, as_whole, as_word, attributes_to_python, to_python, to_text
from overwatch.otlp.wire import MalformedBody

__all__ = ["Decoded", "MalformedBody", "Problem", "decode", "measurement"]

_DETAILED: Final = 3
"""Problems that a message gives the details of..."""
_LONGEST_MESSAGE: Final = 512
"""...in so many characters."""
_LONGEST_S: Final = 1 << 30
"""Longest interval of reports that is waited for, in seconds."""
# msgspec learns a type at its first use, and crashes where two threads are the first: this one is.
msgspec.json.Decoder(Event)


def decode_batch(batch: Batch) -> Decoded:
    """As `decode`, of a batch."""
    return decode(batch.signal, batch.body)


def decode(signal: Signal, body: bytes) -> Decoded:
    """The records in one request body; raises `MalformedBody` when it is no protobuf of its signal."""
    match signal:
        case Signal.START:
            return Decoded()
        case Signal.LOGS:
            return _decode_logs(wire.parse_as(ExportLogsServiceRequest, body))
        case Signal.METRICS:
            return decode_points(body)
        case Signal.TRACES:
            return Decoded(items=count_items(signal, body))
        case _:
            assert_never(signal)


class _Said(NamedTuple):
    """A log record, and its attributes by name, read once."""

    log: LogRecord
    attributes: dict[str, Value]
    name: str
    """What event it is."""


def _named(log: LogRecord) -> _Said:
    """Older producers name the event in an attribute, which stays with the fields."""
    attributes = attributes_to_python(log.attributes)
    own: str = log.event_name
    name = own or attributes.get(wire.EVENT_NAME)
    return _Said(log, attributes, name if isinstance(name, str) else "")


def _decode_logs(message: ExportLogsServiceRequest) -> Decoded:
    records: list[Record] = []
    alive: list[Alive] = []
    problems: list[Problem] = []
    items = unattributed = 0
    for resource, scope_name, log in _logs(message):
        items += 1
        try:
            found = _found(resource, scope_name, _named(log))
        except RejectedError as rejected:
            reject(problems, rejected)
            continue
        if isinstance(found, Alive):
            alive.append(found)
        elif found is None:
            unattributed += 1
        else:
            records.extend(found)
    return Decoded(
        items=items,
        records=tuple(records),
        problems=tuple(problems),
        unattributed=unattributed,
        untimed=sum(not one.event.at for one in records) + sum(not one.at for one in alive),
        alive=tuple(alive),
    )


def _found(resource: Resource, scope_name: str, said: _Said) -> "Alive | tuple[Record, ...] | None":
    """What a log record is; `None` where it names no run and no run begins with it."""
    run_id = run_id_in(resource, said.attributes.get(wire.RUN_ID))
    if run_id is not None:
        found = _entity(resource, run_id, said)
        return (_record(resource, run_id, scope_name, said),) if found is None else found
    kind = wire.BY_EVENT_NAME.get(said.name)
    event = None if kind is None else _event(kind, said, _time(said.log))
    if event is not None and begins_run(event):
        raise RejectedError("no_run", f"{wire.EVENT_PREFIX}{wire.TAGS[type(event)]} {NO_RUN}")
    return None


def _logs(message: ExportLogsServiceRequest) -> Iterator[tuple[Resource, str, LogRecord]]:
    for resource_logs in message.resource_logs:
        resource = resource_of(resource_logs.resource)
        for scope_logs in resource_logs.scope_logs:
            # Each read of a text field of a message makes another copy of it.
            scope_name = scope_name_of(scope_logs.scope)
            for log in scope_logs.log_records:
                yield resource, scope_name, log


def _record(resource: Resource, run_id: str, scope_name: str, said: _Said) -> Record:
    origin, log, at, name = with_run(resource, run_id), said.log, _time(said.log), said.name
    kind = wire.BY_EVENT_NAME.get(name)
    if kind is None:
        if name.startswith(wire.EVENT_PREFIX):
            raise RejectedError("unknown_event", f"{name} is no event of this version")
        return Record(origin=origin, event=_foreign(resource, scope_name, log, at))
    return Record(origin=origin, event=_event(kind, said, at), seq=_seq(said))


def _event(kind: type[Event], said: _Said, at: int) -> Event:
    try:
        return _measured(said, at) if kind is Measured else _converted(kind, _fields(kind, said, at))
    except (ValueError, msgspec.ValidationError) as error:
        raise RejectedError("malformed", f"{said.name}: {error}") from None


def measurement(resource: Resource, log: LogRecord) -> Record | None:
    """A log record as numbers of a run; `None` where it is anything else, or malformed."""
    if wire.BY_EVENT_NAME.get(log.event_name) not in (Measured, Tallied):
        return None
    said = _named(log)
    run_id = run_id_in(resource, said.attributes.get(wire.RUN_ID))
    try:
        return None if run_id is None else _record(resource, run_id, "", said)
    except RejectedError:
        return None


def _time(log: LogRecord) -> int:
    """The record's time, `UNTIMED` where it has none; raises `RejectedError` for one that cannot be."""
    at: int = log.time_unix_nano or log.observed_time_unix_nano
    return at if can_be(at) else checked_time(f"record {log.event_name or 'without a name'}", at)


def _entity(resource: Resource, run_id: str, said: _Said) -> "Alive | tuple[Record, ...] | None":
    """What an entity event reports; `None` where it is none, or of an entity that is not known here."""
    name, attributes = said.name, said.attributes
    if name not in wire.ENTITY_EVENTS or attributes.get(wire.ENTITY_TYPE) not in wire.KNOWN_ENTITIES:
        return None
    origin, at, kind = with_run(resource, run_id), _time(said.log), attributes[wire.ENTITY_TYPE]
    ids = attributes.get(wire.ENTITY_ID)
    is_env = isinstance(ids, Mapping) and kind == wire.ENV_ENTITY
    env_id = as_whole(ids.get(wire.ENV_ID)) if isinstance(ids, Mapping) and is_env else None
    if kind == wire.ENV_ENTITY and env_id is None:
        return None
    if name == wire.ENTITY_DELETE:
        return tuple(Record(origin=origin, event=event) for event in _ends(said, at, env_id))
    interval = attributes.get(wire.ENTITY_INTERVAL, 0)
    if isinstance(interval, bool) or not isinstance(interval, int) or not 0 <= interval <= _LONGEST_S:
        raise RejectedError("malformed", f"{wire.ENTITY_INTERVAL} is {interval!r}, not seconds")
    return Alive(origin=origin, env_id=env_id, at=at, interval_s=interval) if isinstance(env_id, int) else ()


def _ends(said: _Said, at: int, env_id: Value) -> Iterator[Event]:
    """What ends with an entity that was deleted."""
    if isinstance(env_id, int):
        yield EnvsRemoved(at=at, env_id=Column.of([env_id]))
    elif said.attributes[wire.ENTITY_TYPE] == wire.RUN_ENTITY:
        reason = said.attributes.get(wire.ENTITY_REASON)
        yield RunFinished(at=at, outcome="completed", reason=reason if isinstance(reason, str) else None)


def _seq(said: _Said) -> int | None:
    seq = said.attributes.get(wire.SEQ)
    if seq is None:
        return None
    if isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
        raise RejectedError("malformed", f"{said.log.event_name}: {wire.SEQ} is {seq!r}, not a count")
    return seq


def _measured(said: _Said, at: int) -> Event:
    log = said.log
    if log.body.HasField("kvlist_value"):
        return _converted(Measured, _filled(Measured, said, at, _body(log)))
    sent = said.attributes.get(wire.INDEX)
    index = as_whole(sent)
    if sent is not None and index is None:
        raise ValueError(f"{wire.INDEX} is {sent!r}, not a whole number")
    values = {
        name: Column.scalar(value)
        for name, value in said.attributes.items()
        if isinstance(value, float) and name not in wire.RESERVED
    }
    return Measured(at=at, scope=Scope(said.attributes.get(wire.SCOPE)), values=values, index=index)


def _fields(kind: type[Event], said: _Said, at: int) -> dict[str, Value]:
    """The fields of a fact."""
    log = said.log
    if kind is LogLine:
        line: dict[str, Value] = {
            "message": to_text(to_python(log.body)),
            "severity": wire.severity_of(log.severity_number).value,
        }
        return _filled(kind, said, at, {**line, **_span(log)})
    if kind is EnvCrashed:
        return {**_crash(said.attributes), **_filled(kind, said, at, {})}
    in_body = kind in wire.COLUMNAR or kind is Tallied
    in_span = _span(log) if kind in wire.IN_SPAN else {}
    return _filled(kind, said, at, {**(_body(log) if in_body else {}), **in_span})


def _crash(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Error and stack of a crash by OpenTelemetry's attributes, used where ours are absent."""
    kind = next((attributes[name] for name in wire.EXCEPTION_TYPES if attributes.get(name)), None)
    words = [to_text(part) for part in (kind, attributes.get(wire.EXCEPTION_MESSAGE)) if part is not None]
    stack = attributes.get(wire.EXCEPTION_STACK)
    return {"error": ": ".join(words), "traceback": stack if isinstance(stack, str) else None}


def _span(log: LogRecord) -> dict[str, Value]:
    return {"trace_id": log.trace_id.hex() or None, "span_id": log.span_id.hex() or None}


def _body(log: LogRecord) -> dict[str, Value]:
    return attributes_to_python(log.body.kvlist_value.values)


def _filled(kind: type[Event], said: _Said, at: int, fields: dict[str, Value]) -> dict[str, Value]:
    """Fields from the body, and from attributes; attributes of others are passed over."""
    names = wire.BY_ATTRIBUTE[kind]
    for name, value in said.attributes.items():
        field = names.get(name)
        if field is not None:
            fields.setdefault(field, _identifying(field, value) if field in wire.IDENTIFYING else value)
    fields["at"] = at
    fields["type"] = wire.TAGS[kind]
    return fields


def _identifying(field: str, value: Value) -> Value:
    """A value as a field wants it that identifies something; what identifies nothing as it is."""
    if field in wire.WORDS:
        return as_word(value) or value
    number = as_whole(value)
    return value if number is None else number


def _converted(kind: type[Event], fields: dict[str, Value]) -> Event:
    event: Event = msgspec.convert(fields, kind, builtin_types=(bytes,))
    return event


def _foreign(resource: Resource, scope_name: str, log: LogRecord, at: int) -> LogLine:
    """A line of another program's log, whatever it holds."""
    attributes = attributes_to_python(log.attributes)
    message = to_text(to_python(log.body)) or log.event_name or to_text(attributes.get(wire.EVENT_NAME))
    return LogLine(
        at=at,
        severity=wire.severity_of(log.severity_number),
        message=message,
        subsystem=scope_name or resource.service or "unknown",
        env_id=as_whole(attributes.get(wire.ENV_ID)),
        slot=as_word(attributes.get(wire.SLOT_ID)),
        seed_id=as_word(attributes.get(wire.SEED_ID)),
        trace_id=log.trace_id.hex() or None,
        span_id=log.span_id.hex() or None,
        fields={name: to_text(value) for name, value in attributes.items() if name != wire.RUN_ID},
    )


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Exact figures for a partial success."""

    items: int
    """Log records, data points or spans in the request."""
    rejected: int
    """Of these, the ones that cannot become an event."""
    message: str
    """Why, in English; empty when nothing was rejected."""


def counts_of(decoded: Decoded) -> Counts:
    """The figures of a request that was decoded."""
    problems = decoded.problems
    details = "; ".join(dict.fromkeys(problem.detail for problem in problems[:_DETAILED]))
    more = f" and {len(problems) - _DETAILED} more" if len(problems) > _DETAILED else ""
    message = f"{details[:_LONGEST_MESSAGE]}{more}"
    return Counts(items=decoded.items, rejected=len(problems), message=message)


def items_of(batch: Batch) -> int:
    """How many records, points or spans a batch holds; raises `MalformedBody` when it is none."""
    return count_items(batch.signal, batch.body) if batch.items is None else batch.items


def count_items(signal: Signal, body: bytes) -> int:
    """How many records, points or spans a body holds; raises `MalformedBody` when it is none."""
    items = wire.items_in(wire.parse(signal, body), wire.ITEMS[signal])
    return sum(count_points(item) if isinstance(item, Metric) else 1 for item in items)
