"""Ray Tune: a callback that reports each trial as a run.

    from overwatch.adapters.ray_tune import OverwatchTuneCallback
    tune.Tuner(trainable, run_config=tune.RunConfig(callbacks=[OverwatchTuneCallback()]))

Rules: all runs live in the tuner's process; a trial needs nothing of Overwatch. A run has its trial's id,
behind `OVERWATCH_RUN_ID` where that is set, and its trial's configuration. A trial that fails and is tried
again, or is paused, goes on as the same run. A run is closed beside the tuner's loop, which waits for none.
Must not know what a trainable reports.
"""

import os
import threading
from pathlib import Path
from typing import Any

from ray.tune import Callback

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.ray_results import tune_numbers


class OverwatchTuneCallback(Callback, Bordered):  # type: ignore[misc]  # where Ray is not installed
    """Starts, feeds and ends the run of each trial."""

    def __init__(self) -> None:
        self.runs: dict[str, sdk.Run] = {}
        """The runs of trials that have begun and not ended, by the trial's id."""
        self._closing: list[threading.Thread] = []

    @kept_out
    def on_trial_start(self, /, *, trial: Any, **_: object) -> None:
        """A trial begins, or goes on."""
        if trial.trial_id in self.runs:
            return
        launched = os.environ.get("OVERWATCH_RUN_ID")
        self.runs[trial.trial_id] = sdk.start(
            run_id=f"{launched}-{trial.trial_id}" if launched else trial.trial_id,
            task=trial.trainable_name,
            config=dict(trial.config),
            rank=0,
        )

    @kept_out
    def on_trial_result(self, /, *, trial: Any, result: dict[str, Any], **_: object) -> None:
        """A trial has reported; each report is an update."""
        run = self.runs.get(trial.trial_id)
        if run is not None:
            run.update(update=result.get("training_iteration"), **tune_numbers(result, trial.config))

    @kept_out
    def on_trial_recover(self, /, *, trial: Any, **_: object) -> None:
        """A trial has failed and is tried again."""
        run = self.runs.get(trial.trial_id)
        if run is not None:
            run.log(f"is tried again after {_reason(trial)}", severity="warning", subsystem="tune")

    @kept_out
    def on_checkpoint(self, /, *, trial: Any, checkpoint: Any, **_: object) -> None:
        """A trial has saved a checkpoint."""
        run = self.runs.get(trial.trial_id)
        if run is not None:
            run.checkpoint_saved(checkpoint.path)

    @kept_out
    def on_trial_complete(self, /, *, trial: Any, **_: object) -> None:
        """A trial has ended, by itself or because the scheduler stopped it."""
        self._end(trial.trial_id, "completed")

    @kept_out
    def on_trial_error(self, /, *, trial: Any, **_: object) -> None:
        """A trial has failed for good."""
        self._end(trial.trial_id, "failed", _reason(trial))

    @kept_out
    def on_experiment_end(self, /, **_: object) -> None:
        """The tuner ends; trials that have not ended were interrupted."""
        for trial_id in list(self.runs):
            self._end(trial_id, "interrupted", "the tuner was stopped")
        for thread in self._closing:
            thread.join()
        self._closing = []

    def _end(self, trial_id: str, outcome: str, reason: str | None = None) -> None:
        run = self.runs.pop(trial_id, None)
        if run is not None:
            stated = {"outcome": outcome, "reason": reason}
            thread = threading.Thread(target=run.close, kwargs=stated, name="overwatch-close")
            self._closing = [one for one in self._closing if one.is_alive()] + [thread]
            thread.start()


def _reason(trial: Any) -> str | None:
    """The last line of the trial's error, which has the exception; Tune's storage has the file only later."""
    file = Path(trial.error_file or "")
    return file.read_text(encoding="utf-8").strip().rpartition("\n")[2] if file.is_file() else None
