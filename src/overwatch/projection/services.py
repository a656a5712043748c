"""Services beside a trainer: their gauges, what they count, and how each process is, in words with numbers.

Selects, adds up and formats; never judges: what is wrong is what is found. A part whose number was not
reported is left out of a line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, Kind, Metric, Scope, learner, of_scope, replay, services
from overwatch.catalog.durations import duration
from overwatch.catalog.tallies import SERVICES, is_tally
from overwatch.diagnose import Judged
from overwatch.diagnose.services import FRESH_S
from overwatch.events.adding import added
from overwatch.otlp.distribution import Distribution, Explicit
from overwatch.projection.policy import custom_reading, reading
from overwatch.projection.system import bound_view
from overwatch.projection.text import safe, safe_fields
from overwatch.snapshot import Reading, Sample, Tally, Total
from overwatch.snapshot import Service as ServiceView
from overwatch.state.run import RunState
from overwatch.state.services import Amount, Service
from overwatch.state.services import Tally as Counted
from overwatch.state.sources import holder_of

_ROWS: Final = {row.name: place for place, row in enumerate(chain.from_iterable(map(of_scope, SERVICES)))}


def gauges(state: RunState, tick: int) -> dict[str, Reading]:
    """What processes report of their services, by full name in catalogue order, then the custom ones.

    Of several that report one name the first, by role and rank, has the name; the others have `#role/rank`
    behind it.
    """
    found: dict[str, Reading] = {}
    reported = [(name, one) for one in state.services.processes.values() for name in one.gauges]
    for name, service in sorted(
        reported, key=lambda pair: (_ROWS.get(pair[0], len(_ROWS)), pair[0], pair[1].role, pair[1].rank)
    ):
        series, row = service.gauges[name], BY_NAME.get(name)
        shown = safe(name.removeprefix(CUSTOM_PREFIX))
        made = custom_reading(shown, series, tick) if row is None else reading(state, row, series, tick)
        key = shown if shown not in found else f"{shown}#{safe(service.role)}/{service.rank}"
        found[key] = msgspec.structs.replace(made, role=safe(service.role), rank=service.rank)
    return found


def tallies(state: RunState) -> tuple[Tally, ...]:
    """Everything that is counted, by name, process and labels."""
    found = [
        _tally(name, service, tally)
        for service in state.services.processes.values()
        for name, by_labels in service.tallies.items()
        for tally in by_labels.values()
    ]
    return tuple(sorted(found, key=lambda one: (one.name, one.role, one.rank, sorted(one.labels.items()))))


def _tally(name: str, service: Service, tally: Counted) -> Tally:
    whole = tally.whole()
    return Tally(
        name=_shown(name),
        role=safe(service.role),
        rank=service.rank,
        labels=safe_fields(tally.labels),
        is_custom=not _is_row(name, whole),
        total=whole.sum,
        count=whole.count,
        bounds=() if whole.buckets is None else whole.buckets.bounds,
        counts=() if whole.buckets is None else whole.buckets.counts,
        samples=() if whole.buckets is None else _samples(tally, len(whole.buckets.counts)),
    )


def _samples(tally: Counted, most: int) -> tuple[Sample, ...]:
    """Those that are within the buckets that are shown."""
    return tuple(
        Sample(
            bucket=one.bucket,
            value=one.value,
            at=one.at / 1e9,
            trace_id=safe(one.trace_id),
            span_id=safe(one.span_id),
        )
        for _, one in sorted(tally.samples.items())
        if one.bucket < most
    )


def _is_row(name: str, amount: Amount) -> bool:
    """Whether a row of the catalogue is counted like this."""
    row = BY_NAME.get(name)
    kind = Kind.COUNTER if amount.count is None else Kind.HISTOGRAM
    return row is not None and is_tally(row) and row.kind is kind


def _shown(name: str) -> str:
    return name if name in BY_NAME else safe(name.removeprefix(CUSTOM_PREFIX))


def totals(state: RunState) -> dict[str, Total]:
    """What is counted over all processes and labels, by name."""
    parts: dict[str, list[tuple[Service, Counted]]] = {}
    for service in state.services.processes.values():
        for name, by_labels in service.tallies.items():
            parts.setdefault(name, []).extend((service, tally) for tally in by_labels.values())
    return {_shown(name): _total(parts[name]) for name in sorted(parts)}


def _total(parts: list[tuple[Service, Counted]]) -> Total:
    whole = together(tally.whole() for _, tally in parts)
    news = [new for service, tally in parts if (new := tally.recent(service.at)) is not None]
    late = together(amount for amount, _ in news) if news else None
    spread = late if late is not None and late.count else None
    return Total(
        total=whole.sum,
        count=whole.count,
        rate=None if not news else added(amount.size / seconds for amount, seconds in news),
        p50=None if spread is None else quantile(spread, 0.5),
        p99=None if spread is None else quantile(spread, 0.99),
    )


def together(amounts: Iterable[Amount]) -> Amount:
    """All of at least one."""
    first, *others = amounts
    for one in others:
        first = first.plus(one)
    return first


def quantile(amount: Amount, which: float) -> float | None:
    """About the value that a share of a histogram's values does not exceed; at most its last bound."""
    held = amount.buckets
    if held is None or not held.bounds:
        return None
    shape = Explicit(bounds=held.bounds, counts=held.counts)
    low = min(0.0, held.bounds[0])
    return Distribution(count=sum(held.counts), low=low, shape=shape).quantile(which)


