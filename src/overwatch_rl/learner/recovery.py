"""What a learner does when its numbers are not finite: as `algorithms.recovery` decides, applied to a loop.

Rules: each remedy is an event and counted; the learning rate is cut from what was configured or tuned last.
Must not know how checkpoints are found.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol, assert_never

from overwatch.events import Event, Severity, TrainingRecovered
from overwatch_rl.algorithms.recovery import (
    Abort,
    Continue,
    Cut,
    Recovery,
    RecoveryConfig,
    RollBack,
    judge,
    resumed,
)
from overwatch_rl.training.trainer import Position


class GaveUpError(RuntimeError):
    """The numbers stayed broken whatever was done."""


class Recoverable(Protocol):
    """A loop, as far as its recovery goes."""

    updates_done: int

    @property
    def algorithm(self) -> Any:
        """What has a learning rate."""
        ...

    def roll_back(self, position: Position) -> None:
        """Become as it was."""
        ...

    def log(self, severity: Severity, message: str) -> None:
        """A line of the run's log."""
        ...

    def fact(self, event: Event) -> None:
        """What happened."""
        ...


class NonFiniteHandler:
    """Judges each update's numbers, and does what follows."""

    def __init__(self, config: RecoveryConfig, loop: Recoverable) -> None:
        self._config = config
        self._loop = loop
        self._state = Recovery()
        self.rate: float | None = None
        """The configured learning rate; `None` where the algorithm has none to set."""
        self.newest: Callable[[int], Position | None] = lambda _before: None
        """The newest checkpoint from before an update."""
        self.counted: Callable[[str], object] = lambda _name: None
        """Given the row of each remedy."""

    @property
    def scale(self) -> float:
        """The learning rate as a share of the configured one."""
        return self._state.scale

    def kept(self) -> dict[str, float]:
        """For a checkpoint."""
        state = asdict(self._state)
        del state["judged"]
        return state

    def resume(self, kept: Mapping[str, Any], updates: int) -> None:
        """Go on as a checkpoint was."""
        self._state = Recovery(**kept, judged=updates)

    def tune(self, rate: float) -> None:
        """The configured rate is another one: what was cut is forgotten."""
        self.rate = rate
        self._state = Recovery(judged=self._state.judged)

    def judge(self, update: int, not_finite: int) -> None:
        """Do what follows from the numbers of an update. Raises `GaveUpError`."""
        scale_before = self.scale
        self._state, remedy = judge(self._state, self._config, update=update, not_finite=not_finite)
        match remedy:
            case Continue():
                return
            case Cut(scale=scale):
                self._cut(update, scale_before, scale)
            case RollBack(before=before, scale=scale):
                self._roll_back(before, scale)
            case Abort(reason=reason):
                raise GaveUpError(reason)
            case _:
                assert_never(remedy)

    def _cut(self, update: int, before: float, scale: float) -> None:
        self._set(scale)
        rate = 1.0 if self.rate is None else self.rate
        self._did("learning_rate_cut", update, (before * rate, scale * rate), "gradients were not finite")
        self.counted("learning_rate_cuts")
        self._loop.log(
            Severity.WARNING,
            f"gradients of update {update} were not finite and are skipped; "
            f"the learning rate is {scale:g} of its value from update {self._loop.updates_done + 1} on",
        )

    def _roll_back(self, before: int, scale: float) -> None:
        position = self.newest(before)
        now = self._loop.updates_done
        if position is None:
            self._set(scale)
            why = f"no checkpoint from before update {before} to go back to"
            self._loop.log(Severity.CRITICAL, f"{why}; training goes on")
            return
        self._loop.roll_back(position)
        self._set(scale)
        self._state = resumed(self._state, update=now)
        self.counted("rollbacks")
        self._did("rollback", before, (now, position.updates), "gradients stayed not finite")
        self._loop.log(
            Severity.CRITICAL,
            f"gradients were not finite from update {before} on; after update {now} the weights are "
            f"those of update {position.updates}, and the learning rate {scale:g} of its value",
        )

    def _did(self, action: str, cause: int, span: tuple[float, float], reason: str) -> None:
        """Report a remedy, with what was before it and after."""
        before, after = span
        self._loop.fact(
            TrainingRecovered(
                at=time.time_ns(),
                action=action,
                update=self._loop.updates_done,
                cause=cause,
                before=before,
                after=after,
                reason=reason,
            )
        )

    def _set(self, scale: float) -> None:
        if self.rate is not None:
            self._loop.algorithm.set_learning_rate(self.rate * scale)
