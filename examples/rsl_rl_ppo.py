"""rsl_rl: PPO moves 64 point masses to the origin."""

import sys
import tempfile

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from overwatch.adapters.rsl_rl import watch  # Overwatch

RATE = float(sys.argv[1]) if len(sys.argv) > 1 else 1e-3


class PointMass(VecEnv):
    """Points in a plane, pushed by their actions; each step costs the distance to the origin."""

    num_envs, num_actions, max_episode_length = 64, 2, 50
    device, cfg = "cpu", {"name": "PointMass"}

    def __init__(self) -> None:
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.state = torch.zeros(self.num_envs, 4)
        self._reset(torch.ones(self.num_envs, dtype=torch.bool))

    def _reset(self, rows: torch.Tensor) -> None:
        self.state[rows] = 0.0
        self.state[rows, :2] = torch.rand(int(rows.sum()), 2) * 2 - 1
        self.episode_length_buf[rows] = 0

    def get_observations(self) -> TensorDict:
        """Position and velocity."""
        return TensorDict({"policy": self.state.clone()}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Push, move, and begin again after 50 steps."""
        self.state[:, 2:] = 0.8 * self.state[:, 2:] + 0.1 * actions.clamp(-1, 1)
        self.state[:, :2] += self.state[:, 2:]
        rewards = -self.state[:, :2].norm(dim=1)
        self.episode_length_buf += 1
        dones = self.episode_length_buf >= self.max_episode_length
        self._reset(dones)
        return self.get_observations(), rewards, dones.long(), {"time_outs": dones}


network = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu"}
config = {
    "num_steps_per_env": 24,
    "save_interval": 100,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
    "critic": network,
    "algorithm": {
        "class_name": "PPO",
        "learning_rate": RATE,
        "schedule": "fixed",
        "desired_kl": 0.01,
        "entropy_coef": 0.005,
    },
}

torch.manual_seed(1)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    runner = OnPolicyRunner(PointMass(), config, log_dir=folder, device="cpu")
    watch(runner)  # Overwatch
    runner.learn(num_learning_iterations=80)
