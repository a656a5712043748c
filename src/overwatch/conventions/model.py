"""The shape of a semantic-convention registry: attributes, metrics, events, entities and spans, as data.

Owns the parts that Weaver's second format has and that Overwatch uses. Rules: frozen values only; a signal
refers to attributes by key. Must not know what Overwatch measures, files or live telemetry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

DEVELOPMENT: Final = "development"


class Level(Enum):
    """How much an attribute is wanted on a signal; the value is Weaver's word."""

    REQUIRED = "required"
    RECOMMENDED = "recommended"
    OPT_IN = "opt_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One word of an enumeration."""

    value: str
    brief: str = ""

    @property
    def id(self) -> str:
        """Its name where only letters, digits and `_` may be."""
        return self.value.replace("-", "_").replace(".", "_").replace(" ", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute, the same wherever it is used."""

    key: str
    kind: str
    """`string`, `int`, `double`, `boolean`, a list of these as `int[]`, `any`, or `template[...]` of one of
    these: a family of keys below `key`."""
    brief: str
    examples: tuple[str | int | float | bool, ...] = ()
    note: str = ""
    members: tuple[Member, ...] = ()
    """Of an enumeration, whose `kind` is `string`; others than these may come."""
    stability: str = DEVELOPMENT
    imported: bool = False
    """Defined by OpenTelemetry's own conventions; here only so that it can be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """That a signal has an attribute."""

    key: str
    level: Level = Level.RECOMMENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDef:
    """A metric."""

    name: str
    instrument: str
    """`counter`, `updowncounter`, `gauge` or `histogram`."""
    unit: str
    brief: str
    note: str = ""
    attributes: tuple[Ref, ...] = ()
    entities: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    """Naming policies that it may break, each for a reason that its note states."""
    annotations: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    stability: str = DEVELOPMENT
    imported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDef:
    """An event: a log record with this EventName."""

    name: str
    brief: str
    note: str = ""
    columns: tuple[str, ...] = ()
    """Fields that its body may have."""
    attributes: tuple[Ref, ...] = ()
    entities: tuple[str, ...] = ()
    stability: str = DEVELOPMENT
    imported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDef:
    """Something that telemetry speaks of."""

    type: str
    brief: str
    identity: tuple[Ref, ...]
    description: tuple[Ref, ...] = ()
    stability: str = DEVELOPMENT
    imported: bool = False

    @property
    def name(self) -> str:
        """Its type."""
        return self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDef:
    """A kind of span; `names` are those that a span of it may have, in any case."""

    type: str
    brief: str
    names: tuple[str, ...]
    note: str = ""
    attributes: tuple[Ref, ...] = ()
    entities: tuple[str, ...] = ()
    stability: str = DEVELOPMENT
    imported: bool = False

    @property
    def name(self) -> str:
        """Its type."""
        return self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Everything that may be sent, by name; order is that of the files."""

    attributes: Mapping[str, Attribute]
    metrics: Mapping[str, MetricDef]
    events: Mapping[str, EventDef]
    entities: Mapping[str, EntityDef]
    spans: Mapping[str, SpanDef]
