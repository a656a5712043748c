"""Tianshou: PPO on CartPole."""

import sys

import gymnasium as gym
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from overwatch.adapters.tianshou import watch  # Overwatch

RATE = float(sys.argv[1]) if len(sys.argv) > 1 else 1e-3

torch.manual_seed(1)
torch.set_num_threads(1)
train_envs = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(8)])
test_envs = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(4)])
train_envs.seed(1)
test_envs.seed(2)
space = train_envs.action_space[0]
net = Net(state_shape=(4,), hidden_sizes=(64, 64))
actor = DiscreteActor(preprocess_net=net, action_shape=2)
critic = DiscreteCritic(preprocess_net=net)
policy = ProbabilisticActorPolicy(
    actor=actor,
    dist_fn=torch.distributions.Categorical,
    action_space=space,
    action_scaling=False,
)
algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=RATE), max_grad_norm=0.5)
watch(algorithm)  # Overwatch
algorithm.run_training(
    OnPolicyTrainerParams(
        training_collector=Collector(algorithm, train_envs, VectorReplayBuffer(8_000, 8)),
        test_collector=Collector(algorithm, test_envs),
        max_epochs=4,
        epoch_num_steps=10_000,
        collection_step_num_env_steps=1_000,
        collection_step_num_episodes=None,
        test_step_num_episodes=4,
        update_step_num_repetitions=6,
        batch_size=128,
        show_progress=False,
    )
)
