"""rl_games: PPO on CartPole, its own configuration, with the environments in this process."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

from overwatch.adapters import tensorboard  # Overwatch

CONFIG: dict[str, Any] = {
    "algo": {"name": "a2c_discrete"},
    "model": {"name": "discrete_a2c"},
    "network": {
        "name": "actor_critic",
        "separate": True,
        "space": {"discrete": None},
        "mlp": {
            "units": [32, 32],
            "activation": "relu",
            "initializer": {"name": "default"},
            "regularizer": {"name": "None"},
        },
    },
    "config": {
        "name": "cartpole",
        "env_name": "cartpole",
        "device": "cpu",
        "multi_gpu": False,
        "torch_compile": False,
        "reward_shaper": {"scale_value": 0.1},
        "normalize_advantage": True,
        "normalize_input": False,
        "gamma": 0.99,
        "tau": 0.9,
        "learning_rate": 1e-3,
        "lr_schedule": None,
        "kl_threshold": 0.008,
        "grad_norm": 1.0,
        "truncate_grads": True,
        "entropy_coef": 0.01,
        "critic_coef": 1,
        "e_clip": 0.2,
        "clip_value": True,
        "num_actors": 16,
        "horizon_length": 32,
        "minibatch_size": 64,
        "mini_epochs": 4,
        "score_to_win": 1_000_000,
        "max_epochs": 60,
        "save_best_after": 1_000_000,
        "save_frequency": 0,
        "print_stats": False,
    },
}


class Envs(IVecEnv):
    """Gymnasium's vector environment as rl_games steps one."""

    def __init__(self, num_actors: int) -> None:
        same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
        self.envs = gym.make_vec(
            "CartPole-v1", num_envs=num_actors, vectorization_mode="sync", vector_kwargs=same_step
        )

    def reset(self) -> np.ndarray:
        """Begin anew."""
        observation: np.ndarray = self.envs.reset(seed=1)[0]
        return observation

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of all."""
        observation, rewards, terminated, truncated, _ = self.envs.step(actions)
        return observation, rewards, np.logical_or(terminated, truncated), {"time_outs": truncated}

    def get_env_info(self) -> dict[str, Any]:
        """The spaces of one environment."""
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        return dict(zip(("observation_space", "action_space"), spaces, strict=True))


tensorboard.install()  # Overwatch
vecenv.register("SYNC", lambda _, num_actors, **__: Envs(num_actors))
env_configurations.register("cartpole", {"vecenv_type": "SYNC", "env_creator": gym.make})
torch.manual_seed(1)
runner = Runner()
runner.load({"params": CONFIG | {"seed": 1, "torch_threads": 1}})
runner.run({"train": True})
