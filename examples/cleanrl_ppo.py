"""CleanRL: PPO on CartPole in one file, with the settings and the tags of CleanRL's `ppo.py`."""

import time
from dataclasses import asdict, dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical
from torch.utils.tensorboard import SummaryWriter

from overwatch.adapters.tensorboard import SummaryWriter  # Overwatch


@dataclass
class Args:
    """What CleanRL takes on the command line."""

    exp_name: str = "ppo"
    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 25_600
    learning_rate: float = 1e-3
    num_envs: int = 4
    num_steps: int = 128
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    batch_size: int = 512
    num_iterations: int = 50


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


args = Args()
writer = SummaryWriter(f"runs/{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}")
settings = "\n".join(f"|{key}|{value}|" for key, value in asdict(args).items())
writer.add_text("hyperparameters", f"|param|value|\n|-|-|\n{settings}")
torch.manual_seed(args.seed)
torch.set_num_threads(1)
same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
envs = gym.make_vec(args.env_id, num_envs=args.num_envs, vectorization_mode="sync", vector_kwargs=same_step)
envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
actor, critic = (
    nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, *last))
    for last in ((2, 0.01), (1, 1.0))
)
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=1e-5)
shape = (args.num_steps, args.num_envs)
obs, actions = torch.zeros(*shape, 4), torch.zeros(shape)
logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
global_step, start_time = 0, time.time()
next_obs = torch.tensor(envs.reset(seed=args.seed)[0])

for iteration in range(1, args.num_iterations + 1):
    learning_rate = (1.0 - (iteration - 1.0) / args.num_iterations) * args.learning_rate
    optimizer.param_groups[0]["lr"] = learning_rate
    for step in range(args.num_steps):
        global_step += args.num_envs
        obs[step] = next_obs
        with torch.no_grad():
            policy = Categorical(logits=actor(next_obs))
            actions[step] = policy.sample()
            logprobs[step], values[step] = policy.log_prob(actions[step]), critic(next_obs).flatten()
        seen, reward, terminations, truncations, infos = envs.step(actions[step].long().numpy())
        next_obs, rewards[step] = torch.tensor(seen), torch.tensor(reward)
        dones[step] = torch.tensor(np.logical_or(terminations, truncations))
        if "_episode" in infos:
            for env in np.flatnonzero(infos["_episode"]):
                writer.add_scalar("charts/episodic_return", infos["episode"]["r"][env], global_step)
                writer.add_scalar("charts/episodic_length", infos["episode"]["l"][env], global_step)

    with torch.no_grad():
        advantages, last = torch.zeros(shape), torch.zeros(args.num_envs)
        following = critic(next_obs).flatten()
        for t in reversed(range(args.num_steps)):
            goes_on = 1.0 - dones[t]
            delta = rewards[t] + args.gamma * following * goes_on - values[t]
            advantages[t] = last = delta + args.gamma * args.gae_lambda * goes_on * last
            following = values[t]
    returns = advantages + values
    b_obs, b_actions, b_logprobs, b_advantages, b_returns, b_values = (
        column.flatten(0, 1) for column in (obs, actions, logprobs, advantages, returns, values)
    )

    clipfracs = []
    for _ in range(args.update_epochs):
        for rows in torch.randperm(args.batch_size).split(args.batch_size // args.num_minibatches):
            policy = Categorical(logits=actor(b_obs[rows]))
            logratio = policy.log_prob(b_actions[rows]) - b_logprobs[rows]
            ratio = logratio.exp()
            with torch.no_grad():
                old_approx_kl, approx_kl = (-logratio).mean(), ((ratio - 1) - logratio).mean()
                clipfracs.append(((ratio - 1.0).abs() > args.clip_coef).float().mean().item())
            scaled = b_advantages[rows]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            pg_loss = torch.max(-scaled * ratio, -scaled * clipped).mean()
            v_loss = 0.5 * ((critic(b_obs[rows]).flatten() - b_returns[rows]) ** 2).mean()
            entropy_loss = policy.entropy().mean()
            loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()

    explained = 1 - (b_returns - b_values).var() / b_returns.var()
    scalars = {
        "charts/learning_rate": learning_rate,
        "losses/value_loss": v_loss.item(),
        "losses/policy_loss": pg_loss.item(),
        "losses/entropy": entropy_loss.item(),
        "losses/old_approx_kl": old_approx_kl.item(),
        "losses/approx_kl": approx_kl.item(),
        "losses/clipfrac": np.mean(clipfracs),
        "losses/explained_variance": explained.item(),
        "charts/SPS": int(global_step / (time.time() - start_time)),
    }
    for tag, value in scalars.items():
        writer.add_scalar(tag, value, global_step)

envs.close()
writer.close()
