"""The reporter that prints a line an update."""

from collections.abc import Mapping
from typing import Final

import click

from overwatch.events import EarlyStopped, Event, LogLine, Severity
from overwatch_rl.telemetry.reporter import Silent

_PARTS: Final = (
    ("return", "return", "+.3f"),
    ("food_share", "food", ".0%"),
    ("kl_divergence", "KL", ".4f"),
    ("entropy", "entropy", ".0%"),
    ("explained_variance", "expl var", "+.2f"),
    ("update_time", "", ".2f"),
)
"""Name, label and form of the numbers of a line."""


def line_of(values: Mapping[str, float | None], of: str = "") -> str:
    """One update as a line; `values` has its number as `update`, and what it does not have is left out."""
    parts = [
        f"{label} {value:{form}}".strip()
        for name, label, form in _PARTS
        if (value := values.get(name)) is not None
    ]
    return "  ".join([f"update {round(values['update'] or 0)}{of}", *parts]) + " s"


class Screen(Silent):
    """Lines on standard output."""

    def __init__(self, updates: int | None) -> None:
        self._of = "" if updates is None else f"/{updates}"

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """One line."""
        click.echo(line_of({"update": index, **values}, self._of))

    def fact(self, event: Event) -> None:
        """An early stop, or a warning of the log."""
        if isinstance(event, LogLine) and event.severity in (Severity.WARNING, Severity.CRITICAL):
            click.echo(f"  {event.message}")
        if isinstance(event, EarlyStopped):
            click.echo(
                f"  update {event.update} stopped after epoch {event.epoch}: KL {event.kl_divergence:.4f}"
            )

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """How it ended."""
        click.echo(f"run {outcome}" + (f": {reason}" if reason else ""))
