"""Lightning with Overwatch: PPO on CartPole, after Lightning's own example of reinforcement learning.

A batch is a rollout of eight environments; a training step learns from it. The lines marked `# Overwatch` are
all that is added.

    python examples/lightning_ppo.py --updates 60
"""

import argparse
from collections import deque
from collections.abc import Iterator

import gymnasium
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, IterableDataset

from overwatch.adapters.lightning import OverwatchCallback  # Overwatch

ENVS, STEPS, EPOCHS, MINIBATCH, GAMMA, LAMBDA, CLIP = 8, 128, 4, 256, 0.99, 0.95, 0.2
Batch = dict[str, Tensor]


def network(outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Rollouts(IterableDataset[Batch]):
    """What the module's policy experiences."""

    def __init__(self, module: "PPO") -> None:
        self.module = module

    def __iter__(self) -> Iterator[Batch]:
        """A rollout each time, of the newest policy."""
        while True:
            yield self.module.collect()


class PPO(LightningModule):
    """Policy, critic, and the environments they learn in."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.policy, self.critic = network(2), network(1)
        self.envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
        self.observation = torch.as_tensor(self.envs.reset(seed=1)[0])
        self.length = torch.zeros(ENVS)
        self.returns: deque[float] = deque(maxlen=20)

    @torch.no_grad()
    def collect(self) -> Batch:
        """One rollout with its advantages."""
        rows: list[Batch] = []
        for _ in range(STEPS):
            chosen = Categorical(logits=self.policy(self.observation))
            action = chosen.sample()
            after, reward, terminated, truncated, _ = self.envs.step(action.numpy())
            end = torch.as_tensor(terminated | truncated)
            gained = torch.as_tensor(reward).float()
            rows.append(
                {
                    "obs": self.observation,
                    "action": action,
                    "log_prob": chosen.log_prob(action),
                    "value": self.critic(self.observation)[:, 0],
                    "reward": gained,
                    "end": end.float(),
                }
            )
            self.length += gained
            self.returns.extend(self.length[end].tolist())
            self.length[end] = 0.0
            self.observation = torch.as_tensor(after)
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        following, gain = self.critic(self.observation)[:, 0], torch.zeros(ENVS)
        advantages = torch.zeros(STEPS, ENVS)
        for t in reversed(range(STEPS)):
            goes_on = 1.0 - batch["end"][t]
            error = batch["reward"][t] + GAMMA * following * goes_on - batch["value"][t]
            advantages[t] = gain = error + GAMMA * LAMBDA * goes_on * gain
            following = batch["value"][t]
        batch["advantage"], batch["target"] = advantages, advantages + batch["value"]
        return {name: column.flatten(0, 1) for name, column in batch.items()}

    def training_step(self, batch: Batch) -> None:
        """Four epochs over one rollout."""
        logged: dict[str, Tensor] = {}
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(batch["obs"])).split(MINIBATCH):
                logged = self.learn({name: column[rows] for name, column in batch.items()})
        spread = batch["target"].var()
        logged["explained_variance"] = 1.0 - (batch["target"] - batch["value"]).var() / spread
        if self.returns:
            logged["avg_ep_reward"] = torch.tensor(sum(self.returns) / len(self.returns))
        self.log_dict(logged)

    def learn(self, part: Batch) -> dict[str, Tensor]:
        """One optimiser step."""
        now = Categorical(logits=self.policy(part["obs"]))
        log_ratio = now.log_prob(part["action"]) - part["log_prob"]
        ratio, gain = log_ratio.exp(), part["advantage"]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        loss_actor = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
        loss_critic = (self.critic(part["obs"])[:, 0] - part["target"]).square().mean()
        entropy, optimizer = now.entropy().mean(), self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss_actor + 0.5 * loss_critic - 0.01 * entropy)
        norm = nn.utils.clip_grad_norm_(self.parameters(), 0.5)
        optimizer.step()
        return {
            "loss_actor": loss_actor.detach(),
            "loss_critic": loss_critic.detach(),
            "entropy_nats": entropy.detach(),
            "kl_divergence": (ratio - 1 - log_ratio).mean().detach(),
            "clip_fraction": ((ratio - 1).abs() > CLIP).float().mean(),
            "grad_norm": norm,
        }

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam for both networks."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate, eps=1e-5)

    def train_dataloader(self) -> DataLoader[Batch]:
        """A rollout is a batch."""
        return DataLoader(Rollouts(self), batch_size=None)


def main() -> None:
    """Train, and print the mean return of the last twenty episodes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    options = parser.parse_args()
    seed_everything(1)
    module = PPO(options.learning_rate)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=options.updates * EPOCHS * ENVS * STEPS // MINIBATCH,
        log_every_n_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[OverwatchCallback(algo="ppo", updates=options.updates)],  # Overwatch
    )
    trainer.fit(module)
    print(f"return: {sum(module.returns) / len(module.returns):.1f}")


if __name__ == "__main__":
    main()
