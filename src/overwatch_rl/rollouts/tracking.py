"""Where a handler's numbers go: an experiment tracker, grouped with its trainer's run.

Owns the hook and its form for Weights & Biases, which is imported only where it is used. Every handler of a
run begins with the group and the project that the trainer registered and a name of its own.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from overwatch.extras import WANDB


class Tracker(Protocol):
    """A run in an experiment tracker."""

    def start(self, project: str | None, group: str | None, name: str) -> None:
        """Begin a run of this name in the trainer's group."""
        ...

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers at a step of training."""
        ...

    def finish(self) -> None:
        """End the run."""
        ...


class NoTracker:
    """Keeps nothing."""

    def start(self, project: str | None, group: str | None, name: str) -> None:
        """Begin nothing."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Keep nothing."""

    def finish(self) -> None:
        """End nothing."""


class WandbTracker:
    """A run of Weights & Biases; with `WANDB_MODE=offline` it needs no network."""

    def __init__(self, **settings: Any) -> None:
        """`settings` are more arguments of `wandb.init`, e.g. `config` or `dir`."""
        try:
            import wandb
        except ImportError as error:
            raise ImportError(f"{WANDB.need}, or use another tracker") from error
        self._wandb = wandb
        self._settings = settings
        self._run: Any = None

    def start(self, project: str | None, group: str | None, name: str) -> None:
        """Begin a run of this name in the trainer's group."""
        self._run = self._wandb.init(project=project, group=group, name=name, **self._settings)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers at a step of training."""
        self._run.log({**values, "train_step": step})

    def finish(self) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None
