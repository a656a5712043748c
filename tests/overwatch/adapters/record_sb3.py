"""Runs every algorithm of Stable-Baselines3 and sb3-contrib, and writes down what each one's logger dumps.

    python -m tests.overwatch.adapters.record_sb3     # writes recorded/sb3.json; needs sb3-contrib

The callback is there as in a user's program: a failure of it, or an update that it did not send, ends this.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger

from overwatch.adapters.numbers import scalar
from overwatch.adapters.sb3 import OverwatchCallback
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.receiving import local_run

OUT = Path(__file__).with_name("recorded") / "sb3.json"
OFF: dict[str, Any] = {"learning_starts": 50}
ALGORITHMS: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("CartPole-v1", stable_baselines3.PPO, {"n_steps": 64, "clip_range_vf": 0.2}),
    ("Pendulum-v1", stable_baselines3.PPO, {"n_steps": 64, "use_sde": True}),
    ("CartPole-v1", stable_baselines3.A2C, {"n_steps": 64}),
    ("Pendulum-v1", stable_baselines3.A2C, {"n_steps": 64}),
    ("CartPole-v1", stable_baselines3.DQN, OFF),
    ("Pendulum-v1", stable_baselines3.SAC, OFF),
    ("Pendulum-v1", stable_baselines3.SAC, OFF | {"use_sde": True, "ent_coef": 0.1}),
    ("Pendulum-v1", stable_baselines3.TD3, OFF),
    ("Pendulum-v1", stable_baselines3.DDPG, OFF),
    ("CartPole-v1", sb3_contrib.ARS, {"n_delta": 2}),
    ("CartPole-v1", sb3_contrib.TRPO, {"n_steps": 64}),
    ("Pendulum-v1", sb3_contrib.TRPO, {"n_steps": 64}),
    ("CartPole-v1", sb3_contrib.RecurrentPPO, {"n_steps": 64}),
    ("CartPole-v1", sb3_contrib.MaskablePPO, {"n_steps": 64}),
    ("CartPole-v1", sb3_contrib.QRDQN, OFF),
    ("Pendulum-v1", sb3_contrib.TQC, OFF),
    ("Pendulum-v1", sb3_contrib.CrossQ, OFF),
)
CUSTOM = (
    "time/fps", "time/iterations", "time/time_elapsed", "time/total_timesteps", "time/episodes",
    "train/n_updates", "train/iterations", "train/delta_std", "train/step_size",
    "train/is_line_search_success",
)  # fmt: skip
"""Names that are no row's on purpose: counts, clocks, and what one algorithm alone has."""


class Goal(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports success at the end of an episode, as goal envs do; episodes of twenty steps."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info | {"is_success": terminated}


class Dumps(KVWriter):
    """One of the logger's outputs."""

    def __init__(self) -> None:
        self.all: list[dict[str, float]] = []

    def write(self, key_values: dict[str, Any], *_: object) -> None:
        """Keep the numbers of one dump."""
        found = {name: scalar(value) for name, value in key_values.items()}
        self.all.append({name: round(value, 6) for name, value in found.items() if value is not None})

    def close(self) -> None:
        """Nothing to close."""


def _envs(task: str, kind: type[BaseAlgorithm]) -> Any:
    def masked(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        goal = Goal(env)
        masks = kind is sb3_contrib.MaskablePPO
        return ActionMasker(goal, lambda _: np.ones(2, dtype=bool)) if masks else goal

    return make_vec_env(
        task, n_envs=2, seed=3, wrapper_class=masked,
        env_kwargs={"max_episode_steps": 20} if task == "Pendulum-v1" else {},
    )  # fmt: skip


def record() -> Iterator[dict[str, float]]:
    """Each algorithm's dumps of a few updates, those of an evaluation among them."""
    torch.set_num_threads(1)
    for task, kind, settings in ALGORITHMS:
        policy = {"RecurrentPPO": "MlpLstmPolicy", "ARS": "LinearPolicy"}.get(kind.__name__, "MlpPolicy")
        model = kind(policy, _envs(task, kind), seed=3, device="cpu", **settings)
        evaluation = MaskableEvalCallback if kind is sb3_contrib.MaskablePPO else EvalCallback
        run, received = local_run()
        dumps, callback = Dumps(), OverwatchCallback(run)
        model.set_logger(Logger(None, [dumps]))
        evaluates = evaluation(_envs(task, kind), eval_freq=100, n_eval_episodes=2, verbose=0)
        model.learn(400, callback=[callback, evaluates], log_interval=1)
        updates = received.of(Update)
        print(kind.__name__, task, len(dumps.all), "dumps", len(updates), "updates")
        assert callback.failures == 0
        assert any("overwatch.policy.eval_return" in update.values for update in updates)
        assert any("overwatch.policy.return" in update.values for update in updates)
        assert received.envs(), "no rewards"
        yield from ({"algorithm": kind.__name__} | one for one in _first_of_each(dumps.all))  # type: ignore[misc]


def _first_of_each(dumps: list[dict[str, float]]) -> list[dict[str, float]]:
    """Those that have a name which none before them has."""
    seen: set[str] = set()
    return [one for one in dumps if not one.keys() <= seen and not seen.update(one)]


if __name__ == "__main__":
    logged = list(record())
    fixture = {
        "library": "SB3", "version": stable_baselines3.__version__,
        "how": "run of every algorithm of stable-baselines3 and sb3-contrib, with an EvalCallback",
        "custom": CUSTOM, "logged": logged,
    }  # fmt: skip
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(fixture, indent=1) + "\n")
