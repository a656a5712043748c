"""What one of RLlib's algorithms does: its half of the RLlib adapter.

Rules: a `train()` is an update. The run ends with `stop()`, or with the exception that leaves `train()`; a
`train()` after that begins another. RLlib's timers are means over time: phases are measured where RLlib
measures them. Env runners in other processes are asked to join the run, and nothing waits for them. Must not
know what the numbers of a result mean, nor what an env runner reports.
"""

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gymnasium import spaces

from overwatch import events, sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.ray_hooks import Phases, around, cause, timed
from overwatch.adapters.ray_results import rllib_numbers, settings
from overwatch.adapters.rllib_envs import attach, join
from overwatch.catalog import Scope
from overwatch.catalog.run import STEPS

_PHASES: Final = {
    "env_runner_sampling_timer": "collect",
    "sample": "collect",
    "replay_buffer_sampling_timer": "load",
    "learner_update_timer": "learn",
    "synch_weights": "weights",
}
"""Phases by the timer within which RLlib does them."""
_NO_TRIAL: Final = "default"
_TRIAL: Final = re.compile(r"(?<=_)[0-9a-f]{5,8}_[0-9]{5}(?=_|$)")
"""A trial's id in the name of its folder, unless its user names folders."""


def trial_of(algorithm: Any) -> str | None:
    """The id of the trial of Tune that an algorithm is; `None` where it is none.

    An algorithm that Tune makes of a dictionary does not know its trial, only the folder of it.
    """
    if algorithm.trial_id not in {None, _NO_TRIAL}:
        return str(algorithm.trial_id)
    folder = getattr(getattr(algorithm, "_storage", None), "trial_dir_name", None)
    found = None if folder is None else _TRIAL.search(folder)
    return folder if found is None else found[0]


class Training(Bordered):
    """Reports one algorithm to a run that begins and ends with it."""

    def __init__(self, algorithm: Any) -> None:
        self.run: sdk.Run | None = None
        self._algorithm = algorithm
        self._has_runners: bool = algorithm.config.enable_env_runner_and_connector_v2
        """Those of the new API stack."""
        self._phases = Phases()
        self._took: float | None = None
        self._begin()
        clocks = {timer: functools.partial(self._phases.on, phase) for timer, phase in _PHASES.items()}
        timed(algorithm.metrics, {**clocks, "training_iteration": self._iterating})
        around(algorithm, "step", self._step)
        around(algorithm, "cleanup", self._clean_up)
        around(algorithm, "evaluate", functools.partial(self._pause, "evaluation"))
        around(algorithm, "save_to_path", self._save)

    @kept_out
    def _begin(self) -> None:
        algorithm, config = self._algorithm, self._algorithm.config
        trial, launched = trial_of(algorithm), os.environ.get("OVERWATCH_RUN_ID")
        space = None  # on the old API stack there is no module, and what a runner's envs do is not reported
        if self._has_runners:
            space = getattr(algorithm.get_module(), "action_space", None)  # of the only policy
        self.run = self._phases.run = sdk.start(
            run_id=f"{launched}-{trial}" if launched and trial else trial,
            task=getattr(config.env, "__name__", config.env),
            algo=type(algorithm).__name__.lower(),
            n_envs=max(config.num_env_runners, 1) * config.num_envs_per_env_runner,
            config=settings(config.to_dict(), space),
            preset="ppo-continuous" if isinstance(space, spaces.Box) else None,
        )
        if config.num_env_runners == 0 and self._has_runners:
            attach(algorithm.env_runner, self.run)
        self._join(None)

    def _join(self, indices: Sequence[int] | None) -> None:
        # A runner that joined a run without telemetry would begin one of its own.
        if self.run is not None and self.run.is_on and self._has_runners:
            joining = functools.partial(join, run_id=self.run.run_id)
            which = {"remote_worker_ids": indices, "local_env_runner": False}
            self._algorithm.env_runner_group.foreach_env_runner(joining, **which, timeout_seconds=0.0)

    def restarted(self, indices: Sequence[int]) -> None:
        """New processes are in the place of env runners that failed."""
        self._join(indices)
        if self.run is not None:
            for index in indices:
                self.run.log(f"env runner {index} was restarted", severity="warning", subsystem="rllib")
            self.run.count("env_runner_restarts", len(indices))

    def trained(self, result: dict[str, Any]) -> None:
        """A `train()` has ended."""
        if self.run is None:
            return
        found = rllib_numbers(result, has_kl=getattr(self._algorithm.config, "use_kl_loss", True))
        if self._took is not None:
            found["update_time"], self._took = self._took, None
        self._phases.send()
        self.run.update(update=result["training_iteration"], **found)
        steps = events.scalars({STEPS.name: float(result["num_env_steps_sampled_lifetime"])})
        self.run.fact(events.Measured(at=time.time_ns(), scope=Scope.RUN, values=steps))

    @contextmanager
    def _iterating(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._took = time.perf_counter() - began

    def _step(self, step: Callable[[], Any]) -> Any:
        if self.run is None:
            self._begin()
        try:
            return step()
        except BaseException as error:
            self._end(cause(error))
            raise

    def _clean_up(self, cleanup: Callable[[], Any]) -> Any:
        try:
            return cleanup()
        finally:
            self._end()

    def _pause(self, phase: str, call: Callable[[], Any]) -> Any:
        if self.run is None:
            return call()
        with self.run.phase(phase):
            return call()

    def _save(self, save: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        path = self._pause("checkpoint", save)
        if self.run is not None:
            self.run.checkpoint_saved(path, duration_s=time.perf_counter() - began)
        return path

    @kept_out
    def _end(self, reason: str | None = None) -> None:
        run, self.run, self._phases.run = self.run, None, None
        if run is not None:
            run.close(reason=reason)
