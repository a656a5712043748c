"""What is wrong with a registry: OpenTelemetry's policies for names, units, types, stability and change.

The rules are those of Weaver's shared policy packages, under their finding ids, for machines without Weaver.
Pure, and of any registry, so that a test can break each rule. Must not know what Overwatch measures.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from overwatch.conventions.model import (
    INSTRUMENTS,
    STABILITIES,
    TYPES,
    Attribute,
    EntityDef,
    Level,
    MetricDef,
    Registry,
    Signal,
    refs_of,
)

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([._][a-z0-9]+)*")
_SPACED: Final = re.compile(r"[a-z0-9_]+\.[a-z0-9._]+")
_ATOM: Final = r"(%|[A-Za-z]+\d*(\{[!-z|~]+\})?|\{[!-z|~]+\}|1)"
_UCUM: Final = re.compile(rf"{_ATOM}([./]{_ATOM})*", re.ASCII)
_UNIT_WORDS: Final = frozenset(
    {"seconds", "milliseconds", "bytes", "kilobytes", "megabytes", "percent", "celsius", "watts", "total"}
)


@dataclass(frozen=True, slots=True, order=True)
class Broken:
    """A policy that something breaks."""

    policy: str
    """Weaver's id of the finding."""
    name: str
    """Who breaks it."""
    message: str
    """How, and what to do."""

    def __str__(self) -> str:
        return f"{self.name}: {self.message} ({self.policy})"


def check(registry: Registry) -> list[Broken]:
    """Everything that breaks a policy; empty for a registry in order."""
    rules: tuple[Callable[[Registry], Iterator[Broken]], ...] = (
        _attributes, _signals, _metrics, _collisions, _namespaces, _stability, _entities,
    )  # fmt: skip
    return sorted(found for rule in rules for found in rule(registry))


def compare(before: Registry, after: Registry) -> list[Broken]:
    """What somebody who uses `before` would miss, or misread, in `after`; what is imported is others'."""
    found: list[Broken] = []
    for key, old in before.attributes.items():
        if not old.imported:
            found += _changed_attribute(old, after.attributes.get(key))
    held: dict[tuple[str, str], Signal] = {(kind, one.name): one for kind, one in after.signals()}
    for kind, signal in before.signals():
        if not signal.imported:
            found += _changed_signal(kind, signal, held.get((kind, signal.name)))
    return sorted(found)


def _attributes(registry: Registry) -> Iterator[Broken]:
    for one in registry.attributes.values():
        if one.plain_kind not in TYPES:
            yield Broken("attribute_type", one.key, f"{one.kind!r} is no type; use one of {sorted(TYPES)}")
        if not _NAME.fullmatch(one.key):
            yield Broken("naming_convention_attr_name", one.key, "use lower-case words joined by . and _")
        if not _SPACED.fullmatch(one.key):
            yield Broken("naming_convention_attr_has_namespace", one.key, "put it into a namespace")
        if not one.brief:
            yield Broken("attribute_brief", one.key, "it has no brief; give it one")
        yield from _stable_word(one.key, one.stability)
        for member in one.members:
            if not _NAME.fullmatch(member.id):
                yield Broken("naming_convention_enum_id", one.key, f"{member.value!r} makes no id")
        for what in ("id", "value"):
            for word, n in Counter(getattr(member, what) for member in one.members).items():
                if n > 1:
                    yield Broken("enum_member_collision", one.key, f"{n} members have the {what} {word!r}")


def _signals(registry: Registry) -> Iterator[Broken]:
    for kind, signal in registry.signals():
        if not _NAME.fullmatch(signal.name):
            yield Broken(f"naming_convention_{kind}_name", signal.name, "use lower-case words, . and _")
        if not signal.brief:
            yield Broken(f"{kind}_brief", signal.name, "it has no brief; give it one")
        yield from _stable_word(signal.name, signal.stability)
        for key, n in Counter(ref.key for ref in refs_of(signal)).items():
            if n > 1:
                yield Broken(f"{kind}_attribute_twice", signal.name, f"it has {key!r} {n} times")
            attribute = registry.attributes.get(key)
            if attribute is None:
                yield Broken("unknown_attribute", signal.name, f"no attribute is called {key!r}")
            elif kind in ("metric", "entity") and attribute.plain_kind == "any":
                yield Broken(
                    "attribute_complex_type", signal.name, f"{key!r} may be anything; use it on events"
                )
        if kind == "event" and any(ref.key == "event.name" for ref in refs_of(signal)):
            yield Broken("event_name_attribute", signal.name, "its name is a field, not an attribute")


def _metrics(registry: Registry) -> Iterator[Broken]:
    for one in registry.metrics.values():
        if one.instrument not in INSTRUMENTS:
            yield Broken("metric_instrument", one.name, f"{one.instrument!r} is none of {INSTRUMENTS}")
        if not _UCUM.fullmatch(one.unit):
            yield Broken(
                "metric_unit", one.name, f"{one.unit!r} is no UCUM unit; write e.g. s, By/s, {{env}}"
            )
        if not one.imported and not one.brief.endswith("."):
            yield Broken("metric_brief_format", one.name, "its brief does not end with a full stop")
        last = re.split(r"[._]", one.name)[-1]
        if last in _UNIT_WORDS:
            yield Broken("metric_name_unit", one.name, f"{last!r} is for the unit, not for the name")


