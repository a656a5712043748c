"""The reporter that writes a JSON line an update to standard output, for a program that reads them.

A line has `update` and every value under its short name, null where it is undefined, and `view`, rows of text
with what the first environment sees, in a world that has characters for it. The last line has `outcome`.
"""

import json
import math
from collections.abc import Mapping

import click

from overwatch_rl.sync_points import sync_point
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.types import ObservationSpec, Rolled


class Lines(Silent):
    """Lines on standard output, each flushed."""

    def __init__(self, spec: ObservationSpec) -> None:
        self._glyphs = spec.glyphs
        self._view: list[str] = []

    def rollout(self, rolled: Rolled) -> None:
        """Keep what the first environment sees."""
        if self._glyphs and not rolled.seen.is_meta:
            with sync_point("lines.seen"):
                codes: list[list[int]] = rolled.seen.tolist()
            self._view = ["".join(self._glyphs[code] for code in row) for row in codes]

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """One line."""
        written = {name: value if math.isfinite(value) else None for name, value in values.items()}
        click.echo(json.dumps({"update": index, **written, "view": self._view}))

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """How it ended."""
        click.echo(json.dumps({"outcome": outcome, "reason": reason}))
