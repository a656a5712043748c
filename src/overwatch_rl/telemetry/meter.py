"""What a service counts: into its run of the tower, where it has one. Must not know what the numbers mean."""

from overwatch.sdk import Run


class Meter:
    """Counters, histograms and gauges of a process; without a run nothing is sent."""

    def __init__(self, run: Run | None = None) -> None:
        self.run = run

    def count(self, name: str, n: float = 1, **labels: object) -> None:
        """Add to a counter."""
        if self.run is not None:
            self.run.count(name, n, **labels)

    def observe(self, name: str, value: float, **labels: object) -> None:
        """Add a value to a histogram."""
        if self.run is not None:
            self.run.observe(name, value, **labels)

    def gauge(self, **values: float) -> None:
        """How things stand."""
        if self.run is not None:
            self.run.gauge(**values)
