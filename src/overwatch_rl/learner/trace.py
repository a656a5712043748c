"""Which steps are in the weights: a line of JSON for each update and for each life of a learner.

A life begins with a line that states after how many updates it goes on; updates above that, of lines before,
are not in its weights. For audits and tests. Must not know how experience is learned from.
"""

from pathlib import Path
from typing import Any, Self

import msgspec

from overwatch_rl.learner.batches import TrainingBatch


class Began(msgspec.Struct, frozen=True, tag_field="kind", tag="began"):
    """A life, or a rollback within one."""

    updates: int
    """That its weights have had."""
    version: str


class Trained(msgspec.Struct, frozen=True, tag_field="kind", tag="trained"):
    """An update."""

    updates: int
    """That the weights have had with it."""
    parts: list[tuple[str, int, int, int]]
    """Of each part of a chunk: environment, episode, its first step, steps."""


class Trace:
    """A file that lines are added to."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab")

    def began(self, updates: int, version: object) -> None:
        """Training goes on with weights that have had so many updates."""
        self._add(Began(updates, str(version)))

    def trained(self, updates: int, made: TrainingBatch) -> None:
        """The weights have had one more."""
        parts = [part for lane in made.lanes for part in lane]
        lines = [(one.chunk.env, one.chunk.episode, one.first_step, one.steps) for one in parts]
        self._add(Trained(updates, lines))

    def close(self) -> None:
        """End it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, line: Any) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
