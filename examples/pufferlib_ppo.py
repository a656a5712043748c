"""PufferLib: PPO on CartPole."""

import sys
import tempfile

import gymnasium
import pufferlib.emulation
import pufferlib.models
import pufferlib.vector
import torch
from pufferlib import pufferl

from overwatch.adapters.pufferlib import watch  # Overwatch

RATE = float(sys.argv[1]) if len(sys.argv) > 1 else 3e-3


def make(buf: object = None, seed: int = 0) -> pufferlib.emulation.GymnasiumPufferEnv:
    """One CartPole whose episodes are counted."""
    env = pufferlib.EpisodeStats(gymnasium.make("CartPole-v1"))
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)


torch.manual_seed(1)
torch.set_num_threads(1)
vecenv = pufferlib.vector.make(make, num_envs=8, backend=pufferlib.vector.Serial)
policy = pufferlib.models.Default(vecenv.driver_env, hidden_size=64)
config = {
    "env": "CartPole-v1", "seed": 1, "device": "cpu", "torch_deterministic": True, "cpu_offload": False,
    "compile": False, "use_rnn": False, "precision": "float32", "optimizer": "adam", "anneal_lr": True,
    "total_timesteps": 40_000, "batch_size": 1_024, "bptt_horizon": 16, "minibatch_size": 256,
    "max_minibatch_size": 256, "update_epochs": 4, "learning_rate": RATE,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8, "gamma": 0.98, "gae_lambda": 0.9,
    "clip_coef": 0.2, "vf_coef": 0.5, "vf_clip_coef": 0.2,
    "ent_coef": 0.001, "max_grad_norm": 0.5, "prio_alpha": 0.0, "prio_beta0": 1.0, "vtrace_rho_clip": 1.0,
    "vtrace_c_clip": 1.0, "checkpoint_interval": 1_000, "data_dir": tempfile.mkdtemp(),
}  # fmt: skip
trainer = pufferl.PuffeRL(config, vecenv, policy)
watch(trainer)  # Overwatch
while trainer.global_step < config["total_timesteps"]:
    trainer.evaluate()
    trainer.train()
trainer.close()
