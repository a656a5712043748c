"""RLlib: a callback that reports what an algorithm, its learners and its env runners have.

    from overwatch.adapters.rllib import OverwatchRLlibCallback
    config = PPOConfig().environment("CartPole-v1").callbacks(OverwatchRLlibCallback)

Rules: one instance lives with the algorithm and starts the run; one lives with each env runner. A `train()`
is an update. The run ends with `stop()`, or with the exception that leaves `train()`; a `train()` after that
is a run of its own. RLlib's timers are means over time: phases are measured where RLlib measures them. Must
not know what the numbers of a result mean.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gymnasium import spaces
from ray.rllib.callbacks.callbacks import RLlibCallback

from overwatch import events, sdk
from overwatch.adapters.envs import kept_out
from overwatch.adapters.ray_hooks import Phases, around, cause, timed
from overwatch.adapters.ray_results import rllib_numbers, settings
from overwatch.adapters.rllib_envs import EnvHooks, attach, join
from overwatch.catalog import Scope
from overwatch.catalog.run import STEPS

_PHASES: Final = {
    "env_runner_sampling_timer": "collect",
    "replay_buffer_sampling_timer": "load",
    "learner_update_timer": "learn",
    "synch_weights": "weights",
}
"""Phases by the timer within which RLlib does them."""


class OverwatchRLlibCallback(EnvHooks, RLlibCallback):  # type: ignore[misc]  # where Ray is not installed
    """Reports each `train()`, and the steps and episodes of the env runners, to a run of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.run: sdk.Run | None = None
        """Of the algorithm's instance the run, while it lasts; also where numbers of your own go."""
        self._phases = Phases()
        self._took: float | None = None

    @kept_out
    def on_algorithm_init(self, /, *, algorithm: Any, **_: object) -> None:
        """Start the run, and have it end as the algorithm does."""
        self._begin(algorithm)
        clocks = {timer: functools.partial(self._phases.on, phase) for timer, phase in _PHASES.items()}
        timed(algorithm.metrics, {**clocks, "training_iteration": self._iterating})
        around(algorithm, "step", functools.partial(self._step, algorithm))
        around(algorithm, "cleanup", self._clean_up)
        around(algorithm, "evaluate", functools.partial(self._pause, "evaluation"))
        around(algorithm, "save_to_path", self._save)

    @kept_out
    def _begin(self, algorithm: Any) -> None:
        config, trial, space = algorithm.config, algorithm.trial_id, _action_space(algorithm)
        launched = os.environ.get("OVERWATCH_RUN_ID")
        trial = None if trial in (None, "default") else f"{launched}-{trial}" if launched else trial
        self.run = self._phases.run = sdk.start(
            run_id=trial,
            task=getattr(config.env, "__name__", config.env),
            algo=type(algorithm).__name__.lower(),
            n_envs=max(config.num_env_runners, 1) * config.num_envs_per_env_runner,
            config=settings(config.to_dict(), space),
            preset="ppo-continuous" if isinstance(space, spaces.Box) else None,
        )
        if config.num_env_runners == 0:
            attach(algorithm.env_runner, self.run)
        self._join(algorithm.env_runner_group, None)

    def _join(self, group: Any, indices: Sequence[int] | None) -> None:
        """Have env runners in other processes report to the run, without waiting for them."""
        if self.run is not None:
            told = functools.partial(join, run_id=self.run.run_id)
            which = {"remote_worker_ids": indices, "local_env_runner": False}
            group.foreach_env_runner(told, **which, timeout_seconds=0.0)

    @kept_out
    def on_env_runners_recreated(
        self, /, *, env_runner_group: Any, env_runner_indices: list[int], is_evaluation: bool, **_: object
    ) -> None:
        """New processes are in the place of those that failed."""
        if is_evaluation or self.run is None:
            return
        self._join(env_runner_group, env_runner_indices)
        for index in env_runner_indices:
            self.run.log(f"env runner {index} was restarted", severity="warning", subsystem="rllib")
        self.run.count("env_runner_restarts", len(env_runner_indices))

    @kept_out
    def on_train_result(self, /, *, algorithm: Any, result: dict[str, Any], **_: object) -> None:
        """A `train()` has ended."""
        if self.run is None:
            return
        found = rllib_numbers(result, has_kl=getattr(algorithm.config, "use_kl_loss", True))
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

    def _step(self, algorithm: Any, step: Callable[[], Any]) -> Any:
        if self.run is None:
            self._begin(algorithm)
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


def _action_space(algorithm: Any) -> object:
    """Of the only policy; `None` where there are several."""
    return getattr(algorithm.get_module(), "action_space", None)
