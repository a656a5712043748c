"""Services on the Prometheus page: gauges and what is counted, each with the role and rank of its process.

Rules: names and labels are those of the catalogue; what no row knows is in a family for all such, by `name`.
No two samples have the same labels. Must not know HTTP.
"""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

from overwatch.catalog import BY_NAME, Kind, Metric, Scope, find, label_name, prometheus_name
from overwatch.catalog.tallies import TAKEN_LABELS
from overwatch.serve.metrics_text import Buckets, FamilyBuilder, exemplar_text, labels_text
from overwatch.snapshot import Reading, Tally

_COUNTED: Final = "What did this process count here?"
_HISTOGRAM: Final = Metric(
    name="overwatch.service.custom.values",
    short="custom_values",
    kind=Kind.HISTOGRAM,
    unit="{value}",
    scope=Scope.RUN,
    asks="Which values did this process observe here?",
    label="values",
)


def write_gauges(builder: FamilyBuilder, labels: str, readings: Mapping[str, Reading]) -> None:
    """Add what processes report."""
    for key, reading in readings.items():
        name = key.partition("#")[0]
        row = BY_NAME.get(name)
        who = f"{labels},{labels_text({'role': reading.role or '', 'rank': str(reading.rank or 0)})}"
        if row is not None:
            builder.row(row, who, reading.value)
        else:
            asks = "What did this process report here?"
            builder.gauge(
                "overwatch_service_custom", asks, f"{who},{labels_text({'name': name})}", reading.value
            )


def write_tallies(builder: FamilyBuilder, labels: str, tallies: Iterable[Tally]) -> None:
    """Add what processes count."""
    written = set[str]()
    for one in tallies:
        row = None if one.is_custom else find(one.name)
        words = {"role": one.role, "rank": str(one.rank)} | ({} if row else {"name": one.name})
        text = f"{labels},{labels_text(words | _own(one.labels))}"
        key = f"{one.name if row else one.count is None} {text}"
        if key not in written:
            written.add(key)
            _write(builder, row, text, one)


def _own(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels by names that Prometheus takes; those of the page itself keep their meaning."""
    names = {name: label_name(name) for name in labels}
    return {f"label_{to}" if to in TAKEN_LABELS else to: labels[name] for name, to in names.items()}


def _write(builder: FamilyBuilder, row: Metric | None, labels: str, one: Tally) -> None:
    if one.count is not None:
        ends = (*map(str, one.bounds), "+Inf")
        counts = one.counts or (one.count,)
        cumulated = dict(zip(ends, accumulate(counts), strict=True))
        exemplars = {}
        for sample in one.samples:
            span = {"trace_id": sample.trace_id, "span_id": sample.span_id}
            text = exemplar_text(span, sample.value, sample.at)
            if text is not None:
                exemplars[sample.bucket] = text
        held = Buckets(cumulated=cumulated, total=one.total, exemplars=exemplars)
        builder.histogram(row or _HISTOGRAM, labels, held)
    elif one.total is not None:
        name = "overwatch_service_counted" if row is None else prometheus_name(row).removesuffix("_total")
        builder.counter(name, _COUNTED if row is None else row.asks, labels, one.total)
