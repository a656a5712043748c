"""The names on the wire: which attribute carries which field, and which message carries which signal.

Owns the mapping between fields of events and attributes, severities and their numbers, and the request
message of each signal. Must not know values.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, TypeVar, get_args

import msgspec
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import overwatch
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    CurriculumChanged,
    EnvsRemoved,
    EpisodeEnded,
    Event,
    LogLine,
    PhaseEnded,
    Severity,
    Tallied,
)
from overwatch.journal import Signal

Request: TypeAlias = ExportLogsServiceRequest | ExportMetricsServiceRequest | ExportTraceServiceRequest
_Kind = TypeVar("_Kind", bound=Message)

LONGEST_ID: Final = 256
"""Characters of what names a sender or a subject: a request has it once, for all of its items. A run with a
longer id is refused, of other words the beginning counts."""
RUN_ID: Final = "rl.run.id"
TASK: Final = "rl.environment.name"
ALGORITHM: Final = "rl.algorithm"
INSTANCE: Final = "service.instance.id"
SERVICE: Final = "service.name"
SERVICE_NAMESPACE: Final = "service.namespace"
HOST: Final = "host.name"
PID: Final = "process.pid"
DISTRO: Final = "telemetry.distro.name"
ROLE: Final = "overwatch.role"
RANK: Final = "overwatch.rank"
JOIN: Final = "overwatch.join"
ATTEMPT: Final = "overwatch.attempt"
GROUP: Final = "overwatch.group"
LIBRARY: Final = "overwatch.library"
SEQ: Final = "overwatch.seq"
SCOPE: Final = "overwatch.scope"
INDEX: Final = "overwatch.index"
ENV_ID: Final = "overwatch.env.id"
SLOT_ID: Final = "overwatch.slot.id"
SEED_ID: Final = "overwatch.seed.id"
LANE_ID: Final = "overwatch.lane.id"
OURS: Final = "overwatch"
"""`telemetry.distro.name` of Overwatch's own SDK."""
EVENT_NAME: Final = "event.name"
"""Where producers of before OTLP 1.6 put the name of an event."""
EVENT_PREFIX: Final = "overwatch."
SCHEMA_URL: Final = f"https://overwatch.dev/schemas/{overwatch.__version__}"
"""Where the names of this version are defined; see `otel/registry/manifest.yaml`."""
ENTITY_DELETE: Final = "entity.delete"
ENTITY_STATE: Final = "entity.state"
ENTITY_EVENTS: Final = frozenset({ENTITY_STATE, ENTITY_DELETE})
ENTITY_REASON: Final = "entity.delete.reason"
ENTITY_INTERVAL: Final = "entity.report.interval"
EXCEPTION_TYPES: Final = ("exception.type", "error.type")
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACK: Final = "exception.stacktrace"
"""How OpenTelemetry describes an error."""
ENTITY_TYPE: Final = "entity.type"
ENTITY_ID: Final = "entity.id"
ENTITY_DESCRIPTION: Final = "entity.description"
ENV_ENTITY: Final = "overwatch.env"
RUN_ENTITY: Final = "overwatch.run"
KNOWN_ENTITIES: Final = frozenset({ENV_ENTITY, RUN_ENTITY, "overwatch.slot", "overwatch.gpu"})

COLUMNS: Final = {
    "env_id": ENV_ID, "slot": SLOT_ID, "gpu_id": "hw.id", "lane": LANE_ID, "blueprint": "overwatch.blueprint",
}  # fmt: skip
"""Columns of a measurement that are no metrics: which attribute means the same."""

RESERVED: Final = frozenset({SEQ, SCOPE, INDEX, RUN_ID})
"""Attributes of a measurement that are not values."""

EVENT_TYPES: Final[tuple[type[Event], ...]] = get_args(Event)
TAGS: Final[dict[type[Event], str]] = {kind: str(kind.__struct_config__.tag) for kind in EVENT_TYPES}
BY_EVENT_NAME: Final[dict[str, type[Event]]] = {f"{EVENT_PREFIX}{tag}": kind for kind, tag in TAGS.items()}

