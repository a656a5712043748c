"""Each policy is broken once, and states who broke it."""

from dataclasses import replace

import pytest

from overwatch.conventions.model import (
    Attribute,
    EntityDef,
    EventDef,
    Level,
    Member,
    MetricDef,
    Ref,
    Registry,
)
from overwatch.conventions.policies import check, compare

_KEY = Attribute(key="a.key", kind="string", brief="A key.")
_METRIC = MetricDef(
    name="a.metric", instrument="gauge", unit="s", brief="A metric.",
    attributes=(Ref(key="a.key"),), entities=("a.thing",),
)  # fmt: skip
_EVENT = EventDef(name="a.event", brief="An event.", attributes=(Ref(key="a.key"),))
_THING = EntityDef(type="a.thing", brief="A thing.", identity=(Ref(key="a.key", level=Level.REQUIRED),))


def _registry(*parts: Attribute | MetricDef | EventDef | EntityDef) -> Registry:
    """A registry in order but for `parts`, which take the place of what has their name."""

    def of(kind: type) -> list:
        return [one for one in (_KEY, _METRIC, _EVENT, _THING, *parts) if isinstance(one, kind)]

    return Registry(
        attributes={one.key: one for one in of(Attribute)},
        metrics={one.name: one for one in of(MetricDef)},
        events={one.name: one for one in of(EventDef)},
        entities={one.type: one for one in of(EntityDef)},
        spans={},
    )


def test_a_registry_in_order_breaks_nothing() -> None:
    """The one that the other tests break."""
    assert check(_registry()) == []


@pytest.mark.parametrize(
    ("policy", "name", "part"),
    [
        ("naming_convention_attr_name", "a._key", replace(_KEY, key="a._key")),
        ("naming_convention_attr_has_namespace", "key", replace(_KEY, key="key")),
        ("attribute_type", "b.key", replace(_KEY, key="b.key", kind="float")),
        ("attribute_brief", "a.key", replace(_KEY, brief="")),
        ("enum_member_collision", "a.key", replace(_KEY, members=(Member(value="x"), Member(value="x")))),
        ("naming_convention_enum_id", "a.key", replace(_KEY, members=(Member(value="Übel"),))),
        ("stability_word", "a.key", replace(_KEY, stability="experimental")),
        ("attribute_constant_collision", "a.key.b", replace(_KEY, key="a.key.b")),
        ("attribute_namespace_collision", "a.key", replace(_KEY, key="a.key.below")),
        ("naming_convention_metric_name", "A.metric", replace(_METRIC, name="A.metric")),
        ("metric_instrument", "a.metric", replace(_METRIC, instrument="summary")),
        ("metric_unit", "a.metric", replace(_METRIC, unit="{reward}2")),
        ("metric_unit", "a.metric", replace(_METRIC, unit="per second")),
        ("metric_brief_format", "a.metric", replace(_METRIC, brief="How far?")),
        ("metric_name_unit", "a.size_bytes", replace(_METRIC, name="a.size_bytes")),
        ("metric_namespace_collision", "a.metric", replace(_METRIC, name="a.metric.limit")),
        ("unknown_attribute", "a.metric", replace(_METRIC, attributes=(Ref(key="no.such"),))),
        ("metric_attribute_twice", "a.metric", replace(_METRIC, attributes=(Ref(key="a.key"),) * 2)),
        ("attribute_complex_type", "a.metric", replace(_KEY, kind="any")),
        ("stability_attribute", "a.metric", replace(_METRIC, stability="stable")),
        ("entity_association", "a.metric", replace(_METRIC, entities=("no.such",))),
        ("entity_identity", "a.thing", replace(_THING, identity=())),
        ("event_name_attribute", "a.event", replace(_EVENT, attributes=(Ref(key="event.name"),))),
    ],
)  # fmt: skip
def test_a_policy_names_who_breaks_it(policy: str, name: str, part: Attribute | MetricDef | EventDef) -> None:
    """By the id that Weaver gives it."""
    parts = [part]
    if policy == "attribute_constant_collision":
        parts.append(replace(_KEY, key="a.key_b"))

    assert (policy, name) in {(one.policy, one.name) for one in check(_registry(*parts))}


def test_an_exception_excuses_one_policy() -> None:
    """As its annotation states in the file."""
    excused = replace(_METRIC, exceptions=("metric_namespace_collision",))

    assert check(_registry(excused, replace(_METRIC, name="a.metric.limit"))) == []


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        ("compatibility_attribute_type", replace(_KEY, kind="int")),
        ("compatibility_metric_changed", replace(_METRIC, unit="ms")),
        ("compatibility_metric_changed", replace(_METRIC, instrument="counter")),
        ("compatibility_metric_attribute_missing", replace(_METRIC, attributes=())),
        ("compatibility_entity_identity", replace(_THING, identity=(Ref(key="b.key"),))),
    ],
)
def test_a_breaking_change_is_found(policy: str, after: Attribute | MetricDef | EntityDef) -> None:
    """Against the registry before."""
    assert policy in {one.policy for one in compare(_registry(), _registry(after))}


def test_what_is_gone_or_less_stable_breaks_and_what_is_new_does_not() -> None:
    """Additions are free."""
    more = _registry(replace(_METRIC, name="b.metric"), replace(_KEY, key="b.key", stability="stable"))

    assert compare(_registry(), more) == []
    assert {one.policy for one in compare(more, _registry())} == {
        "compatibility_metric_missing", "compatibility_attribute_missing",
    }  # fmt: skip
    less = replace(_KEY, key="b.key", stability="alpha")
    assert "compatibility_stability" in {
        one.policy for one in compare(more, _registry(replace(_METRIC, name="b.metric"), less))
    }
