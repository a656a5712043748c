"""CleanRL's `ppo.py` as its users have it: one file, CartPole, its defaults, and three lines for Overwatch.

The training is that of https://github.com/vwxyzjn/cleanrl (`ppo.py`), with its settings and its order of
steps; it emits the newest minibatch's numbers under the names that it logs. Run one with
`python -m tests.calibration.cleanrl NAME FILE`.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions.categorical import Categorical

from overwatch.catalog import BY_NAME
from overwatch.sdk.frames import Update
from tests.calibration.recorded import Recording, Reported, write
from tests.overwatch.adapters.receiving import local_run


@dataclass(frozen=True, kw_only=True)
class Args:
    """CleanRL's arguments and their defaults; a short run anneals its learning rate over its own length."""

    seed: int = 1
    env_id: str = "CartPole-v1"
    total_timesteps: int = 60_000
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    num_steps: int = 128
    anneal_lr: bool = True
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    norm_adv: bool = True
    clip_coef: float = 0.2
    clip_vloss: bool = True
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = None

    @property
    def batch_size(self) -> int:
        """Steps of one update."""
        return self.num_envs * self.num_steps


RUNS = {f"cleanrl-{seed}": Args(seed=seed) for seed in (1, 2, 3)}
REACHES = 150.0
"""Mean return after so short a training; a policy that does not learn earns 20."""


