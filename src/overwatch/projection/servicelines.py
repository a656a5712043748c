"""Services of a run, a line each, worst first: how each is, in words with numbers.

Selects and formats; what is wrong is what is found. A part whose number was not reported is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from overwatch.catalog import BY_NAME, Scope, services
from overwatch.catalog.durations import duration
from overwatch.catalog.tallies import SERVICES
from overwatch.diagnose import Judged
from overwatch.diagnose.services import FRESH_S
from overwatch.projection.services import quantile, together
from overwatch.projection.text import safe
from overwatch.snapshot import Service as ServiceView
from overwatch.state.run import RunState
from overwatch.state.services import Service

MOST: Final = 32
"""Processes that have a line."""
_ORDER: Final = ("critical", "warning", "silent", "ok")
_OTHERS: Final = 6
"""Gauges in the line of a service that has no words of its own."""


def service_lines(state: RunState, judged: Judged) -> tuple[ServiceView, ...]:
    """The line of each process that reports numbers of a service."""
    tick = judged.assessment.tick
    found = [
        _line(service, scope, judged, tick)
        for service in state.services.processes.values()
        if (scope := _scope(service)) is not None
    ]
    return tuple(sorted(found, key=lambda line: (_ORDER.index(line.status), line.name))[:MOST])


def _scope(service: Service) -> Scope | None:
    """The service that a process is: by the rows that it reports."""
    rows = (BY_NAME.get(name) for name in (*service.gauges, *service.tallies))
    return next((row.scope for row in rows if row is not None and row.scope in SERVICES), None)


def _line(service: Service, scope: Scope, judged: Judged, tick: int) -> ServiceView:
    age_s = max(0.0, (tick - service.stamp) / 1e9)
    parts = _WORDS.get(scope, _others)(service)
    return ServiceView(
        name=safe(service.name),
        status=_status(service, judged, age_s),
        age_s=age_s,
        parts=tuple(safe(part) for part in parts),
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


def _rollouts(service: Service) -> Iterator[str]:
    """`38 groups 304 seq`, `wait p50 1.4s`, `age max 2`, `env 7/8 (1 silent 4m)`, `paused 2`, ..."""
    groups, sequences = (service.value(row.name) for row in (services.QUEUE_GROUPS, services.QUEUE_SEQUENCES))
    if groups is not None and sequences is not None:
        yield f"{groups:,.0f} groups {sequences:,.0f} seq"
    wait = _late(service, services.WAIT_TIME.name)
    if wait is not None:
        yield f"wait p50 {duration(wait) if wait >= 60 else f'{wait:.1f}s'}"
    age = service.value(services.DATA_AGE.name)
    if age is not None and sequences:
        yield f"age max {age:,.0f}"
    yield from _envs(service)
    for row, word in ((services.ENVS_PAUSED, "paused"), (services.LEASES, "leases")):
        count = service.value(row.name)
        if count:
            yield f"{word} {count:,.0f}"
    for row, word in ((services.REFUSED, "refused"), (services.REDELIVERED, "redelivered")):
        rate = service.recently(row.name)
        if rate:
            yield f"{word} {rate:.2g}/s"


def _envs(service: Service) -> Iterator[str]:
    known, silent = service.value(services.ENVS.name), service.value(services.ENVS_SILENT.name)
    if known is None or silent is None:
        return
    longest = service.value(services.ENV_SILENCE.name)
    since = "" if longest is None else f" {duration(min(longest, 1e9), coarse=True)}"
    yield f"env {known - silent:,.0f}/{known:,.0f}" + (f" ({silent:,.0f} silent{since})" if silent else "")


def _late(service: Service, name: str) -> float | None:
    """About the middle of what a histogram saw of late, over all labels."""
    news = [tally.recent(service.at) for tally in service.tallies.get(name, {}).values()]
    known = [one[0] for one in news if one is not None and one[0].count]
    return quantile(together(known), 0.5) if known else None


def _others(service: Service) -> Iterator[str]:
    """Its gauges by their labels."""
    rows = ((BY_NAME.get(name), series.value) for name, series in service.gauges.items())
    known = [(row, value) for row, value in rows if row is not None and value is not None]
    for row, value in known[:_OTHERS]:
        yield f"{row.label} {value:{row.fmt}}{row.suffix}"


_WORDS: Final[Mapping[Scope, Callable[[Service], Iterator[str]]]] = MappingProxyType(
    {Scope.ROLLOUTS: _rollouts}
)
"""How a service reads that has words of its own."""
