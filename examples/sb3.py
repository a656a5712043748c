"""Stable-Baselines3's own first example, with two lines of Overwatch."""

import gymnasium as gym
from stable_baselines3 import PPO

from overwatch.adapters.sb3 import OverwatchCallback  # Overwatch

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, verbose=1)
model.learn(
    total_timesteps=10_000,
    callback=OverwatchCallback(),  # Overwatch
)
