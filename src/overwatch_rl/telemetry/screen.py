"""The reporter that prints a line an update."""

from collections.abc import Mapping

import click

from overwatch.events import EarlyStopped, Event
from overwatch_rl.telemetry.reporter import Silent


class Screen(Silent):
    """Lines on standard output."""

    def __init__(self, updates: int | None) -> None:
        self._of = "" if updates is None else f"/{updates}"

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """One line."""
        click.echo(
            f"update {index}{self._of}  return {values['return']:+.3f}  "
            f"KL {values['kl_divergence']:.4f}  entropy {values['entropy']:.0%}  "
            f"expl var {values['explained_variance']:+.2f}  {values['update_time']:.2f} s"
        )

    def fact(self, event: Event) -> None:
        """An early stop."""
        if isinstance(event, EarlyStopped):
            click.echo(
                f"  update {event.update} stopped after epoch {event.epoch}: KL {event.kl_divergence:.4f}"
            )

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """How it ended."""
        click.echo(f"run {outcome}" + (f": {reason}" if reason else ""))
