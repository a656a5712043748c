"""skrl: PPO on Pendulum."""

import sys
import tempfile
from typing import Any

import gymnasium as gym
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn

from overwatch.adapters.skrl import watch  # Overwatch

RATE = float(sys.argv[1]) if len(sys.argv) > 1 else 1e-3


def network(*last: nn.Module) -> nn.Sequential:
    """From what Pendulum shows to one number."""
    return nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), *last)


class Policy(GaussianMixin, Model):
    """Mean by a network, standard deviation a parameter."""

    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_log_std=True, min_log_std=-20, max_log_std=2)
        self.net = network(nn.Tanh())
        self.log_std = nn.Parameter(torch.zeros(1))

    def compute(self, inputs: dict[str, Any], role: str) -> tuple[torch.Tensor, dict[str, Any]]:  # noqa: ARG002
        """Pendulum's actions are from -2 to 2."""
        return 2 * self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    """The critic."""

    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = network()

    def compute(self, inputs: dict[str, Any], role: str) -> tuple[torch.Tensor, dict[str, Any]]:  # noqa: ARG002
        """One value a state."""
        return self.net(inputs["observations"]), {}


torch.manual_seed(1)
torch.set_num_threads(1)
env = wrap_env(gym.make_vec("Pendulum-v1", num_envs=8, vectorization_mode="sync"))
spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
config = PPO_CFG()
config.rollouts, config.learning_epochs, config.mini_batches = 128, 10, 8
config.learning_rate, config.grad_norm_clip, config.entropy_loss_scale = RATE, 0.5, 0.001
config.discount_factor, config.gae_lambda = 0.9, 0.95
config.experiment.directory = tempfile.mkdtemp()
agent = PPO(
    models={"policy": Policy(**spaces), "value": Value(**spaces)},
    memory=RandomMemory(memory_size=128, num_envs=8, device=env.device),
    cfg=config,
    **spaces,
)
trainer = SequentialTrainer(
    cfg={"timesteps": 6_400, "headless": True, "disable_progressbar": True}, env=env, agents=agent
)
watch(trainer)  # Overwatch
trainer.train()
