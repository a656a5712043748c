"""Lines of a service's log: for a person on a terminal, JSON for a program elsewhere."""

import sys

import click

from overwatch.events import Event, LogLine, Severity
from overwatch_rl.telemetry.log import FlightLog, flight_logger
from overwatch_rl.telemetry.screen import Screen
from overwatch_rl.telemetry.tower import Tower
from overwatch_rl.types import Reporter


class Lines(Screen):
    """Lines for a person, those of the log too."""

    def fact(self, event: Event) -> None:
        """A line of the log."""
        super().fact(event)
        if isinstance(event, LogLine) and event.severity not in (Severity.WARNING, Severity.CRITICAL):
            click.echo(f"  {event.message}")


def is_text(log: str) -> bool:
    """Whether lines are for a person; `log` is `text`, `json`, or `auto`: text on a terminal."""
    return log == "text" or (log == "auto" and sys.stdout.isatty())


def log_of(
    log: str, run_id: str, digest: str, tower: Tower | None, updates: int | None = None, **bound: object
) -> Reporter:
    """The reporter that prints; `bound` is on each line of JSON."""
    if is_text(log):
        return Lines(updates)
    logger = flight_logger(sys.stdout, run_id=run_id, config=digest, **bound)
    return FlightLog(logger, "cpu", lambda: "" if tower is None else tower.traceparent())