def _layer(inputs: int, outputs: int, std: float = np.sqrt(2)) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    """CleanRL's two networks."""

    def __init__(self, seen: int, actions: int) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            _layer(seen, 64), nn.Tanh(), _layer(64, 64), nn.Tanh(), _layer(64, 1, 1.0)
        )
        self.actor = nn.Sequential(
            _layer(seen, 64), nn.Tanh(), _layer(64, 64), nn.Tanh(), _layer(64, actions, 0.01)
        )

    def act(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """An action with its log probability, the entropy and the value."""
        chances = Categorical(logits=self.actor(obs))
        action = chances.sample() if action is None else action
        return action, chances.log_prob(action), chances.entropy(), self.critic(obs).flatten()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One rollout, flat."""

    obs: Tensor
    actions: Tensor
    logprobs: Tensor
    advantages: Tensor
    returns: Tensor
    values: Tensor


class Training:
    """One run of the script."""

    def __init__(self, args: Args) -> None:
        self.args = args
        torch.manual_seed(args.seed)
        self.envs = gymnasium.vector.SyncVectorEnv(
            [_make(args.env_id) for _ in range(args.num_envs)],
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        )
        space = self.envs.single_action_space
        assert isinstance(space, gymnasium.spaces.Discrete)
        assert self.envs.single_observation_space.shape is not None
        self.agent = Agent(int(np.prod(self.envs.single_observation_space.shape)), int(space.n))
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=args.learning_rate, eps=1e-5)
        obs, _ = self.envs.reset(seed=args.seed)
        self.obs, self.done = torch.tensor(obs), torch.zeros(args.num_envs)

    def anneal(self, iteration: int, iterations: int) -> float:
        """The learning rate of an iteration."""
        rate = (1 - (iteration - 1) / iterations) * self.args.learning_rate
        self.optimizer.param_groups[0]["lr"] = rate
        return rate

    def collect(self) -> tuple[Batch, list[float]]:
        """A rollout, and the returns of the episodes that ended in it."""
        seen: dict[str, list[Tensor]] = {"obs": [], "done": [], "action": [], "logprob": [], "value": []}
        rewards, ended = [], []
        for _ in range(self.args.num_steps):
            with torch.no_grad():
                action, logprob, _, value = self.agent.act(self.obs)
            now = (self.obs, self.done, action, logprob, value)
            for column, item in zip(seen.values(), now, strict=True):
                column.append(item)
            obs, reward, terminated, truncated, infos = self.envs.step(action.numpy())
            rewards.append(torch.tensor(reward, dtype=torch.float32))
            self.obs = torch.tensor(obs)
            self.done = torch.tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
            ended += _episodes(infos)
        columns = {name: torch.stack(items) for name, items in seen.items()}
        return self._batch(columns, torch.stack(rewards)), ended

    def _batch(self, seen: dict[str, Tensor], rewards: Tensor) -> Batch:
        args, values, dones = self.args, seen["value"], seen["done"]
        advantages, last = torch.zeros_like(rewards), torch.zeros(args.num_envs)
        with torch.no_grad():
            after = self.agent.critic(self.obs).flatten()
        for step in reversed(range(args.num_steps)):
            final = step == args.num_steps - 1
            goes_on = 1.0 - (self.done if final else dones[step + 1])
            coming = after if final else values[step + 1]
            delta = rewards[step] + args.gamma * coming * goes_on - values[step]
            advantages[step] = last = delta + args.gamma * args.gae_lambda * goes_on * last
        return Batch(
            obs=seen["obs"].flatten(0, 1),
            actions=seen["action"].flatten(),
            logprobs=seen["logprob"].flatten(),
            advantages=advantages.flatten(),
            returns=(advantages + values).flatten(),
            values=values.flatten(),
        )

    def learn(self, batch: Batch) -> dict[str, float]:
        """Optimise on a rollout; the numbers that CleanRL logs, by its names."""
        args, clipped = self.args, list[float]()
        size = args.batch_size // args.num_minibatches
        numbers: dict[str, float] = {}
        for _ in range(args.update_epochs):
            order = torch.randperm(args.batch_size)
            for start in range(0, args.batch_size, size):
                numbers = self._minibatch(batch, order[start : start + size], clipped)
        spread = float(batch.returns.var(unbiased=False))
        unexplained = float((batch.returns - batch.values).var(unbiased=False))
        numbers["losses/clipfrac"] = float(np.mean(clipped))
        numbers["losses/explained_variance"] = np.nan if spread == 0 else 1 - unexplained / spread
        return numbers

    def _minibatch(self, batch: Batch, rows: Tensor, clipped: list[float]) -> dict[str, float]:
        args = self.args
        _, logprob, entropy, value = self.agent.act(batch.obs[rows], batch.actions[rows])
        logratio = logprob - batch.logprobs[rows]
        ratio = logratio.exp()
        with torch.no_grad():
            kl = ((ratio - 1) - logratio).mean()
            clipped.append(float(((ratio - 1.0).abs() > args.clip_coef).float().mean()))
        advantages = batch.advantages[rows]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        limited = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
        policy_loss = torch.max(-advantages * ratio, -advantages * limited).mean()
        near = batch.values[rows] + torch.clamp(value - batch.values[rows], -args.clip_coef, args.clip_coef)
        errors = (value - batch.returns[rows]) ** 2, (near - batch.returns[rows]) ** 2
        value_loss = 0.5 * torch.max(*errors).mean()
        loss = policy_loss - args.ent_coef * entropy.mean() + args.vf_coef * value_loss
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.agent.parameters(), args.max_grad_norm)
        self.optimizer.step()
        return {
            "losses/value_loss": value_loss.item(),
            "losses/policy_loss": policy_loss.item(),
            "losses/approx_kl": kl.item(),
            "grad_norm": norm.item(),
        }


def _make(env_id: str) -> Any:
    return lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(env_id))


def _episodes(infos: dict[str, Any]) -> list[float]:
    """Returns of the episodes that ended at a step."""
    final = infos.get("final_info", {})
    ended = np.asarray(final.get("_episode", []), dtype=bool)
    return [float(earned) for earned in np.asarray(final["episode"]["r"])[ended]] if ended.any() else []


def train(name: str) -> Recording:
    """Train with the defaults; takes a minute or two."""
    torch.set_num_threads(1)
    args = RUNS[name]
    run, received = local_run(args.num_envs)
    training, start = Training(args), time.time_ns()
    iterations = args.total_timesteps // args.batch_size
    latest = list[float]()
    for iteration in range(1, iterations + 1):
        rate = training.anneal(iteration, iterations)
        batch, ended = training.collect()
        latest = [*latest, *ended][-20:]
        numbers = {**training.learn(batch), "charts/learning_rate": rate}
        # As its users log it: no episode ended, no return.
        returns = {"charts/episodic_return": float(np.mean(ended))} if ended else {}
        run.update(update=iteration, **numbers, **returns)
    reported = [
        Reported(
            after_ns=update.at - start,
            values={row: float(value) for row, value in update.values.items() if row in BY_NAME},
        )
        for update in received.of(Update)
    ]
    return Recording(
        name=name,
        task=args.env_id,
        n_envs=args.num_envs,
        seed=args.seed,
        config={key: str(value) for key, value in vars(args).items()},
        reaches=REACHES,
        reached=float(np.mean(latest)),
        reported=tuple(reported),
    )


if __name__ == "__main__":
    recording = train(sys.argv[1])
    Path(sys.argv[2]).write_bytes(write(recording))
    print(recording.name, len(recording.updates), recording.reached, "of", recording.reaches)
