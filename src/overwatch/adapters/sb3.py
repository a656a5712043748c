"""Stable-Baselines3 and sb3-contrib: a callback that reports what logger, envs and their monitors have.

    from overwatch.adapters.sb3 import OverwatchCallback
    model.learn(total_timesteps=10_000, callback=OverwatchCallback())

Rules: every number of the logger is sent, one that no row has as a custom number; an update is sent whole,
right after it. SB3 dumps `train/*` a rollout late and the last never: they are read where `train()` left
them. Entropy is `train/entropy_loss`, also as a share of its maximum where the action space has one.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from numbers import Real
from typing import Any, Final

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.failures import culprit, watch
from overwatch.adapters.numbers import numbers
from overwatch.adapters.spaces import choices, most_entropy
from overwatch.catalog import Library

_LOOP: Final = ("collect_rollouts", "train", "dump_logs", "_dump_logs", "_do_one_update")
"""What `learn()` calls of a model, by any of SB3's and sb3-contrib's algorithms and versions."""
_OF_LOOP: Final = "time/fps"
"""What only the loop's own dumps have: an evaluation, or a program, may dump in between."""


class Numbers(KVWriter, Bordered):
    """One of the logger's outputs: gathers the numbers of an update and sends them together."""

    def __init__(self, model: BaseAlgorithm, run: sdk.Run) -> None:
        self._run = run
        is_masked = "Maskable" in type(model.policy).__name__
        self._most_entropy = None if is_masked else most_entropy(model.action_space)
        self._at_dump = not isinstance(model, OnPolicyAlgorithm)
        self._waiting: dict[str, float] = {}
        self._has_update = False
        self._trained = model.logger.name_to_value.get("train/n_updates")
        self._reported_at = time.perf_counter()

    @kept_out
    def write(self, key_values: dict[str, Any], *_: object) -> None:
        """SB3 dumps its logger: on-policy between a rollout and its training, else after both."""
        self._gather(key_values)
        if self._at_dump and _OF_LOOP in key_values:
            self._has_update = True
            self.report()

    def take(self, logged: dict[str, Any]) -> None:
        """Take `train/*` before it is dumped."""
        self._gather({key: value for key, value in logged.items() if key.startswith("train/")})

    def _gather(self, logged: dict[str, Any]) -> None:
        """Take all numbers; those of `train/*` where they are of a training not yet taken."""
        trained = logged.get("train/n_updates")
        is_old = trained is not None and trained == self._trained
        self._has_update |= trained is not None and not is_old
        self._trained = trained or self._trained
        new = {key: value for key, value in logged.items() if not (is_old and key.startswith("train/"))}
        found = numbers(new, Library.SB3)
        if "entropy_nats" in found and self._most_entropy is not None:
            found["entropy"] = found["entropy_nats"] / self._most_entropy
        self._waiting |= found

    def report(self) -> None:
        """Send what was gathered as one update; without a training since the last one, as more of that."""
        before, self._reported_at = self._reported_at, time.perf_counter()
        if not self._waiting:
            return
        if self._has_update and not self._at_dump:
            self._waiting["update_time"] = self._reported_at - before
        number = (self._run.last_update or 0) + self._has_update
        self._run.update(update=number or None, **self._waiting)
        self._waiting, self._has_update = {}, False

    def close(self) -> None:
        """Nothing to close: the run outlives the logger."""


class OverwatchCallback(BaseCallback, Bordered):
    """Reports every step and update to `run`, or to a run of its own that ends with `learn()`."""

    def __init__(self, run: sdk.Run | None = None) -> None:
        super().__init__()
        self._given = run
        self._is_on = False
        self._watches: list[Callable[[], None]] = []

    @kept_out
    def _on_training_start(self) -> None:
        self._unwatch()
        self._watches = [
            watch(self.model, _LOOP, self._fail, before={"_trigger_callback": self._evaluates}),
            watch(self.locals["callback"], ("on_training_end",), self._fail),
        ]

    def _unwatch(self) -> None:
        while self._watches:
            self._watches.pop()()

    def _begin(self) -> None:
        """With the first rollout: other callbacks have begun, and all that can go wrong is watched."""
        model = self.model
        device = "cuda:0" if str(model.device) == "cuda" else str(model.device)
        self._run = self._given or self._start(device)
        self._numbers = Numbers(model, self._run)
        self._report = EnvReporter(self._run, model.n_envs, device, choices=choices(model.action_space))
        self._on_policy = isinstance(model, OnPolicyAlgorithm)
        self._phases = ExitStack()
        self._seen: object = None
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

    @kept_out
    def _evaluates(self, /, step: dict[str, Any], *_: object, **__: object) -> None:
        """ARS steps its envs in an evaluation, whose names `locals` does not have."""
        self.update_locals(step)

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
        normalised = self.model.get_vec_normalize_env()
        rewards = paid if normalised is None else normalised.get_original_reward()
        self._report.turn(rewards, seconds, actions=self.locals.get("actions"))
        ended = {row: info["episode"] for row, info in enumerate(self.locals["infos"]) if "episode" in info}
        if ended:
            stated = ended.values()
            self._report.episodes(list(ended), [one["r"] for one in stated], [one["l"] for one in stated])

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
        self._unwatch()
        self._report.flush()
        self.logger.output_formats.remove(self._numbers)
        if self._given is None:
            self._run.close()

    def _end_update(self) -> None:
        self._phases.close()
        self._numbers.take(self.logger.name_to_value)
        self._numbers.report()