_IDS: Final = {"env_id": ENV_ID, "slot": SLOT_ID, "seed_id": SEED_ID}


WORDS: Final = frozenset({"slot", "seed_id", "group"})
IDENTIFYING: Final = WORDS | {"env_id", "attempt"}
"""Fields that identify something: a number is taken for the text of it, and the other way round."""


def attribute_of(field: str) -> str:
    """The attribute that carries a field of an event."""
    return _IDS.get(field, f"{EVENT_PREFIX}{field}")


FIELDS: Final = {
    kind: tuple(field.name for field in msgspec.structs.fields(kind) if field.name != "at")
    for kind in EVENT_TYPES
}
BY_ATTRIBUTE: Final = {
    kind: {attribute_of(field): field for field in fields} for kind, fields in FIELDS.items()
}
COLUMNAR: Final = frozenset({EpisodeEnded, ActionTaken, CurriculumChanged, EnvsRemoved})
"""Facts with a row an env: their columns travel in the body."""

_IN_SPAN: Final = frozenset({"trace_id", "span_id"})
OWN_PLACES: Final[dict[type[Event], frozenset[str]]] = dict.fromkeys(EVENT_TYPES, frozenset()) | {
    LogLine: _IN_SPAN | {"message", "severity"},
    PhaseEnded: _IN_SPAN,
    EpisodeEnded: _IN_SPAN,
    CheckpointSaved: _IN_SPAN,
    Tallied: frozenset({"series"}),
}
"""Fields of an event that are no attributes: OTLP has places of its own for them, or the body holds them."""
IN_SPAN: Final = frozenset(kind for kind, places in OWN_PLACES.items() if places >= _IN_SPAN)
"""Events that name the span in which they happened."""

SEVERITY_NUMBER: Final = {
    Severity.DEBUG: 5,
    Severity.INFO: 9,
    Severity.WARNING: 13,
    Severity.CRITICAL: 17,
}


def severity_of(number: int) -> Severity:
    """The severity of an OTLP severity number; 0 (unspecified) reads as info."""
    if number >= SEVERITY_NUMBER[Severity.CRITICAL]:
        return Severity.CRITICAL
    if number >= SEVERITY_NUMBER[Severity.WARNING]:
        return Severity.WARNING
    return Severity.INFO if number >= SEVERITY_NUMBER[Severity.INFO] or number <= 0 else Severity.DEBUG


class MalformedBody(ValueError):  # noqa: N818 names the thing; part of the fixed contract
    """The body is no protobuf message of its signal."""


REQUESTS: Final[dict[Signal, type[Request]]] = {
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
    Signal.TRACES: ExportTraceServiceRequest,
}


ITEMS: Final = {
    Signal.LOGS: ("resource_logs", "scope_logs", "log_records"),
    Signal.METRICS: ("resource_metrics", "scope_metrics", "metrics"),
    Signal.TRACES: ("resource_spans", "scope_spans", "spans"),
}
"""Where the items of a signal lie in its request, level by level."""


def items_in(message: Message, path: Sequence[str]) -> Iterator[Message]:
    """The messages at the end of a path."""
    if not path:
        yield message
        return
    for part in getattr(message, path[0]):
        yield from items_in(part, path[1:])


def parse(signal: Signal, body: bytes) -> Request:
    """The request message of `body`; raises `MalformedBody`."""
    kind = REQUESTS.get(signal)
    if kind is None:
        raise MalformedBody(f"signal {signal.value!r} has no OTLP message; use logs, metrics or traces")
    return parse_as(kind, body)


def parse_as(kind: type[_Kind], body: bytes) -> _Kind:
    """The same, of a kind of request."""
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise malformed(kind, body, error) from None


def malformed(kind: type[Message], body: bytes, error: DecodeError) -> MalformedBody:
    """What is to be raised of a body that is no request of its kind."""
    return MalformedBody(f"{len(body)} bytes are no {kind.DESCRIPTOR.name}: {error}")
