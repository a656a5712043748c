"""What a service counts: into its run of the tower, where it has one. Must not know what the numbers mean."""

from collections.abc import Iterator
from contextlib import contextmanager

from overwatch.sdk import Run
from overwatch.sdk.tracing import Span


class Meter:
    """Counters, histograms and gauges of a process; without a run nothing is sent."""

    def __init__(self, run: Run | None = None) -> None:
        self.run = run

    def count(self, name: str, n: float = 1, **labels: object) -> None:
        """Add to a counter."""
        if self.run is not None:
            self.run.count(name, n, **labels)

    def observe(self, name: str, value: float, span: Span | None = None, **labels: object) -> None:
        """Add a value to a histogram, observed in a span."""
        if self.run is not None:
            self.run.observe(name, value, span=span, **labels)

    @contextmanager
    def span(self, name: str) -> Iterator[Span | None]:
        """Measure a piece of work, as part of the turn of the loop that runs now."""
        if self.run is None:
            yield None
            return
        with self.run.span(name, self.run.traceparent) as span:
            yield span

    def gauge(self, **values: float) -> None:
        """How things stand."""
        if self.run is not None:
            self.run.gauge(**values)
