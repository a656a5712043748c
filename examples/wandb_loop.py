"""Weights & Biases: a loop that logs to it, here REINFORCE on CartPole."""

import gymnasium as gym
import torch
import wandb
from torch import nn
from torch.distributions.categorical import Categorical

from overwatch.adapters import wandb  # Overwatch

config = {
    "env_id": "CartPole-v1",
    "algo": "reinforce",
    "learning_rate": 1e-2,
    "gamma": 0.99,
    "num_updates": 40,
}
torch.manual_seed(1)
torch.set_num_threads(1)
env = gym.make("CartPole-v1")
policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=config["learning_rate"])

with wandb.init(project="cartpole", mode="offline", config=config):
    for update in range(config["num_updates"]):
        log_probs, entropies, weights = [], [], []
        for _ in range(4):
            rewards, over = [], False
            observation, _ = env.reset(seed=1 if update == 0 else None)
            while not over:
                action = Categorical(logits=policy(torch.tensor(observation)))
                chosen = action.sample()
                log_probs.append(action.log_prob(chosen))
                entropies.append(action.entropy())
                observation, reward, terminated, truncated, _ = env.step(chosen.item())
                rewards.append(float(reward))
                over = terminated or truncated
            ahead, discounted = 0.0, []
            for reward in reversed(rewards):
                ahead = reward + config["gamma"] * ahead
                discounted.append(ahead)
            weights += reversed(discounted)
            episode = {"charts/episodic_return": sum(rewards), "charts/episodic_length": len(rewards)}
            wandb.log(episode, commit=False)
        advantages = torch.tensor(weights)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss = -(torch.stack(log_probs) * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wandb.log(
            {
                "losses/policy_loss": loss.item(),
                "losses/entropy": torch.stack(entropies).mean().item(),
                "charts/learning_rate": config["learning_rate"],
            }
        )
