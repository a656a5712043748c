"""Real PPO trainings that reach their task's known return, written update by update into a small file.

Owns the tasks and how a training is listened to: what the adapter for Stable-Baselines3 emits, and what the
library works out but does not log (gradients before clipping, ratios, the spread of returns). A recording is
`recorded.Recording`. Run one with `python -m tests.calibration.training NAME FILE`.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from overwatch.adapters.sb3 import OverwatchCallback
from overwatch.adapters.spaces import most_entropy
from overwatch.catalog import BY_NAME
from overwatch.events import EpisodeEnded, Record
from overwatch.sdk.frames import Update
from tests.calibration.recorded import Recording, Reported, write
from tests.overwatch.adapters.receiving import Received, local_run


@dataclass(frozen=True, kw_only=True)
class Task:
    """One training: an env, settings that are known to solve it, and what solved means."""

    env: str
    seed: int
    steps: int
    n_envs: int
    reaches: float
    """Mean return of the trained policy over twenty episodes that counts as solved."""
    normalised: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


_ZOO_CARTPOLE = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20}
_ZOO_SCHEDULES = {
    "learning_rate": LinearSchedule(1e-3, 0.0, 1.0),
    "clip_range": LinearSchedule(0.2, 0.0, 1.0),
}
_ACROBOT = {"n_steps": 256, "gae_lambda": 0.94, "n_epochs": 4}
_PENDULUM = {"n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3, "use_sde": True, "sde_sample_freq": 4}
_CAR = {
    "n_steps": 8, "batch_size": 256, "gamma": 0.9999, "learning_rate": 7.77e-5, "ent_coef": 0.00429,
    "clip_range": 0.1, "gae_lambda": 0.9, "max_grad_norm": 5, "vf_coef": 0.19, "use_sde": True,
    "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
}  # fmt: skip
TASKS = {
    "cartpole-0": Task(env="CartPole-v1", seed=0, steps=150_000, n_envs=1, reaches=475),
    "cartpole-1": Task(
        env="CartPole-v1", seed=1, steps=100_000, n_envs=8, reaches=475,
        settings={**_ZOO_CARTPOLE, "learning_rate": 1e-3},
    ),
    "cartpole-zoo-0": Task(
        env="CartPole-v1", seed=0, steps=100_000, n_envs=8, reaches=475,
        settings={**_ZOO_CARTPOLE, **_ZOO_SCHEDULES},
    ),
    "cartpole-zoo-1": Task(
        env="CartPole-v1", seed=1, steps=100_000, n_envs=8, reaches=475,
        settings={**_ZOO_CARTPOLE, **_ZOO_SCHEDULES},
    ),
    "acrobot-0": Task(
        env="Acrobot-v1", seed=0, steps=300_000, n_envs=16, reaches=-100, normalised=True, settings=_ACROBOT
    ),
    "acrobot-1": Task(
        env="Acrobot-v1", seed=1, steps=300_000, n_envs=16, reaches=-100, normalised=True, settings=_ACROBOT
    ),
    "pendulum-0": Task(env="Pendulum-v1", seed=0, steps=200_000, n_envs=4, reaches=-250, settings=_PENDULUM),
    "pendulum-1": Task(env="Pendulum-v1", seed=1, steps=200_000, n_envs=4, reaches=-250, settings=_PENDULUM),
    "mountaincar-10": Task(
        env="MountainCarContinuous-v0", seed=10, steps=20_000, n_envs=1, reaches=90, normalised=True,
        settings=_CAR,
    ),
    "mountaincar-1": Task(
        env="MountainCarContinuous-v0", seed=1, steps=20_000, n_envs=1, reaches=90, normalised=True,
        settings=_CAR,
    ),
}  # fmt: skip


class Unlogged:
    """What one update works out and does not log."""

    def __init__(self, model: PPO) -> None:
        self._model = model
        self.grads: list[float] = []
        self.ratios: list[tuple[float, float]] = []
        self._batch: Any = None
        self._spread = 0.0
        buffer, policy = model.rollout_buffer, model.policy
        self._get, self._evaluate = buffer.get, policy.evaluate_actions
        buffer.get = self._batches  # type: ignore[method-assign]  # the library has no hook here
        policy.evaluate_actions = self._evaluated  # type: ignore[method-assign]  # nor here

    def _batches(self, size: int | None = None) -> Iterator[Any]:
        self._spread = float(np.std(self._model.rollout_buffer.returns))
        for batch in self._get(size):
            self._batch = batch
            yield batch

    def _evaluated(self, *args: Any) -> Any:
        found = self._evaluate(*args)
        with torch.no_grad():
            ratio = torch.exp(found[1] - self._batch.old_log_prob)
        self.ratios.append((float(ratio.min()), float(ratio.max())))
        return found

    def clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        """Torch's clipping of gradients, listened to."""

        def received(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            self.grads.append(float(norm))
            return norm

        return received

    def take(self) -> dict[str, float]:
        """The newest update's numbers by short name, once."""
        std = self._spread
        numbers = {
            "grad_norm": float(np.mean(self.grads)),
            "ratio_min": min(low for low, _ in self.ratios),
            "ratio_max": max(high for _, high in self.ratios),
            "return_variance": std * std,
        }
        self.grads, self.ratios = [], []
        return numbers


class Listener(BaseCallback):
    """Keeps what the adapter emits, joined with what it does not log; forgets numbers of single steps."""

    def __init__(self, received: Received) -> None:
        super().__init__()
        self._received = received
        self.reported: list[Reported] = []

    def _on_training_start(self) -> None:
        self._start = time.time_ns()
        self._unlogged = Unlogged(self.model)  # type: ignore[arg-type]  # these are PPO runs
        self._clip = torch.nn.utils.clip_grad_norm_
        torch.nn.utils.clip_grad_norm_ = self._unlogged.clipping(self._clip)

    def _on_step(self) -> bool:
        if len(self._received.frames) > 256:
            self._take()
        return True

    def _on_rollout_start(self) -> None:
        self._take()

    def _on_training_end(self) -> None:
        self._take()
        torch.nn.utils.clip_grad_norm_ = self._clip

    def _take(self) -> None:
        frames, self._received.frames = self._received.frames, []
        for frame in frames:
            event = frame.event if isinstance(frame, Record) else frame
            if isinstance(event, Update):
                values = {name: float(v) for name, v in event.values.items() if name in BY_NAME}
                self.reported.append(
                    Reported(after_ns=event.at - self._start, values=values, beside=self._unlogged.take())
                )
            elif isinstance(event, EpisodeEnded):
                assert event.length is not None
                columns = (event.env_id, event.episode_return, event.length)
                rows = zip(*(column.array().tolist() for column in columns), strict=True)
                episodes = tuple((int(env), earned, int(steps)) for env, earned, steps in rows)
                self.reported.append(Reported(after_ns=event.at - self._start, episodes=episodes))


def train(name: str, task: Task | None = None) -> Recording:
    """Train a task, one of the table where none is given; takes a minute or a few."""
    torch.set_num_threads(1)
    task = task or TASKS[name]
    env: VecEnv = make_vec_env(task.env, n_envs=task.n_envs, seed=task.seed)
    if task.normalised:
        env = VecNormalize(env, gamma=task.settings.get("gamma", 0.99))
    model = PPO("MlpPolicy", env, seed=task.seed, device="cpu", **task.settings)
    run, received = local_run(task.n_envs)
    listener = Listener(received)
    model.learn(task.steps, callback=CallbackList([OverwatchCallback(run), listener]))
    return Recording(
        name=name,
        task=task.env,
        n_envs=task.n_envs,
        seed=task.seed,
        config={
            k: str(v) for k, v in vars(model).items() if isinstance(v, float | int | str) and k[0] != "_"
        },
        preset="ppo" if most_entropy(model.action_space) else "ppo-continuous",
        reaches=task.reaches,
        reached=_evaluated(model, env, task),
        reported=tuple(listener.reported),
    )


def _evaluated(model: PPO, env: VecEnv, task: Task) -> float:
    """Mean return of twenty episodes of the trained policy."""
    judge: VecEnv = make_vec_env(task.env, n_envs=1, seed=1000 + task.seed)
    if isinstance(env, VecNormalize):
        judge = VecNormalize(judge, training=False, norm_reward=False)
        judge.obs_rms = env.obs_rms
    mean, _ = evaluate_policy(model, judge, n_eval_episodes=20, deterministic=True)
    return float(mean)  # type: ignore[arg-type]  # one number, as no list was asked for


if __name__ == "__main__":
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    recording = train(sys.argv[1])
    Path(sys.argv[2]).write_bytes(write(recording))
    print(recording.name, len(recording.updates), recording.reached, "of", recording.reaches)
