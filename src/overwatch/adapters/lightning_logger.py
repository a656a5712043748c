"""Lightning's logger that reports what a module logs; `overwatch.adapters.lightning` has it too.

Rules: it works alone, beside the callback, and with Fabric. Names are a module's own: custom numbers, but
where `algo` is given, or a run, they are read as those of `run.update`. Rank 0 alone reports. A run of its
own ends when Lightning finalises its loggers.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.numbers import numbers
from overwatch.catalog import CUSTOM_PREFIX, Library

NAME: Final = "overwatch"


class OverwatchLogger(Logger, Bordered):  # type: ignore[misc]  # the library has no types
    """Reports to `run`, or to a run of its own, which begins with `settings` of `overwatch.sdk.start`."""

    def __init__(self, run: sdk.Run | None = None, save_dir: str | None = None, **settings: Any) -> None:
        super().__init__()
        self._given, self.settings = run, settings
        self._run: sdk.Run | None = None
        self._folder = save_dir
        self._version = time.strftime("%m%d-%H%M%S")

    @property
    def name(self) -> str:
        """The folder of this logger's checkpoints, where it is the only one."""
        return NAME

    @property
    def version(self) -> str:
        """When it was made."""
        return self._version

    @property
    def save_dir(self) -> str | None:
        """Where Lightning keeps checkpoints of a trainer that has no other logger."""
        return self._folder

    @property
    def run(self) -> sdk.Run:
        """The run that is reported to; it begins here at the latest."""
        if self._run is None:
            self._run = self._given or sdk.start(**self.settings)
        return self._run

    @property
    def is_of_rewards(self) -> bool:
        """Whether what is watched learns from rewards, as far as it was declared."""
        return self._given is not None or "algo" in self.settings

    @kept_out
    def log_hyperparams(self, /, params: object, *_: object, **__: object) -> None:
        """What the run's configuration is, if it has not begun."""
        self.settings.setdefault("config", params)

    @kept_out
    def log_graph(self, model: object, *_: object) -> None:
        """Training, or a test, begins with this module."""
        self.settings.setdefault("task", type(model).__name__)
        if rank_zero_only.rank == 0:
            self.run  # noqa: B018 it begins

    @kept_out
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """What a module logs, of one step or as an epoch's mean."""
        if rank_zero_only.rank == 0:
            found = numbers(metrics, Library.LIGHTNING)
            if self.is_of_rewards:
                found = {name.removeprefix(CUSTOM_PREFIX): value for name, value in found.items()}
            self.run.update(update=step, **found)

    @kept_out
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """A checkpoint is on disk."""
        newest = getattr(checkpoint_callback, "_last_checkpoint_saved", None)
        path = newest or checkpoint_callback.best_model_path
        if path and rank_zero_only.rank == 0:
            self.run.checkpoint_saved(path)

    @kept_out
    def finalize(self, status: str) -> None:
        """The end: of an exception that is being handled, where there is one."""
        run, self._run = self._run, None
        if run is None or run is self._given:
            return
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit):  # Lightning's own for SIGTERM, between two batches
            run.close(outcome="interrupted", reason=type(error).__name__)
        else:
            run.close(outcome="failed" if error is None and status != "success" else None)
