"""Gymnasium's own example of a vector of envs, with two lines of Overwatch.

Not `gymnasium.py`: a program of that name would import itself.
"""

import gymnasium as gym

from overwatch.adapters.gymnasium import OverwatchWrapper  # Overwatch

envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
envs = OverwatchWrapper(envs)  # Overwatch
envs.reset(seed=42)
for _ in range(20_000):
    actions = envs.action_space.sample()
    observations, rewards, terminations, truncations, infos = envs.step(actions)
envs.close()
