"""Who speaks: origins out of resource attributes.

Must not know what is said.
"""

from collections.abc import Iterable

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch.events import Origin
from overwatch.otlp import wire
from overwatch.otlp.result import RejectedError
from overwatch.otlp.unnamed import implied_id
from overwatch.otlp.value import Value, as_whole, as_word, attributes_to_python, to_python


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource, read once for all of its items."""

    origin: Origin
    """With an empty run id when the resource names neither a run nor anything that implies one."""
    service: str | None
    attributes: dict[str, Value]


def resource_of(message: ResourceMessage) -> Resource:
    """Read a resource; attributes of an unexpected type count as absent."""
    told = attributes_to_python(message.attributes)
    attributes = {name: _beginning(value) for name, value in told.items()}
    named = as_word(told.get(wire.RUN_ID))
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
    return Resource(origin=origin, service=_word(attributes, wire.SERVICE), attributes=attributes)


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
        said = f"{wire.RUN_ID} has {len(run_id):,} characters; {wire.LONGEST_ID} are the most"
        raise RejectedError("malformed", said)
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


def values_of(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    """The plain value of each attribute; of a key given twice the last counts."""
    values: dict[str, Value] = {}
    for pair in pairs:
        # These lines are where a request's time goes: a field that is not empty is the one that is set.
        said = pair.value
        plain = said.string_value or said.int_value or said.double_value or said.bool_value
        values[pair.key] = plain or to_python(said)
    return values


def _word(attributes: dict[str, Value], name: str) -> str | None:
    return as_word(attributes.get(name))


def _beginning(value: Value) -> Value:
    return value[: wire.LONGEST_ID] if isinstance(value, str) else value


def _service(attributes: dict[str, Value]) -> str | None:
    name, namespace = _word(attributes, wire.SERVICE), _word(attributes, wire.SERVICE_NAMESPACE)
    return f"{namespace}/{name}" if name and namespace else name
