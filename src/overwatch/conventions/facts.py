"""Events as conventions: each kind's fields become attributes, by the names that the wire gives them.

Owns the mapping of Python types to attribute types. Rules: a column travels in the body and is no attribute;
a key that two events use for different types is of type `any`. Must not know files or live telemetry.
"""

import inspect
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import msgspec

from overwatch.catalog import ROWS, Kind, Metric, Scope, Stage
from overwatch.catalog.tallies import SERVICES
from overwatch.conventions import named
from overwatch.conventions.documented import described
from overwatch.conventions.model import Attribute, EventDef, Level, Member, Ref
from overwatch.events import Column, Event, Measured
from overwatch.otlp import wire

_PLAIN: Final = {str: "string", bool: "boolean", int: "int", float: "double", bytes: "any"}
_ENTITIES: Final = {"env_id": "overwatch.env", "slot": "overwatch.slot"}
ONE_SUBJECT: Final = frozenset({Scope.RUN, Scope.POLICY, Scope.HOST, *SERVICES, Scope.TOWER})
"""Scopes whose values are attributes of a measurement; the others' travel as columns."""


def events() -> Iterator[EventDef]:
    """Every event that Overwatch emits, and the two that entities are reported by."""
    for kind in wire.EVENT_TYPES:
        yield _measured() if kind is Measured else _fact(kind)
    for name, brief in (
        (wire.ENTITY_STATE, "An entity as it is."),
        (wire.ENTITY_DELETE, "An entity is no more."),
    ):
        refs = tuple(
            Ref(key=one.key, level=_level(is_required=one.key in (wire.ENTITY_TYPE, wire.ENTITY_ID)))
            for one in named.ENTITY_EVENTS
        )
        yield EventDef(name=name, brief=brief, attributes=refs)


def attributes() -> Iterator[Attribute]:
    """The attributes of facts that no other table names, and the numbers of a measurement."""
    known = {one.key for one in named.ATTRIBUTES}
    found: dict[str, Attribute] = {}
    for kind in wire.EVENT_TYPES:
        if kind is not Measured:
            for one in _fields(kind):
                if one.key not in known:
                    found[one.key] = _joined(found.get(one.key), one)
    yield from found.values()
    for row in numbers():
        yield Attribute(key=row.name, kind="double", brief=brief_of(row),
                        note="The newest value of the metric of this name, in its unit.")  # fmt: skip


def numbers() -> Iterator[Metric]:
    """The rows whose values are attributes of a measurement."""
    for row in ROWS:
        if row.scope in ONE_SUBJECT and row.kind not in (Kind.STATE, Kind.HISTOGRAM):
            yield row


def brief_of(row: Metric) -> str:
    """One sentence with a full stop, as conventions want it."""
    return f'Answers "{row.asks}".'


def _measured() -> EventDef:
    wanted = {wire.SCOPE: Level.REQUIRED}
    own = tuple(
        Ref(key=key, level=wanted.get(key, Level.RECOMMENDED)) for key in (wire.SCOPE, wire.INDEX, wire.SEQ)
    )
    values = tuple(Ref(key=row.name, level=Level.OPT_IN) for row in numbers())
    beside = ", ".join(f"`{name}` ({key})" for name, key in wire.COLUMNS.items())
    return EventDef(
        name=f"{wire.EVENT_PREFIX}{wire.TAGS[Measured]}",
        brief="Numbers of one scope at one moment.",
        note="Numbers of one subject are attributes named like their metrics. Numbers of many subjects "
        "travel in the body, as columns of little-endian bytes: `keys` (`env_id`, `slot`, `gpu_id`) and "
        f"`values` by metric name, beside {beside}; `conflated` states what several measurements were before "
        "they became one.",
        columns=("keys", "values", "conflated"),
        attributes=(*own, *values, Ref(key="overwatch.custom", level=Level.OPT_IN)),
        entities=("overwatch.run",),
    )


def _fact(kind: type[Event]) -> EventDef:
    refs = [
        Ref(key=one.key, level=_level(is_required=field.required))
        for field, one in zip(_reported(kind), _fields(kind), strict=True)
    ]
    columns = tuple(field.name for field in msgspec.structs.fields(kind) if Column in _parts(field.type))
    listed = ", ".join(f"`{name}`" for name in columns)
    note = f"One row an env, as columns in the body: {listed}." if columns else ""
    reported = {field.name for field in msgspec.structs.fields(kind)}
    subjects = tuple(entity for name, entity in _ENTITIES.items() if name in reported)
    return EventDef(
        name=f"{wire.EVENT_PREFIX}{wire.TAGS[kind]}",
        brief=_sentence(inspect.getdoc(kind) or wire.TAGS[kind]),
        note=note,
        columns=columns,
        attributes=(*refs, Ref(key=wire.SEQ)),
        entities=("overwatch.run", *subjects),
    )


def _reported(kind: type[Event]) -> list[msgspec.structs.FieldInfo]:
    """The fields that are attributes."""
    return [
        field
        for field in msgspec.structs.fields(kind)
        if field.name != "at" and Column not in _parts(field.type) and field.name not in wire.OWN_PLACES[kind]
    ]


def _fields(kind: type[Event]) -> list[Attribute]:
    stated = described(kind)
    return [
        Attribute(
            key=wire.attribute_of(field.name),
            kind=_kind(field.type),
            brief=_sentence(stated.get(field.name) or field.name.replace("_", " ").capitalize()),
            members=_members(field.type),
        )
        for field in _reported(kind)
    ]


def _joined(before: Attribute | None, now: Attribute) -> Attribute:
    """One meaning for a key: of several types, any; of several sets of words, all of them."""
    if before is None:
        return now
    kind = now.kind if now.kind == before.kind else "any"
    both = (*before.members, *(member for member in now.members if member not in before.members))
    members = both if kind == "string" and before.members and now.members else ()
    return Attribute(key=now.key, kind=kind, brief=before.brief, members=members)


def _parts(kind: Any) -> tuple[Any, ...]:
    """The types of a union but `None`."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(part for part in typing.get_args(kind) if part is not type(None))
    return (kind,)


def _kind(kind: Any) -> str:
    (part,) = _parts(kind)
    if typing.get_origin(part) is tuple:
        return f"{_PLAIN[typing.get_args(part)[0]]}[]"
    if isinstance(part, type) and issubclass(part, Enum):
        return "string" if isinstance(next(iter(part)).value, str) else "int"
    return _PLAIN.get(part, "any")


def _members(kind: Any) -> tuple[Member, ...]:
    (part,) = _parts(kind)
    if isinstance(part, type) and issubclass(part, Enum) and part is not Stage:
        return tuple(Member(value=str(one.value)) for one in part)
    return tuple(Member(value=str(stage.value)) for stage in Stage) if part is Stage else ()


def _level(*, is_required: bool) -> Level:
    return Level.REQUIRED if is_required else Level.RECOMMENDED


def _sentence(text: str) -> str:
    first = text.split("\n\n", maxsplit=1)[0].replace("\n", " ").strip()
    return first if first.endswith(".") else f"{first}."