MOST: Final = 32
"""Processes that have a line."""
_ORDER: Final = ("critical", "warning", "silent", "ok")
_OTHERS: Final = 6
"""Gauges in the line of a service that has no words of its own."""


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
    age_s = max(0.0, (_now(state, judged) - service.stamp) / 1e9)
    parts, bound = words_of(scope, service, state), judged.beside.get(service.name)
    return ServiceView(
        name=safe(service.name),
        status=_status(service, judged, age_s),
        age_s=age_s,
        parts=tuple(safe(part) for part in parts),
        bound=None if bound is None else bound_view(bound),
    )


def _now(state: RunState, judged: Judged) -> int:
    """The tick; of a run that is over, its end: no process has to report after that."""
    key = None if state.finished is None else holder_of(state.sources)
    tick = judged.assessment.tick
    return tick if key is None else min(tick, state.sources[key].stamp)


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


def words_of(scope: Scope, service: Service, state: RunState) -> tuple[str, ...]:
    """The parts of a service's line."""
    return tuple(_WORDS.get(scope, _others)(service, state))


def _learner(service: Service, state: RunState) -> Iterator[str]:
    """`degraded`, `v 128 3s ago`, `queue 3/4`, `ckpt 6m ago`, `12 sgd/s`, `wait p50 0.4s`, ..."""
    for row, word in ((learner.DEGRADED, "degraded"), (learner.CHECKPOINT_STALLED, "ckpt stalled")):
        if service.value(row.name):
            yield word
    version, age_s = (service.value(row.name) for row in (learner.WEIGHTS_VERSION, learner.WEIGHTS_AGE))
    if version is not None:
        yield f"v {version:,.0f}" + ("" if age_s is None else f" {_span(age_s)} ago")
    depth, limit = (service.value(row.name) for row in (learner.QUEUE_DEPTH, learner.QUEUE_LIMIT))
    if depth is not None:
        yield f"queue {depth:.0f}" + ("" if limit is None else f"/{limit:.0f}")
    if state.checkpoint is not None:
        yield f"ckpt {_span(max(0.0, (state.last_at - state.checkpoint.at) / 1e9))} ago"
    yield from _paces(service, (learner.SGD_STEPS, "sgd"))
    wait = _late(service, learner.SAMPLE_LATENCY)
    if wait is not None:
        yield f"wait p50 {wait:.2g}s"
    age = _late(service, learner.DATA_AGE)
    if age is not None:
        yield f"age p50 {age:.0f}"
    yield from _counts(service, (learner.REDELIVERED, "redelivered"), (learner.ROLLBACKS, "rollbacks"))


def _actor(service: Service, _state: RunState) -> Iterator[str]:
    """`v 127 1 behind`, `weights 3s`, `820 steps/s`, `2 appends/s`."""
    version, behind = (service.value(row.name) for row in (learner.ACTOR_VERSION, learner.VERSIONS_BEHIND))
    if version is not None:
        yield f"v {version:,.0f}" + ("" if not behind else f" {behind:,.0f} behind")
    age_s = service.value(learner.ACTOR_AGE.name)
    if age_s is not None:
        yield f"weights {_span(age_s)}"
    yield from _paces(service, (learner.ACTOR_STEPS, "steps"), (learner.APPENDS, "appends"))


