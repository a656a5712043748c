"""Stable-Baselines3: a callback that reports what its logger, its envs and their monitors have.

    from overwatch.adapters.sb3 import OverwatchCallback
    model.learn(total_timesteps=10_000, callback=OverwatchCallback())

Rules: a name that no row has is a custom number; an update is sent whole, right after it. SB3 dumps `train/*`
a rollout late and the last never: they are read where `train()` left them. Entropy is `train/entropy_loss`,
minus nats, as a share of its maximum where the action space has one.
"""

import functools
import time
import types
from collections.abc import Callable
from contextlib import ExitStack
from numbers import Real
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from overwatch import sdk
from overwatch.adapters.envs import Bordered, EnvReporter, kept_out
from overwatch.catalog import CUSTOM_PREFIX, Scope, find

P = ParamSpec("P")
T = TypeVar("T")

_LOOP: Final = ("collect_rollouts", "train", "dump_logs", "_dump_logs", "_do_one_update")
"""What `learn()` calls of a model, by any of SB3's and sb3-contrib's algorithms and versions."""


class Numbers(KVWriter, Bordered):
    """One of the logger's outputs: gathers the numbers of an update and sends them together."""

    def __init__(self, model: BaseAlgorithm, run: sdk.Run) -> None:
        self._run = run
        is_masked = "Maskable" in type(model.policy).__name__
        self._most_entropy = None if is_masked else most_entropy(model.action_space)
        self._at_dump = not isinstance(model, OnPolicyAlgorithm)
        self._waiting: dict[str, float] = {}
        self._trained = model.logger.name_to_value.get("train/n_updates")
        self._told_at = time.perf_counter()

    @kept_out
    def write(self, key_values: dict[str, Any], *_: object) -> None:
        """SB3 dumps its logger: on-policy between a rollout and its training, else after both."""
        self.gather(key_values)
        if self._at_dump:
            self.tell()

    def gather(self, logged: dict[str, Any]) -> None:
        """Take `rollout/*`, and `train/*` where it is of a training not yet taken."""
        trained = logged.get("train/n_updates")
        areas = ("rollout/", "train/") if trained is None or trained != self._trained else ("rollout/",)
        self._trained = trained or self._trained
        for key, value in logged.items():
            if key.startswith(areas) and isinstance(value, Real):
                row = find(key, Scope.POLICY)
                self._waiting[f"{CUSTOM_PREFIX}{key}" if row is None else row.short] = float(value)
                if key == "train/entropy_loss" and self._most_entropy is not None:
                    self._waiting["entropy"] = -float(value) / self._most_entropy

    def tell(self) -> None:
        """Send what was gathered as one update, if there is anything."""
        before, self._told_at = self._told_at, time.perf_counter()
        if self._waiting and not self._at_dump:
            self._waiting["update_time"] = self._told_at - before
        if self._waiting:
            self._run.update(update=None, **self._waiting)
            self._waiting = {}

    def close(self) -> None:
        """Nothing to close: the run outlives the logger."""


class OverwatchCallback(BaseCallback, Bordered):
    """Reports every step and update to `run`, or to a run of its own that ends with `learn()`."""

    def __init__(self, run: sdk.Run | None = None) -> None:
        super().__init__()
        self._given = run
        self._is_on = False
        self._unwatch: Callable[[], None] = lambda: None

    @kept_out
    def _on_training_start(self) -> None:
        self._unwatch()
        self._unwatch = watch(self.model, self.locals["callback"], self._fail)

    def _begin(self) -> None:
        """With the first rollout: other callbacks have begun, and all that can go wrong is watched."""
        model = self.model
        device = "cuda:0" if str(model.device) == "cuda" else str(model.device)
        self._run = self._given or self._start(device)
        self._numbers = Numbers(model, self._run)
        self._report = EnvReporter(self._run, model.n_envs, device)
        self._on_policy = isinstance(model, OnPolicyAlgorithm)
        self._phases = ExitStack()
        self.logger.output_formats.append(self._numbers)
        self._is_on = True

    def _start(self, device: str) -> sdk.Run:
        """A run named after env and algorithm, with the model's plain settings as its configuration."""
        model, spec = self.model, self.training_env.get_attr("spec")[0]
        steps = model.n_steps * model.n_envs if isinstance(model, OnPolicyAlgorithm) else None
        return sdk.start(
            task=spec.id if spec else None,
            algo=type(model).__name__.lower(),
            n_envs=model.n_envs,
            devices=[device],
            config={k: v for k, v in vars(model).items() if isinstance(v, Real | str) and k[0] != "_"},
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

    def _on_step(self) -> bool:
        self._step()
        return True

    @kept_out
    def _step(self) -> None:
        if not self._is_on:
            return
        now = time.perf_counter()
        seconds, self._turn = now - self._turn, now
        normalised = self.model.get_vec_normalize_env()
        rewards = self.locals["rewards"] if normalised is None else normalised.get_original_reward()
        self._report.step(rewards, seconds)
        ended = {row: info["episode"] for row, info in enumerate(self.locals["infos"]) if "episode" in info}
        said = ended.values()
        self._report.episodes(list(ended), [one["r"] for one in said], [one["l"] for one in said])

    @kept_out
    def _on_rollout_end(self) -> None:
        if self._on_policy:
            self._phases.close()
            self._phases.enter_context(self._run.phase("learn"))

    @kept_out
    def _on_training_end(self) -> None:
        if self._is_on:
            self._end_update()
            self._end()

    @kept_out
    def _fail(self) -> None:
        """An exception ends `learn()`, which calls no callback then; its last update is not whole."""
        if self._is_on:
            self._phases.close()
            self._end()

    def _end(self) -> None:
        """The loop is over; a run of its own ends by the exception that is being handled."""
        self._is_on = False
        self._unwatch()
        self._report.flush()
        self.logger.output_formats.remove(self._numbers)
        if self._given is None:
            self._run.close()

    def _end_update(self) -> None:
        self._phases.close()
        self._numbers.gather(self.logger.name_to_value)
        self._numbers.tell()


def watch(model: BaseAlgorithm, root: BaseCallback, failed: Callable[[], None]) -> Callable[[], None]:
    """Call `failed` while an exception leaves the model's loop, until what this returns is called.

    The model gets a class of its own and no attribute: SB3 saves attributes with the model.
    """
    kind = type(model)
    methods = {name: _failing(getattr(kind, name), failed) for name in _LOOP if hasattr(kind, name)}
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, **methods}
    model.__class__ = types.new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(own))
    root.on_training_end = _failing(root.on_training_end, failed)  # type: ignore[method-assign]

    def unwatch() -> None:
        model.__class__ = kind
        vars(root).pop("on_training_end", None)

    return unwatch


def _failing(method: Callable[P, T], failed: Callable[[], None]) -> Callable[P, T]:
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except BaseException:
            failed()
            raise

    return call


def most_entropy(space: spaces.Space[Any]) -> float | None:
    """Nats of a uniform choice among all actions; `None` where there is no such number or no choice."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return None
    return float(np.log(space.n if isinstance(space, spaces.Discrete) else space.nvec).sum()) or None
