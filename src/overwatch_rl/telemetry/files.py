"""The reporter that writes the trainer's own numbers into a folder.

`updates.jsonl` has one object an update with `update` and every value under its short name, null where it is
undefined; `summary.json` holds how the run ended. Must not know worlds or algorithms.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.types import Rolled


class Files(Silent):
    """A folder of one run."""

    def __init__(self, folder: Path) -> None:
        """Begin `updates.jsonl` in `folder`; raises `ValueError` when that cannot be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._updates = (folder / "updates.jsonl").open("w", encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"{folder} cannot be written: {error.strerror}; name another --out folder"
            ) from error
        self._folder = folder
        self._last: dict[str, object] | None = None
        self._steps = 0

    def rollout(self, rolled: Rolled) -> None:
        """Count steps."""
        self._steps = rolled.first_step + len(rolled.rewards) - 1

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """Write one line."""
        written = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._last = {"update": index, **written}
        self._updates.write(json.dumps(self._last) + "\n")
        self._updates.flush()

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Write the summary once."""
        if self._updates.closed:
            return
        self._updates.close()
        summary = {
            "outcome": outcome,
            "reason": reason,
            "updates": 0 if self._last is None else self._last["update"],
            "steps": self._steps,
            "last": self._last,
        }
        (self._folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
