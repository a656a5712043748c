"""Which run and which of its processes sent something: origins out of resource attributes. Pure.

Rules: what names no run is of one run of its service, and of its instance where it has one; without either,
of its process; the id begins with what it was made of, so that it shows. Only what a trainer sends begins
such a run: machines, collectors and services that train nothing have names too. Must not know what was sent.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch.catalog import Library, Scope, parse_library
from overwatch.catalog.tallies import SERVICES
from overwatch.events import (
    EnvsRemoved,
    Event,
    FindingAcknowledged,
    LogLine,
    Measured,
    Origin,
    RunFinished,
    Tallied,
)
from overwatch.otlp import wire
from overwatch.otlp.result import RejectedError
from overwatch.otlp.value import Value, as_whole, as_word, attributes_to_python, to_python

BY_SERVICE: Final = "service:"
BY_PROCESS: Final = "process:"
OF_A_TRAINER: Final = frozenset({Scope.RUN, Scope.POLICY, Scope.ENV, Scope.SLOT, *SERVICES})
"""Scopes whose values a run may begin with: others are of machines, and of Overwatch itself."""
NO_RUN: Final = f"names no run; set {wire.RUN_ID}, or {wire.SERVICE}, on its resource"

_UNKNOWN: Final = "unknown_service"
"""How OpenTelemetry's SDKs call a service without a name."""
_LONGEST: Final = wire.LONGEST_ID // 2 - len(BY_SERVICE)
_NO_BEGINNING: Final = (LogLine, FindingAcknowledged, RunFinished, EnvsRemoved)


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource, read once for all of its items."""

    origin: Origin
    """With an empty run id when the resource names neither a run nor anything that implies one."""
    service: str | None
    library: Library | None
    """Whose names its metrics have; `None` where none, or none that is known, is named."""
    attributes: dict[str, Value]


def resource_of(message: ResourceMessage) -> Resource:
    """Read a resource; attributes of an unexpected type count as absent."""
    reported = attributes_to_python(message.attributes)
    attributes = {
        name: value[: wire.LONGEST_ID] if isinstance(value, str) else value
        for name, value in reported.items()
    }
    named = as_word(reported.get(wire.RUN_ID))
    origin = Origin(
        run_id=named or implied_id(attributes) or "",
        is_implied=named is None,
        role=_word(attributes, wire.ROLE) or "trainer",
        rank=as_whole(attributes.get(wire.RANK)) or 0,
        epoch=_word(attributes, wire.INSTANCE) or "",
        join=_word(attributes, wire.JOIN),
        ours=attributes.get(wire.DISTRO) == wire.OURS,
        task=_word(attributes, wire.TASK),
        algo=_word(attributes, wire.ALGORITHM),
        service=_service(attributes),
    )
    service, library = _word(attributes, wire.SERVICE), _library(_word(attributes, wire.LIBRARY))
    return Resource(origin=origin, service=service, library=library, attributes=attributes)


def run_id_of(resource: Resource, pairs: Iterable[KeyValue]) -> str | None:
    """The run an item belongs to: by its own attribute, else by its resource, else none."""
    return run_id_in(resource, attribute(pairs, wire.RUN_ID))


def run_id_in(resource: Resource, own: Value) -> str | None:
    """The same, for who has the item's own attribute at hand."""
    named = None if own is None else as_word(own)
    return named or resource.origin.run_id or None


def with_run(resource: Resource, run_id: str) -> Origin:
    """The resource's origin, speaking for `run_id`; raises `RejectedError` where that is too long."""
    if len(run_id) > wire.LONGEST_ID:
        stated = f"{wire.RUN_ID} has {len(run_id):,} characters; {wire.LONGEST_ID} are the most"
        raise RejectedError("malformed", stated)
    origin = resource.origin
    if run_id == origin.run_id:
        return origin
    return msgspec.structs.replace(origin, run_id=run_id, is_implied=False)


def scope_name_of(scope: InstrumentationScope) -> str:
    """What a scope is called."""
    name: str = scope.name
    return name[: wire.LONGEST_ID]


def attribute(pairs: Iterable[KeyValue], name: str) -> Value:
    """The value of one attribute, `None` when absent; of a key given twice the last counts."""
    found = None
    for pair in pairs:
        if pair.key == name:
            found = pair.value
    return None if found is None else to_python(found)


def _word(attributes: dict[str, Value], name: str) -> str | None:
    return as_word(attributes.get(name))


def _service(attributes: dict[str, Value]) -> str | None:
    name, namespace = _word(attributes, wire.SERVICE), _word(attributes, wire.SERVICE_NAMESPACE)
    return f"{namespace}/{name}" if name and namespace else name


def _library(name: str | None) -> Library | None:
    try:
        return None if name is None else parse_library(name)
    except ValueError:
        return None


def implied_id(attributes: Mapping[str, Value]) -> str | None:
    """The id of the run of a resource that names none; `None` where it has no name of any kind."""
    service, namespace = _short(attributes, wire.SERVICE), _short(attributes, wire.SERVICE_NAMESPACE)
    instance = _short(attributes, wire.INSTANCE)
    host, pid = _short(attributes, wire.HOST), _short(attributes, wire.PID)
    known = None if service is None or service.startswith(_UNKNOWN) else service
    if known is not None and namespace is not None:
        known = f"{namespace}/{known}"[:_LONGEST]
    if known is not None or instance is not None:
        return BY_SERVICE + "/".join(part for part in (known, instance) if part is not None)
    if host is not None and pid is not None:
        return f"{BY_PROCESS}{host}/{pid}"
    return None if service is None else BY_SERVICE + service


def begins_run(event: Event) -> bool:
    """Whether a run that nothing names may begin with an event."""
    if isinstance(event, Measured | Tallied):
        return event.scope in OF_A_TRAINER
    return not isinstance(event, _NO_BEGINNING)


def _short(attributes: Mapping[str, Value], name: str) -> str | None:
    word = as_word(attributes.get(name))
    return None if word is None else word[:_LONGEST]
