"""Services beside a trainer: their gauges process by process, what they count, and over all processes.

Selects, adds up and formats; never judges.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, Kind, of_scope
from overwatch.catalog.tallies import SERVICES, is_tally
from overwatch.events.adding import added
from overwatch.otlp.distribution import Distribution, Explicit
from overwatch.projection.policy import custom_reading, reading
from overwatch.projection.text import safe
from overwatch.snapshot import Reading, Sample, Tally, Total
from overwatch.state.run import RunState
from overwatch.state.services import Amount, Service
from overwatch.state.services import Tally as Counted

_ROWS: Final = {row.name: place for place, row in enumerate(chain.from_iterable(map(of_scope, SERVICES)))}


def gauges(state: RunState, tick: int) -> dict[str, Reading]:
    """What processes report of their services, by full name in catalogue order, then the custom ones.

    Of several that report one name the first, by role and rank, has the name; the others have `#role/rank`
    behind it.
    """
    found: dict[str, Reading] = {}
    for name, service in sorted(_gauges(state), key=lambda pair: _order(*pair)):
        series, row = service.gauges[name], BY_NAME.get(name)
        shown = safe(name.removeprefix(CUSTOM_PREFIX))
        made = custom_reading(shown, series, tick) if row is None else reading(state, row, series, tick)
        key = shown if shown not in found else f"{shown}#{safe(service.role)}/{service.rank}"
        found[key] = msgspec.structs.replace(made, role=safe(service.role), rank=service.rank)
    return found


def _gauges(state: RunState) -> Iterator[tuple[str, Service]]:
    for service in state.services.processes.values():
        for name in service.gauges:
            yield name, service


def _order(name: str, service: Service) -> tuple[int, str, str, int]:
    return _ROWS.get(name, len(_ROWS)), name, service.role, service.rank


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
        labels={safe(key): safe(word) for key, word in tally.labels.items()},
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
