"""Telemetry that names no run: which run it is of, and whether that run may begin with it. Pure.

Rules: what names no run is of one run of its service, and of its instance where it has one; without either,
of its process; the id begins with what it was made of, so that it shows. Only what a trainer sends begins
such a run: machines, collectors and services that train nothing have names too. Must not know messages.
"""

from collections.abc import Mapping
from typing import Final

from overwatch.catalog import Scope
from overwatch.catalog.tallies import SERVICES
from overwatch.events import EnvsRemoved, Event, FindingAcknowledged, LogLine, Measured, RunFinished, Tallied
from overwatch.otlp import wire
from overwatch.otlp.value import Value, as_word

BY_SERVICE: Final = "service:"
BY_PROCESS: Final = "process:"
OF_A_TRAINER: Final = frozenset({Scope.RUN, Scope.POLICY, Scope.ENV, Scope.SLOT, *SERVICES})
"""Scopes whose values a run may begin with: others are of machines, and of Overwatch itself."""
NO_RUN: Final = f"names no run; set {wire.RUN_ID}, or {wire.SERVICE}, on its resource"

_UNKNOWN: Final = "unknown_service"
"""How OpenTelemetry's SDKs call a service without a name."""
_LONGEST: Final = wire.LONGEST_ID // 2 - len(BY_SERVICE)
_NO_BEGINNING: Final = (LogLine, FindingAcknowledged, RunFinished, EnvsRemoved)


def implied_id(attributes: Mapping[str, Value]) -> str | None:
    """The id of the run of a resource that names none; `None` where it has no name of any kind."""
    service, namespace = _word(attributes, wire.SERVICE), _word(attributes, wire.SERVICE_NAMESPACE)
    instance = _word(attributes, wire.INSTANCE)
    host, pid = _word(attributes, wire.HOST), _word(attributes, wire.PID)
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


def _word(attributes: Mapping[str, Value], name: str) -> str | None:
    word = as_word(attributes.get(name))
    return None if word is None else word[:_LONGEST]
