"""A registry out of its files: any one in Weaver's second format, not only ours.

Owns which parts of the format are read; the rest is left to Weaver. Rules: what is wrong is reported with the
file and the place in it; a key that nobody here defines is the dependency's, unless it is in a namespace that
is defined here. Must not know what Overwatch measures, or what is done with a registry.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from overwatch.conventions.model import (
    DEVELOPMENT,
    Attribute,
    EntityDef,
    EventDef,
    Level,
    Member,
    MetricDef,
    Ref,
    Registry,
    SpanDef,
    refs_of,
)

FORMAT: Final = "definition/2"
_MANIFESTS: Final = ("manifest.yaml", "registry_manifest.yaml")
_LEVELS: Final = {level.value: level for level in Level}
_S = TypeVar("_S", Attribute, MetricDef, EventDef, EntityDef, SpanDef)


class RegistryFileError(ValueError):
    """A registry that cannot be read; the message names the file and states what to do."""


class _Ref(msgspec.Struct, frozen=True):
    ref: str
    requirement_level: str | dict[str, Any] = Level.RECOMMENDED.value

    def made(self) -> Ref:
        word = self.requirement_level if isinstance(self.requirement_level, str) else ""
        return Ref(key=self.ref, level=_LEVELS.get(word, Level.RECOMMENDED))


class _Member(msgspec.Struct, frozen=True):
    id: str
    value: str | int
    brief: str = ""

    @property
    def word(self) -> str:
        """What it is known by: a number by its id."""
        return self.value if isinstance(self.value, str) else self.id


class _Members(msgspec.Struct, frozen=True):
    members: tuple[_Member, ...]


class _Stated(msgspec.Struct, frozen=True, kw_only=True):
    """What everything in a registry has."""

    brief: str = ""
    note: str = ""
    stability: str = DEVELOPMENT


class _Attribute(_Stated, frozen=True, kw_only=True):
    key: str
    type: str | _Members

    def made(self) -> Attribute:
        held = self.type.members if isinstance(self.type, _Members) else ()
        words = held and all(isinstance(member.value, str) for member in held)
        kind = self.type if isinstance(self.type, str) else "string" if words else "int"
        members = tuple(Member(value=member.word, brief=member.brief) for member in held)
        return Attribute(key=self.key, kind=kind, members=members, **_stated(self))


class _Signal(_Stated, frozen=True, kw_only=True):
    attributes: tuple[_Ref, ...] = ()
    entity_associations: tuple[str | dict[str, tuple[str, ...]], ...] = ()
    annotations: dict[str, Any] = {}

    def carried(self) -> dict[str, Any]:
        found = [[one] if isinstance(one, str) else _flat(one.values()) for one in self.entity_associations]
        return {"attributes": _refs(self.attributes), "entities": _flat(found), **_stated(self)}


class _Metric(_Signal, frozen=True, kw_only=True):
    name: str
    instrument: str
    unit: str

    def made(self) -> MetricDef:
        policies = self.annotations.get("naming_conventions") or {}
        excused = tuple(policies.get("policy_exceptions") or ()) if isinstance(policies, dict) else ()
        return MetricDef(
            name=self.name, instrument=self.instrument, unit=self.unit, exceptions=excused, **self.carried()
        )


class _Event(_Signal, frozen=True, kw_only=True):
    name: str

    def made(self) -> EventDef:
        return EventDef(name=self.name, **self.carried())


class _Span(_Signal, frozen=True, kw_only=True):
    type: str

    def made(self) -> SpanDef:
        return SpanDef(type=self.type, names=(), **self.carried())


class _Entity(_Stated, frozen=True, kw_only=True):
    type: str
    identity: tuple[_Ref, ...] = ()
    description: tuple[_Ref, ...] = ()

    def made(self) -> EntityDef:
        identity, description = _refs(self.identity), _refs(self.description)
        return EntityDef(
            type=self.type,
            brief=self.brief,
            identity=identity,
            description=description,
            stability=self.stability,
        )


class _File(msgspec.Struct, frozen=True, kw_only=True):
    file_format: str
    attributes: tuple[_Attribute, ...] = ()
    metrics: tuple[_Metric, ...] = ()
    events: tuple[_Event, ...] = ()
    entities: tuple[_Entity, ...] = ()
    spans: tuple[_Span, ...] = ()


def read_registry(folder: Path) -> Registry:
    """The registry of all YAML files below a folder; raises `RegistryFileError`."""
    paths = sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml")))
    files = [(path, _read(path)) for path in paths if path.name not in _MANIFESTS]
    if not files:
        raise RegistryFileError(f"{folder} holds no registry: give a folder with files of {FORMAT}")
    registry = Registry(
        attributes=_named((path, one.key, one.made()) for path, file in files for one in file.attributes),
        metrics=_named((path, one.name, one.made()) for path, file in files for one in file.metrics),
        events=_named((path, one.name, one.made()) for path, file in files for one in file.events),
        entities=_named((path, one.type, one.made()) for path, file in files for one in file.entities),
        spans=_named((path, one.type, one.made()) for path, file in files for one in file.spans),
    )
    return _with_dependencies(registry)


def _read(path: Path) -> _File:
    try:
        data = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise RegistryFileError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RegistryFileError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    stated = data.get("file_format") if isinstance(data, dict) else None
    if stated != FORMAT:
        raise RegistryFileError(f"{path}: file_format is {stated!r}; only {FORMAT!r} is read")
    try:
        return msgspec.convert(data, _File)
    except msgspec.ValidationError as error:
        raise RegistryFileError(f"{path}: {error}") from error


def _named(made: Iterable[tuple[Path, str, _S]]) -> dict[str, _S]:
    found: dict[str, _S] = {}
    for path, name, one in made:
        if name in found:
            raise RegistryFileError(f"{path}: {name!r} is defined twice; keep one of them")
        found[name] = one
    return found


def _with_dependencies(registry: Registry) -> Registry:
    """With the attributes and entities that are referred to and defined elsewhere."""
    own = {key.partition(".")[0] for key in registry.attributes}
    keys = {ref.key for _, signal in registry.signals() for ref in refs_of(signal)}
    entities = {
        name for _, one in registry.signals() if not isinstance(one, EntityDef) for name in one.entities
    }
    stated: dict[str, Any] = {"brief": "Of a dependency.", "stability": "stable", "imported": True}
    attributes = {
        key: Attribute(key=key, kind="string", **stated) for key in _missing(keys, registry.attributes, own)
    }
    others = {
        name: EntityDef(type=name, identity=(), **stated)
        for name in _missing(entities, registry.entities, own)
    }
    return Registry(
        attributes={**registry.attributes, **attributes},
        metrics=registry.metrics,
        events=registry.events,
        entities={**registry.entities, **others},
        spans=registry.spans,
    )


def _missing(wanted: set[str], held: Iterable[str], own: set[str]) -> Iterator[str]:
    return (name for name in sorted(wanted - {*held}) if name.partition(".")[0] not in own)


def _stated(one: _Stated) -> dict[str, Any]:
    return {"brief": one.brief, "note": one.note, "stability": one.stability}


def _refs(refs: tuple[_Ref, ...]) -> tuple[Ref, ...]:
    return tuple(ref.made() for ref in refs)


def _flat(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(one for held in lists for one in held)
