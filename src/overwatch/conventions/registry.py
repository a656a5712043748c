"""The registry: the catalogue's rows, the events, entities and phases as one set of conventions. Pure.

Owns which entity a scope speaks of and which instrument emits a row. Must not know files or live telemetry.
"""

from functools import cache
from typing import Final

from overwatch.catalog import ROWS, Kind, Metric, Scope, prometheus_name
from overwatch.catalog.phases import LOOP_SPAN, SHUTDOWN_SPAN, STARTUP, Phase, span_names
from overwatch.catalog.tallies import SERVICES
from overwatch.conventions import facts, named
from overwatch.conventions.model import (
    Attribute,
    EntityDef,
    EventDef,
    Level,
    MetricDef,
    Ref,
    Registry,
    SpanDef,
)
from overwatch.otlp import wire

SEMCONV_VERSION: Final = "1.44.0"
"""OpenTelemetry's semantic conventions that imported names are taken from."""
UPSTREAM: Final = ("hw.", "system.")
"""Namespaces of metrics that OpenTelemetry defines."""
PHASE_PREFIX: Final = "overwatch.phase."
PHASE: Final = "overwatch.phase"
PHASE_UPDATE: Final = "overwatch.update"

_ENTITY: Final = {
    Scope.RUN: "overwatch.run",
    Scope.POLICY: "overwatch.run",
    Scope.GPU: "overwatch.gpu",
    Scope.ENV: "overwatch.env",
    Scope.SLOT: "overwatch.slot",
    Scope.HOST: "host",
    **dict.fromkeys(SERVICES, "overwatch.run"),
    Scope.TOWER: "overwatch.run",
}
_SUBJECT: Final = {
    Scope.GPU: (Ref(key="hw.id", level=Level.REQUIRED), Ref(key="hw.type")),
    Scope.ENV: (Ref(key=wire.ENV_ID, level=Level.REQUIRED), Ref(key=wire.LANE_ID, level=Level.OPT_IN)),
    Scope.SLOT: (Ref(key=wire.ENV_ID, level=Level.REQUIRED), Ref(key=wire.SLOT_ID, level=Level.REQUIRED)),
}
_ENTITIES: Final = (
    EntityDef(
        type=wire.RUN_ENTITY, brief="A training run, with all of its processes.",
        identity=(Ref(key=wire.RUN_ID, level=Level.REQUIRED),),
        description=(Ref(key=wire.TASK), Ref(key=wire.ALGORITHM), Ref(key=wire.GROUP)),
    ),
    EntityDef(
        type="overwatch.gpu", brief="A GPU that a run uses: a lane.",
        identity=(Ref(key="hw.id", level=Level.REQUIRED),), description=(Ref(key=wire.LANE_ID),),
    ),
    EntityDef(
        type=wire.ENV_ENTITY, brief="An environment of a run.",
        identity=(Ref(key=wire.RUN_ID, level=Level.REQUIRED), Ref(key=wire.ENV_ID, level=Level.REQUIRED)),
        description=(Ref(key=wire.LANE_ID),),
    ),
    EntityDef(
        type="overwatch.slot", brief="A slot of an environment, in which seeds grow.",
        identity=(Ref(key=wire.RUN_ID, level=Level.REQUIRED), Ref(key=wire.ENV_ID, level=Level.REQUIRED),
                  Ref(key=wire.SLOT_ID, level=Level.REQUIRED)),
        description=(Ref(key=wire.SEED_ID), Ref(key="overwatch.slot.stage")),
    ),
    EntityDef(
        type="host", brief="A host.", identity=(Ref(key="host.name", level=Level.REQUIRED),), imported=True
    ),
)  # fmt: skip
_LOOP: Final = SpanDef(
    type="overwatch.loop",
    brief="One turn of the training loop, with its phases below it.",
    names=(LOOP_SPAN,),
    note=f"The span is named {LOOP_SPAN}. Trace and span are the same for all processes of a run.",
    attributes=(Ref(key=PHASE_UPDATE, level=Level.RECOMMENDED),),
    entities=(wire.RUN_ENTITY,),
)
_ENDS: Final = tuple(
    SpanDef(
        type=f"overwatch.{name}", brief=brief, names=(name,), note=f"The span is named {name}.",
        entities=(wire.RUN_ENTITY,),
    )
    for name, brief in (
        (STARTUP, "What a run does before its first update."),
        (SHUTDOWN_SPAN, "What a run does after its last update, with those phases below it."),
    )
)  # fmt: skip


