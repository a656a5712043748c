"""TorchRL: its PPO trainer on CartPole."""

import sys

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.trainers.algorithms.ppo import PPOTrainer

from overwatch.adapters.torchrl import watch  # Overwatch

RATE = float(sys.argv[1]) if len(sys.argv) > 1 else 1e-3
FRAMES, BATCH = 24_000, 1_000

torch.manual_seed(1)
torch.set_num_threads(1)
env = GymEnv("CartPole-v1")
env.set_seed(1)
body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
actor = ProbabilisticActor(
    TensorDictModule(body, in_keys=["observation"], out_keys=["logits"]),
    in_keys=["logits"],
    spec=env.action_spec,
    distribution_class=OneHotCategorical,
    return_log_prob=True,
)
critic = ValueOperator(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)), in_keys=["observation"])
loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, normalize_advantage=True)
trainer = PPOTrainer(
    collector=Collector(env, actor, frames_per_batch=BATCH, total_frames=FRAMES),
    total_frames=FRAMES,
    frame_skip=1,
    optim_steps_per_batch=8,
    num_epochs=6,
    loss_module=loss,
    optimizer=torch.optim.Adam(loss.parameters(), lr=RATE),
    clip_norm=0.5,
    progress_bar=False,
    replay_buffer=TensorDictReplayBuffer(
        storage=LazyTensorStorage(BATCH), sampler=SamplerWithoutReplacement(), batch_size=BATCH // 8
    ),
)
watch(trainer)  # Overwatch
trainer.train()
