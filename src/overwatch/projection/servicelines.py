"""Services of a run, a line each, worst first: how each is, in words with numbers.

Selects and formats; what is wrong is what is found. A part whose number was not reported is left out.
"""

from typing import Final

from overwatch.catalog import BY_NAME, Scope
from overwatch.catalog.tallies import SERVICES
from overwatch.diagnose import Judged
from overwatch.diagnose.services import FRESH_S
from overwatch.projection.servicewords import words_of
from overwatch.projection.system import bound_view
from overwatch.projection.text import safe
from overwatch.snapshot import Service as ServiceView
from overwatch.state.run import RunState
from overwatch.state.services import Service

MOST: Final = 32
"""Processes that have a line."""
_ORDER: Final = ("critical", "warning", "silent", "ok")


def service_lines(state: RunState, judged: Judged) -> tuple[ServiceView, ...]:
    """The line of each process that reports numbers of a service."""
    found = [
        _line(state, service, scope, judged)
        for service in state.services.processes.values()
        if (scope := _scope(service)) is not None
    ]
    return tuple(sorted(found, key=lambda line: (_ORDER.index(line.status), line.name))[:MOST])


def _scope(service: Service) -> Scope | None:
    """The service that a process is: by the rows that it reports."""
    rows = (BY_NAME.get(name) for name in (*service.gauges, *service.tallies))
    return next((row.scope for row in rows if row is not None and row.scope in SERVICES), None)


def _line(state: RunState, service: Service, scope: Scope, judged: Judged) -> ServiceView:
    age_s = max(0.0, (judged.assessment.tick - service.stamp) / 1e9)
    parts, bound = words_of(scope, service, state), judged.beside.get(service.name)
    return ServiceView(
        name=safe(service.name),
        status=_status(service, judged, age_s),
        age_s=age_s,
        parts=tuple(safe(part) for part in parts),
        bound=None if bound is None else bound_view(bound),
    )


def _status(service: Service, judged: Judged, age_s: float) -> str:
    """The worst that is found wrong with it."""
    wrong = {
        one.problem.severity
        for one in judged.assessment.findings.values()
        if one.cleared_at is None and (one.problem.scope, one.problem.subject) == ("service", service.name)
    }
    if age_s > FRESH_S:
        return "silent"
    return next((word for word in _ORDER if word in wrong), "ok")
