"""Counters of the collector itself, under the names that otelcol's dashboards and alerts know.

Rules: known series start at 0; counting never waits for a reader, and fails at once for a name that no page
could explain. Must not know what is counted.
"""

import threading
from collections.abc import Mapping
from typing import Final

from overwatch.serve.metrics_text import FamilyBuilder

_ITEMS: Final = {"log_records": "log records", "metric_points": "metric points", "spans": "spans"}

REMOVED_RUNS: Final = "overwatch_archive_removed_runs"

HELP: Final[Mapping[str, str]] = {
    **{
        f"otelcol_receiver_{verb}_{items}": f"How many {words} did a receiver {stated}?"
        for items, words in _ITEMS.items()
        for verb, stated in (("accepted", "take in"), ("refused", "turn away"))
    },
    **{
        f"otelcol_exporter_{verb}_{items}": f"How many {words} {stated}?"
        for items, words in _ITEMS.items()
        for verb, stated in (
            ("sent", "did an exporter deliver"),
            ("send_failed", "could an exporter not deliver"),
        )
    },
    "overwatch_receiver_rejected_items": "How many items of accepted requests could not be used?",
    "overwatch_receiver_refused_requests": "How many requests were turned away, by reason?",
    "overwatch_listener_refused_requests": "How many requests did a listener not let in, by what decided?",
    "overwatch_exporter_faults": "How many errors of its own did an exporter meet and outlive?",
    "overwatch_exporter_written_lines": "How many lines did a file exporter write?",
    "overwatch_exporter_lost_lines": "How many lines could a file exporter not write?",
    "overwatch_exporter_sent_notices": "How many messages did a notifier (webhook, command) deliver?",
    "overwatch_exporter_lost_notices": "How many messages were refused, or about what was over before?",
    REMOVED_RUNS: "How many last pictures of runs were removed from the archive, by reason?",
}


LEVELS: Final[Mapping[str, str]] = {
    "overwatch_recording_bytes": "How many bytes does the recording have on disk?",
    "overwatch_recording_budget_bytes": "How many bytes may the recording have?",
    "overwatch_recording_pieces": "Of how many pieces is the recording, besides the files written to?",
    "overwatch_recording_run_bytes": "How many bytes of the recording are of a run?",
    "overwatch_recording_run_budget_bytes": "How many bytes of the recording may be of one run?",
    "overwatch_recording_gone_records": "How many records of a run left the recording to make room?",
}


class Tally:
    """Monotonic counters and levels by name and labels; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._levels: dict[tuple[str, str], tuple[str, dict[str, float]]] = {}
        """By name and exporter."""
        self._counts: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Count; an amount of 0 makes the series known. Raises `KeyError` for a name without a `HELP`."""
        if name not in HELP:
            raise KeyError(f"{name} has no help text; add it to HELP")
        key = tuple(sorted(labels.items()))
        with self._lock:
            series = self._counts.setdefault(name, {})
            series[key] = series.get(key, 0) + amount

    def get(self, name: str, **labels: str) -> float:
        """The value of one series, 0 where it was never counted."""
        with self._lock:
            return self._counts.get(name, {}).get(tuple(sorted(labels.items())), 0)

    def show(self, name: str, value: float, *, exporter: str) -> None:
        """Set an exporter's level. `name` is a key of `LEVELS`."""
        with self._lock:
            self._levels[name, exporter] = ("", {"": value})

    def show_each(self, name: str, label: str, values: Mapping[str, float], *, exporter: str) -> None:
        """Set all series of an exporter's level, by the value of one label; others of it are forgotten."""
        with self._lock:
            self._levels[name, exporter] = (label, dict(values))

    def write(self, page: FamilyBuilder) -> None:
        """Add all counters and all levels to a page."""
        with self._lock:
            counts = [(name, key, n) for name, series in self._counts.items() for key, n in series.items()]
            levels = list(self._levels.items())
        for name, key, count in sorted(counts):
            page.counter(name, HELP[name], dict(key), count)
        for (name, exporter), (label, values) in sorted(levels):
            for word, value in sorted(values.items()):
                labels = {"exporter": exporter} | ({label: word} if label else {})
                page.gauge(name, LEVELS[name], labels, value)