def _collisions(registry: Registry) -> Iterator[Broken]:
    """Names that are one constant in generated code."""
    held: tuple[tuple[str, Iterable[str]], ...] = (
        ("attribute", registry.attributes), ("metric", registry.metrics), ("event", registry.events),
        ("entity", registry.entities), ("span", registry.spans),
    )  # fmt: skip
    for kind, names in held:
        constants: dict[str, list[str]] = {}
        for name in names:
            constants.setdefault(name.replace(".", "_"), []).append(name)
        for same in constants.values():
            if len(same) > 1:
                yield Broken(f"{kind}_constant_collision", same[0], f"{', '.join(same)} are one constant")


def _namespaces(registry: Registry) -> Iterator[Broken]:
    """Names below which others are."""
    spaces = _spaces(one.key for one in registry.attributes.values())
    for key, one in registry.attributes.items():
        if key in spaces and not one.is_template and not one.imported:
            yield Broken("attribute_namespace_collision", key, f"it is also the namespace of {spaces[key]}")
    spaces = _spaces(registry.metrics)
    for name, metric in registry.metrics.items():
        excused = metric.imported or "metric_namespace_collision" in metric.exceptions
        if name in spaces and not excused:
            yield Broken("metric_namespace_collision", name, f"it is also the namespace of {spaces[name]}")


def _spaces(names: Iterable[str]) -> dict[str, str]:
    """Every namespace, and one name in it."""
    return {name[:at]: name for name in names for at, sign in enumerate(name) if sign == "."}


def _stability(registry: Registry) -> Iterator[Broken]:
    """A signal may not lean on what is less stable than itself."""
    for _, signal in registry.signals():
        for ref in refs_of(signal):
            attribute = registry.attributes.get(ref.key)
            if attribute is None or ref.level is Level.OPT_IN or signal.stability not in STABILITIES:
                continue
            if _rank(attribute.stability) < _rank(signal.stability):
                stated = f"it is {signal.stability}, its attribute {ref.key!r} only {attribute.stability}"
                yield Broken("stability_attribute", signal.name, stated)


def _entities(registry: Registry) -> Iterator[Broken]:
    for _, signal in registry.signals():
        if isinstance(signal, EntityDef):
            if not signal.identity and not signal.imported:
                yield Broken("entity_identity", signal.name, "nothing identifies it")
            continue
        for name in signal.entities:
            if name not in registry.entities:
                yield Broken("entity_association", signal.name, f"no entity is called {name!r}")


def _stable_word(name: str, word: str) -> Iterator[Broken]:
    if word not in STABILITIES:
        yield Broken("stability_word", name, f"{word!r} is none of {', '.join(STABILITIES)}")


def _rank(stability: str) -> int:
    return STABILITIES.index(stability) if stability in STABILITIES else 0


def _changed_attribute(old: Attribute, new: Attribute | None) -> Iterator[Broken]:
    if new is None:
        yield Broken("compatibility_attribute_missing", old.key, "it is gone; deprecate it instead")
        return
    if new.kind != old.kind:
        stated = f"its type was {old.kind} and is {new.kind}; give the new one another name"
        yield Broken("compatibility_attribute_type", old.key, stated)
    gone = {member.value for member in old.members} - {member.value for member in new.members}
    if gone:
        yield Broken("compatibility_enum_member_missing", old.key, f"{', '.join(sorted(gone))} is gone")
    yield from _less_stable(old.key, old.stability, new.stability)


def _changed_signal(kind: str, old: Signal, new: Signal | None) -> Iterator[Broken]:
    if new is None:
        yield Broken(f"compatibility_{kind}_missing", old.name, "it is gone; deprecate it instead")
        return
    yield from _less_stable(old.name, old.stability, new.stability)
    if isinstance(old, MetricDef) and isinstance(new, MetricDef):
        was, now = (f"a {one.instrument} in {one.unit}" for one in (old, new))
        if was != now:
            stated = f"it was {was} and is {now}"
            yield Broken("compatibility_metric_changed", old.name, stated)
    if isinstance(old, EntityDef) and isinstance(new, EntityDef) and old.identity != new.identity:
        yield Broken("compatibility_entity_identity", old.name, "what identifies it changed")
    kept = {ref.key for ref in refs_of(new)}
    for ref in refs_of(old):
        if ref.key not in kept:
            yield Broken(f"compatibility_{kind}_attribute_missing", old.name, f"{ref.key!r} is gone")


def _less_stable(name: str, before: str, after: str) -> Iterator[Broken]:
    if _rank(after) < _rank(before):
        yield Broken("compatibility_stability", name, f"it was {before} and is only {after}")
