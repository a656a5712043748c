"""Stable-Baselines3 and sb3-contrib: a callback that reports what logger, envs and their monitors have.

    from overwatch.adapters.sb3 import OverwatchCallback
    model.learn(total_timesteps=10_000, callback=OverwatchCallback())

Rules: the model and its callbacks are watched while `learn()` lasts, since SB3 calls no callback when an
exception ends it. Episodes are those of the monitors. What the logger has is in `sb3_logger`.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.failures import culprit
from overwatch.adapters.methods import failing, watch
from overwatch.adapters.sb3_logger import Numbers
from overwatch.adapters.spaces import choices
from overwatch.adapters.watching import plain

_LOOP: Final = ("collect_rollouts", "train", "dump_logs", "_dump_logs", "_do_one_update")
"""What `learn()` calls of a model, by any of SB3's and sb3-contrib's algorithms and versions."""


class OverwatchCallback(BaseCallback, Bordered):
    """Reports every step and update to `run`, or to a run of its own that ends with `learn()`."""

    def __init__(self, run: sdk.Run | None = None) -> None:
        super().__init__()
        self._given = run
        self._is_on = False
        self._hooks = ExitStack()

    @kept_out
    def _on_training_start(self) -> None:
        self._hooks.close()
        around = failing(self._fail)
        calls = {**dict.fromkeys(_LOOP, around), "_trigger_callback": self._evaluates}
        self._hooks.callback(watch(self.model, calls))
        self._hooks.callback(watch(self.locals["callback"], {"on_training_end": around}))

    def _begin(self) -> None:
        """With the first rollout: other callbacks have begun, and all that can go wrong is watched."""
        model = self.model
        device = "cuda:0" if str(model.device) == "cuda" else str(model.device)
        self._run = self._given or self._start(device)
        self._numbers = Numbers(model, self._run)
        self._report = EnvReporter(self._run, model.n_envs, device, choices=choices(model.action_space))
        self._normalised = model.get_vec_normalize_env()
        self._on_policy, self._phases, self._seen = isinstance(model, OnPolicyAlgorithm), ExitStack(), None
        self.logger.output_formats.append(self._numbers)
        self._is_on = True

    def _start(self, device: str) -> sdk.Run:
        """A run named after env and algorithm, with the model's plain settings as its configuration."""
        model, spec = self.model, None
        with suppress(Exception):  # a vector of one's own may have no attributes of envs
            spec = self.training_env.get_attr("spec")[0]
        steps = model.n_steps * model.n_envs if isinstance(model, OnPolicyAlgorithm) else None
        return sdk.start(
            task=spec.id if spec else None,
            algo=type(model).__name__.lower(),
            n_envs=model.n_envs,
            devices=[device],
            config=plain(vars(model)),
            updates=steps and -(-self.locals["total_timesteps"] // steps),
            preset="ppo-continuous" if isinstance(model.action_space, spaces.Box) else None,
        )

    @kept_out
    def _on_rollout_start(self) -> None:
        if not self._is_on:
            self._begin()
        if self._on_policy:
            self._end_update()
            self._phases.enter_context(self._run.phase("collect"))
        self._turn = time.perf_counter()

    def _evaluates(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """ARS steps its envs in an evaluation, whose names `locals` does not have."""
        self._take_locals(*args)
        return method(*args, **kwargs)

    @kept_out
    def _take_locals(self, of_step: dict[str, Any], *_: object) -> None:
        self.update_locals(of_step)

    def _on_step(self) -> bool:
        self._step()
        return True

    @kept_out
    def _step(self) -> None:
        paid = self.locals.get("rewards")
        if not self._is_on or paid is None or paid is self._seen:  # an evaluation calls once for each env
            return
        self._seen, now = paid, time.perf_counter()
        seconds, self._turn = now - self._turn, now
        rewards = paid if self._normalised is None else self._normalised.get_original_reward()
        self._report.turn(rewards, seconds, actions=self.locals.get("actions"))
        if np.count_nonzero(self.locals["dones"]):
            infos = enumerate(self.locals["infos"])
            ended = [(row, one["r"], one["l"]) for row, info in infos if (one := info.get("episode"))]
            if ended:
                self._report.episodes(*zip(*ended, strict=True))

    @kept_out
    def _on_rollout_end(self) -> None:
        if self._on_policy:
            self._report.settle()
            self._phases.close()
            self._phases.enter_context(self._run.phase("learn"))

    @kept_out
    def _on_training_end(self) -> None:
        if self._is_on:
            self._end_update()
            self._end()

    @kept_out
    def _fail(self, error: BaseException) -> None:
        """An exception ends `learn()`, which calls no callback then; its last update is not whole."""
        if self._is_on:
            self._phases.close()
            env_id = culprit(error, self.training_env.unwrapped) if isinstance(error, Exception) else None
            if env_id is not None and isinstance(error, Exception):
                self._report.crashed(env_id, error)
            self._end()

    def _end(self) -> None:
        """The loop is over; a run of its own ends by the exception that is being handled."""
        self._is_on = False
        self._hooks.close()
        self._report.flush()
        self.logger.output_formats.remove(self._numbers)
        if self._given is None:
            self._run.close()

    def _end_update(self) -> None:
        self._phases.close()
        self._numbers.take(self.logger.name_to_value)
        self._numbers.report()
