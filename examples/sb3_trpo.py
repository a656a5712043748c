"""sb3-contrib: TRPO on four CartPoles, with evaluations."""

from sb3_contrib import TRPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env

from overwatch.adapters.sb3 import OverwatchCallback  # Overwatch

envs = make_vec_env("CartPole-v1", n_envs=4, seed=1)
model = TRPO("MlpPolicy", envs, n_steps=256, verbose=1, seed=1)
model.learn(
    total_timesteps=25_600,
    callback=[
        EvalCallback(make_vec_env("CartPole-v1", seed=2), eval_freq=1_280, verbose=0),
        OverwatchCallback(),  # Overwatch
    ],
)
