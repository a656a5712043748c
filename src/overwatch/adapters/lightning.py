"""Lightning: a callback that reports steps, phases, the end of a fit, and what its module logs.

    from overwatch.adapters.lightning import OverwatchCallback
    trainer = Trainer(callbacks=[OverwatchCallback()])

Rules: a fit is a run. What is logged goes through the `OverwatchLogger` among the trainer's, or through one
that is lent for the fit. An update is a batch that stepped, with Lightning's number; each rank reports its
own time and phases. A learning rate is reported where all optimisers have the same one.
"""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.lightning_logger import OverwatchLogger
from overwatch.adapters.loops import Phases

__all__ = ["OverwatchCallback", "OverwatchLogger"]


class OverwatchCallback(Callback, Bordered):  # type: ignore[misc]  # the library has no types
    """Reports the steps of each fit, to the trainer's `OverwatchLogger` or as `settings` describe a run."""

    def __init__(self, run: sdk.Run | None = None, **settings: Any) -> None:
        self._given, self._settings = run, settings
        self._phases: Phases | None = None
        self._rates: set[Any] = set()

    @kept_out
    def on_fit_start(self, trainer: Trainer, _: LightningModule) -> None:
        """Checkpoints have their folder by now, so that one logger more does not move it."""
        theirs = next((one for one in trainer.loggers if isinstance(one, OverwatchLogger)), None)
        self._logger = theirs or OverwatchLogger(self._given, trainer.default_root_dir, **self._settings)
        self._logger.settings.setdefault("devices", [str(trainer.strategy.root_device)])
        if theirs is None:
            trainer.loggers = [*trainer.loggers, self._logger]
        self._is_lent = theirs is None

    @kept_out
    def on_train_start(self, *_: object) -> None:
        """The loop begins."""
        self._phases = Phases(self._logger.run)

    @kept_out
    def on_train_epoch_start(self, *_: object) -> None:
        """The first batch of an epoch is waited for."""
        self._wait()

    @kept_out
    def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
        """A batch is there; the rates of its step are those that optimisers have now."""
        self._rates = {group["lr"] for one in trainer.optimizers for group in one.param_groups}
        if self._phases is not None:
            self._phases.switch("update")

    @kept_out
    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """A step was taken; what is logged of it follows."""
        if self._phases is not None:
            step = trainer.fit_loop.epoch_loop._batches_that_stepped  # noqa: SLF001 the number that loggers get
            numbers = {"update_time": time.perf_counter() - self._turn}
            rate = self._rates.pop() if len(self._rates) == 1 else None
            if isinstance(rate, float | int):  # a tensor may be on a device, which no callback waits for
                numbers["learning_rate"] = rate
            self._logger.run.update(update=step, **numbers)
        self._wait()

    @kept_out
    def on_validation_start(self, *_: object) -> None:
        """A pause of the loop."""
        if self._phases is not None:
            self._phases.switch("evaluation")

    @kept_out
    def on_validation_end(self, *_: object) -> None:
        """The loop goes on."""
        self._wait()

    @kept_out
    def on_exception(self, trainer: Trainer, _: LightningModule, __: BaseException) -> None:
        """The loop is left by an exception, which is being handled."""
        self._end(trainer, "failed")

    @kept_out
    def teardown(self, trainer: Trainer, _: LightningModule, stage: str) -> None:
        """The loop ended well."""
        if stage == "fit":
            self._end(trainer, "success")

    def _wait(self) -> None:
        self._turn = time.perf_counter()
        if self._phases is not None:
            self._phases.switch("rollout" if self._logger.is_of_rewards else "load")

    def _end(self, trainer: Trainer, status: str) -> None:
        if self._phases is not None:
            self._phases.close()
            self._phases = None
        if self._is_lent:
            self._logger.finalize(status)
            trainer.loggers = [one for one in trainer.loggers if one is not self._logger]