def _replay(service: Service, _state: RunState) -> Iterator[str]:
    """`512 items 65,536 steps`, `38 MiB`, `in 4/s`, `out 4/s`, `leases 2`, `refused 1/s`, ..."""
    items, steps = (service.value(row.name) for row in (replay.ITEMS, replay.STEPS))
    if items is not None:
        yield f"{items:,.0f} items" + ("" if steps is None else f" {steps:,.0f} steps")
    size = service.value(replay.BYTES.name)
    if size is not None:
        yield f"{size / 2**20:,.0f} MiB"
    for row, word in ((replay.INSERTED, "in"), (replay.SAMPLED, "out")):
        pace = service.recently(row.name)
        if pace is not None:
            yield f"{word} {pace:.2g}/s"
    leases = service.value(replay.LEASES.name)
    if leases:
        yield f"leases {leases:,.0f}"
    yield from _rates(service, (replay.REFUSED, "refused"), (replay.REDELIVERED, "redelivered"))


def _orchestrator(service: Service, state: RunState) -> Iterator[str]:
    """`paused 2m`, `heartbeat 4s ago`, `tune done 3m ago`."""
    if state.control is not None:
        yield f"{state.control.after} {_span(max(0.0, (state.last_at - state.control.at) / 1e9))}"
    age_s = service.value(replay.HEARTBEAT_AGE.name)
    if age_s is not None:
        yield f"heartbeat {_span(age_s)} ago"
    if state.command is not None:
        ago = _span(max(0.0, (state.last_at - state.command.at) / 1e9))
        yield f"{state.command.kind} {state.command.outcome} {ago} ago"


def _rollouts(service: Service, _state: RunState) -> Iterator[str]:
    """`38 groups 304 seq`, `wait p50 1.4s`, `age max 2`, `env 7/8 (1 silent 4m)`, `paused 2`, ..."""
    groups, sequences = (service.value(row.name) for row in (services.QUEUE_GROUPS, services.QUEUE_SEQUENCES))
    if groups is not None and sequences is not None:
        yield f"{groups:,.0f} groups {sequences:,.0f} seq"
    wait = _late(service, services.WAIT_TIME)
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
    yield from _rates(service, (services.REFUSED, "refused"), (services.REDELIVERED, "redelivered"))


def _rates(service: Service, *rows: tuple[Metric, str]) -> Iterator[str]:
    """`refused 1/s`, of what happens at all."""
    for row, word in rows:
        rate = service.recently(row.name)
        if rate:
            yield f"{word} {rate:.2g}/s"


def _envs(service: Service) -> Iterator[str]:
    known, silent = service.value(services.ENVS.name), service.value(services.ENVS_SILENT.name)
    if known is None or silent is None:
        return
    longest = service.value(services.ENV_SILENCE.name)
    since = "" if longest is None else f" {_span(longest)}"
    yield f"env {known - silent:,.0f}/{known:,.0f}" + (f" ({silent:,.0f} silent{since})" if silent else "")


def _late(service: Service, row: Metric) -> float | None:
    """About the middle of what a histogram saw of late, over all labels."""
    news = [tally.recent(service.at) for tally in service.tallies.get(row.name, {}).values()]
    known = [one[0] for one in news if one is not None and one[0].count]
    return quantile(together(known), 0.5) if known else None


def _paces(service: Service, *rows: tuple[Metric, str]) -> Iterator[str]:
    """`12 sgd/s`, where it is known."""
    for row, word in rows:
        pace = service.recently(row.name)
        if pace is not None:
            yield f"{pace:.3g} {word}/s"


def _counts(service: Service, *rows: tuple[Metric, str]) -> Iterator[str]:
    """`rollbacks 2`, of what was counted at all."""
    for row, word in rows:
        total = sum(tally.whole().size for tally in service.tallies.get(row.name, {}).values())
        if total:
            yield f"{word} {total:,.0f}"


def _span(seconds: float) -> str:
    return duration(min(seconds, 1e9), coarse=True)


def _others(service: Service, _state: RunState) -> Iterator[str]:
    """Its gauges by their labels."""
    rows = ((BY_NAME.get(name), series.value) for name, series in service.gauges.items())
    known = [(row, value) for row, value in rows if row is not None and value is not None]
    for row, value in known[:_OTHERS]:
        yield f"{row.label} {value:{row.fmt}}{row.suffix}"


_WORDS: Final[Mapping[Scope, Callable[[Service, RunState], Iterator[str]]]] = MappingProxyType(
    {
        Scope.LEARNER: _learner,
        Scope.ACTOR: _actor,
        Scope.REPLAY: _replay,
        Scope.ORCHESTRATOR: _orchestrator,
        Scope.ROLLOUTS: _rollouts,
    }
)
"""How a service reads that has words of its own."""
