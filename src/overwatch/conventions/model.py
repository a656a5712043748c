"""The shape of a semantic-convention registry: attributes, metrics, events, entities and spans, as data.

Owns the parts that Weaver's second format has and that Overwatch uses. Rules: frozen values only; a signal
refers to attributes by key. Must not know what Overwatch measures, files or live telemetry.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

DEVELOPMENT: Final = "development"
STABILITIES: Final = ("development", "alpha", "beta", "release_candidate", "stable")
"""From the least to the most stable."""
TYPES: Final = frozenset(
    {"string", "int", "double", "boolean", "string[]", "int[]", "double[]", "boolean[]", "any"}
)
TEMPLATE: Final = "template"
INSTRUMENTS: Final = ("counter", "updowncounter", "gauge", "histogram")


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
    """One of `TYPES`, or `template[...]` of one: a family of keys below `key`."""
    brief: str
    examples: tuple[str | int | float | bool, ...] = ()
    note: str = ""
    members: tuple[Member, ...] = ()
    """Of an enumeration, whose `kind` is `string`; others than these may come."""
    stability: str = DEVELOPMENT
    imported: bool = False
    """Defined by OpenTelemetry's own conventions; here only so that it can be checked."""

    @property
    def is_template(self) -> bool:
        """Whether it stands for all keys below it."""
        return self.kind.startswith(TEMPLATE)

    @property
    def plain_kind(self) -> str:
        """The type of a value, of a template too."""
        return self.kind.removeprefix(f"{TEMPLATE}[").removesuffix("]") if self.is_template else self.kind


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
    """One of `INSTRUMENTS`."""
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


Signal: TypeAlias = MetricDef | EventDef | EntityDef | SpanDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Everything that may be sent, by name; order is that of the files."""

    attributes: Mapping[str, Attribute]
    metrics: Mapping[str, MetricDef]
    events: Mapping[str, EventDef]
    entities: Mapping[str, EntityDef]
    spans: Mapping[str, SpanDef]

    def signals(self) -> Iterator[tuple[str, Signal]]:
        """Every signal with the word for its kind."""
        for kind, held in (
            ("metric", self.metrics), ("event", self.events), ("entity", self.entities), ("span", self.spans),
        ):  # fmt: skip
            for signal in held.values():
                yield kind, signal

    def attribute(self, key: str) -> Attribute | None:
        """What a key means: an attribute of that key, or the template that it is below of."""
        found = self.attributes.get(key)
        if found is not None:
            return None if found.is_template else found
        end = key.rfind(".")
        while end > 0:
            family = self.attributes.get(key[:end])
            if family is not None and family.is_template:
                return family
            end = key.rfind(".", 0, end)
        return None


def refs_of(signal: Signal) -> tuple[Ref, ...]:
    """The attributes that a signal refers to."""
    return (*signal.identity, *signal.description) if isinstance(signal, EntityDef) else signal.attributes
