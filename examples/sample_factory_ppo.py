"""Sample Factory: PPO on CartPole, serial, with its own command line."""

import tempfile
from typing import Any

import gymnasium as gym
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl

from overwatch.adapters import tensorboard  # Overwatch

ARGUMENTS = (
    "--env=cartpole --experiment=cartpole --device=cpu --serial_mode=True --async_rl=False --num_workers=1 "
    "--num_envs_per_worker=4 --worker_num_splits=1 --rollout=32 --batch_size=256 --num_epochs=2 --seed=1 "
    "--num_batches_per_epoch=1 --train_for_env_steps=20000 --use_rnn=False --encoder_mlp_layers 32 32 "
    "--learning_rate=0.001 --experiment_summaries_interval=1 --stats_avg=20 --restart_behavior=overwrite"
)


def make(_name: str, _cfg: Any, _env_config: Any, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """One CartPole."""
    return gym.make("CartPole-v1", render_mode=render_mode)


if __name__ == "__main__":
    tensorboard.install()  # Overwatch
    register_env("cartpole", make)
    arguments = [*ARGUMENTS.split(), f"--train_dir={tempfile.mkdtemp()}"]
    parser, _ = parse_sf_args(arguments)
    raise SystemExit(run_rl(parse_full_cfg(parser, arguments)))