@cache
def registry() -> Registry:
    """Everything that Overwatch emits, and what it takes from OpenTelemetry."""
    metrics = tuple(_metric(row) for row in ROWS if row.kind is not Kind.STATE)
    attributes: tuple[Attribute, ...] = (*named.ATTRIBUTES, *facts.attributes())
    events: tuple[EventDef, ...] = tuple(facts.events())
    return Registry(
        attributes={one.key: one for one in attributes},
        metrics={one.name: one for one in _spaced(metrics)},
        events={one.name: one for one in events},
        entities={one.type: one for one in _ENTITIES},
        spans={one.type: one for one in (_LOOP, *_ENDS, *map(_span, Phase))},
    )


def instrument_of(row: Metric) -> str:
    """The instrument that emits a row; a row of words is an attribute, not a metric."""
    if row.kind is Kind.GAUGE:
        return "updowncounter" if row.adds_up else "gauge"
    return {Kind.COUNTER: "counter", Kind.HISTOGRAM: "histogram", Kind.STATE: "updowncounter"}[row.kind]


def _metric(row: Metric) -> MetricDef:
    constant = tuple(Ref(key=key) for key in row.attributes)
    subject = _SUBJECT.get(row.scope, ())
    own = {ref.key for ref in subject}
    return MetricDef(
        name=row.name,
        instrument=instrument_of(row),
        unit=row.unit,
        brief=facts.brief_of(row),
        note=_note(row),
        attributes=(*subject, *(ref for ref in constant if ref.key not in own)),
        entities=(_ENTITY[row.scope],),
        annotations={
            "overwatch": {
                "sdk_name": row.short,
                "scope": row.scope.value,
                "prometheus": prometheus_name(row),
                **({"records": list(row.tele)} if row.tele else {}),
            }
        },
        imported=row.name.startswith(UPSTREAM),
    )


def _note(row: Metric) -> str:
    stated = []
    if row.scope in (Scope.ENV, Scope.SLOT):
        stated.append("Overwatch's SDK emits it in `overwatch.measured` only; as a metric it is taken.")
    if row.estimator is not None:
        stated.append(f"Estimator {row.estimator.value}.")
    return " ".join(stated)


def _spaced(metrics: tuple[MetricDef, ...]) -> tuple[MetricDef, ...]:
    """A note for metrics whose name also begins another's: OpenTelemetry's own `x` and `x.limit`."""
    from dataclasses import replace

    names = {one.name for one in metrics}
    spaces = {name[:at] for name in names for at, sign in enumerate(name) if sign == "."}
    return tuple(
        replace(one, exceptions=("metric_namespace_collision",),
                note=f"{one.note} Its limit is named below it, as OpenTelemetry does.".strip())
        if one.name in spaces and not one.imported else one
        for one in metrics
    )  # fmt: skip


def _span(phase: Phase) -> SpanDef:
    names = span_names(phase)
    return SpanDef(
        type=f"{PHASE_PREFIX}{phase.value}",
        brief=f"The phase `{phase.value}` of the training loop.",
        names=names,
        note=f"The span is named {', '.join(names)}: the draft's name, or else the trainer's own.",
        attributes=(Ref(key=PHASE), Ref(key=PHASE_UPDATE)),
        entities=(wire.RUN_ENTITY,),
    )
