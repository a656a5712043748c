"""Simulated runs for tests: their events, and recordings of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner, Result

from overwatch.catalog import Scope
from overwatch.cli import main
from overwatch.events import Event, Measured
from overwatch.simulate import Script, Settings

START = 1_800_000_000_000_000_000
T = TypeVar("T", bound=Event)


def reported(settings: Settings) -> list[Event]:
    """Every event of a run, in order."""
    return [event for moment in Script(settings, START).moments() for event in moment.events]


def of(events: list[Event], kind: type[T]) -> list[T]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def measured(events: list[Event], scope: Scope, name: str) -> Iterator[tuple[float, list[float]]]:
    """Second and values of one column of numbers, over time."""
    for event in of(events, Measured):
        if event.scope is scope and name in event.values:
            yield (event.at - START) / 1e9, event.values[name].array().tolist()


def overwatch(*words: str | Path) -> Result:
    """One command in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def record(out: Path, *words: str) -> Path:
    """A recording of a simulated run."""
    result = overwatch("simulate", "--out", out, *words)
    assert result.exit_code == 0, result.output
    return out
