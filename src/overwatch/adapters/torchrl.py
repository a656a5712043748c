"""TorchRL: reports what its trainers log and what their collectors bring, or what a loop by hand logs.

    from overwatch.adapters.torchrl import watch
    watch(trainer)

Rules: `trainer.train()` is a run, a batch of the collector an update. The numbers are those of the trainer's
own log, also between its intervals. A loop by hand has a logger: see `torchrl_logger`.
"""

import math
import time
from typing import Any, Final

from overwatch import sdk
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.episodes import Ended
from overwatch.adapters.numbers import numbers
from overwatch.adapters.torchrl_logger import watch_logger
from overwatch.adapters.watching import Watched, plain
from overwatch.catalog import CUSTOM_PREFIX, Library
from overwatch.catalog.presets import preset_for

_MINIBATCH: Final = f"{CUSTOM_PREFIX}explained_variance"
"""A custom number of that name would stand in the row's place."""


def watch(watched: Any, run: sdk.Run | None = None, *, task: str | None = None) -> None:
    """Report each `train()` of a trainer, or what is logged by a logger, to `run`, or to a run of its own."""
    if hasattr(watched, "log_scalar"):
        watch_logger(watched, run)
    else:
        _Trainer(watched, run, task).watched.over(watched, "train")


class _Trainer:
    def __init__(self, trainer: Any, run: sdk.Run | None, task: str | None) -> None:
        self.watched = Watched(self, run)
        self._trainer, self._task = trainer, task

    def start(self) -> sdk.Run:
        """A run named after env and algorithm, with the trainer's plain settings as its configuration."""
        trainer = self._trainer
        algo = type(trainer).__name__.removesuffix("Trainer").lower() or None
        env = getattr(trainer.collector, "env", None)
        frames = getattr(trainer.collector, "frames_per_batch", None)
        is_continuous = preset_for(algo) == "ppo" and not _choices(env)
        return sdk.start(
            task=self._task or _named(env),
            algo=algo,
            config=plain(vars(trainer)),
            updates=frames and -(-trainer.total_frames // frames),
            preset="ppo-continuous" if is_continuous else None,
        )

    def look(self) -> None:
        """At the trainer's log and at the batches that come in."""
        self._logged: dict[str, Any] = {}
        self._update = 0
        self._report: EnvReporter | None = None
        self._ended: Ended | None = None
        trainer, after = self._trainer, self.watched.after
        after(trainer, "_pre_steps_log_hook", self._collected)
        after(trainer, "optim_steps", lambda *_, **__: None, "learn")
        after(trainer, "_log", self._log)
        after(trainer, "_post_steps_log_hook", self._send)

    def settle(self) -> None:
        """All was sent."""

    def _collected(self, _: Any, __: float, batch: Any) -> None:
        if batch is None:
            return
        rewards = batch["next", "reward"]
        actions, most = _numbered(batch.get("action", None), rewards.ndim)
        if self._report is None:
            envs, device = rewards[..., 0, :].numel(), str(batch.device or "cpu")
            most = most or _choices(getattr(self._trainer.collector, "env", None))
            self._report = EnvReporter(self.watched.run, envs, device, choices=most)
        seconds = time.perf_counter() - self.watched.began
        self._ended = self._report.batch(rewards, batch["next", "done"], seconds, actions)

    def _log(self, _: Any, __: float, **logged: Any) -> None:
        logged.pop("log_pbar", None)
        self._logged.update(logged)

    def _send(self, *_: Any) -> None:
        found, self._logged = numbers(self._logged, Library.TORCHRL), {}
        if _MINIBATCH in found:
            found[f"{CUSTOM_PREFIX}loss/explained_variance"] = found.pop(_MINIBATCH)
        choices = _choices(getattr(self._trainer.collector, "env", None))
        if choices > 1 and "entropy_nats" in found:
            found["entropy"] = found["entropy_nats"] / math.log(choices)
        optimizer = self._trainer.optimizer
        if optimizer is not None:
            found["learning_rate"] = float(optimizer.param_groups[0]["lr"])
        if self._ended is not None:  # the trainer logs no means of them
            returns, lengths = self._ended[1:]
            found["return"], found["episode_length"] = float(returns.mean()), float(lengths.mean())
        self._update += 1
        self.watched.run.update(update=self._update, update_time=self.watched.update_time(), **found)


def _numbered(actions: Any, dimensions: int) -> tuple[Any, int]:
    """Actions that are choices as numbers, and how many there are where vectors show it."""
    if actions is None or actions.is_floating_point():
        return None, 0
    if actions.ndim == dimensions and actions.shape[-1] > 1:
        return actions.int().argmax(-1), actions.shape[-1]
    return actions, 0


def _choices(env: Any) -> int:
    """How many actions there are; 0 where they are numbers."""
    return int(getattr(getattr(getattr(env, "action_spec", None), "space", None), "n", 0))


def _named(env: Any) -> str | None:
    """Name of the environment that wrappers of TorchRL hold, where it has one."""
    while env is not None:
        if name := getattr(getattr(env, "spec", None), "id", None):
            return str(name)
        env = vars(env).get("base_env") or vars(env).get("_env") or vars(env).get("env")
    return None
