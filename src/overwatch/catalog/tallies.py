"""Counters and histograms with labels: which rows are tallies, which labels they take, and their limits.

Pure. Must not know events or who counts.
"""

from collections.abc import Mapping
from typing import Final

from overwatch.catalog.metric import Kind, Metric, Scope

SERVICES: Final = (Scope.LEARNER, Scope.ACTOR, Scope.REPLAY, Scope.ORCHESTRATOR, Scope.ROLLOUTS)
"""Scopes of services beside a trainer: each process of them is shown by its role and rank."""
SCOPE_OF_ROLE: Final = {scope.value: scope for scope in SERVICES}
"""Where the short names of a producer's rows are looked up, by its role."""
OTHER: Final = "other"
"""The value of every label of what is beyond a row's number of label sets."""
MAX_SERIES: Final = 64
"""Label sets of one name of one producer, unless its row allows more."""
MAX_NAMES: Final = 64
"""Custom names of one producer."""
MAX_LABEL: Final = 64
"""Characters of a label's value."""
MAX_LABELS: Final = 8
"""Labels of a custom name."""
TAKEN_LABELS: Final = frozenset({"le", "quantile", "role", "rank", "name", "rl_run_id", "job", "instance"})
"""Labels that the page of `/metrics` sets itself."""
DEFAULT_BUCKETS: Final = tuple(float(f"{step}e{power}") for power in range(-3, 5) for step in (1, 3))
"""Upper ends of a histogram that no row describes: 0.001, 0.003, 0.01, ... 30,000."""


def is_tally(row: Metric) -> bool:
    """Whether a row's values are counted with labels, process by process."""
    return row.scope in SERVICES and row.kind in (Kind.COUNTER, Kind.HISTOGRAM)


def buckets_of(row: Metric | None) -> tuple[float, ...]:
    """Upper ends of a histogram."""
    return DEFAULT_BUCKETS if row is None or not row.buckets else row.buckets


def most_series(row: Metric | None) -> int:
    """How many label sets a name may have before the others are one."""
    return MAX_SERIES if row is None else row.max_series


def meant_labels(row: Metric, labels: Mapping[str, object]) -> dict[str, str]:
    """Those of some attributes that are the row's labels, in its order; text of what is there."""
    return {name: str(labels[name])[:MAX_LABEL] for name in row.labels if labels.get(name) is not None}
