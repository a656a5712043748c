"""PPO by hand in PyTorch on CartPole, with the SDK in its loop."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import overwatch.sdk  # Overwatch

ENVS, STEPS, UPDATES, EPOCHS, MINIBATCHES = 8, 128, 40, 4, 4
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 2.5e-3

torch.manual_seed(1)
same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
envs = gym.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync", vector_kwargs=same_step)
body, actor, critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh()), nn.Linear(64, 2), nn.Linear(64, 1)
parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
optimiser = torch.optim.Adam(parameters, lr=RATE)
returns, finished = np.zeros(ENVS), [0.0]
observation = torch.tensor(envs.reset(seed=1)[0])
shape = (STEPS, ENVS)
states, actions = torch.zeros(*shape, 4), torch.zeros(shape, dtype=torch.long)
log_probs, values, rewards, ends = (torch.zeros(shape) for _ in range(4))

run = overwatch.sdk.start(task="CartPole-v1", algo="ppo", n_envs=ENVS, updates=UPDATES)  # Overwatch
for update in range(1, UPDATES + 1):
    for t in range(STEPS):
        with torch.no_grad():
            hidden = body(observation)
            policy = Categorical(logits=actor(hidden))
            action = policy.sample()
            values[t], log_probs[t] = critic(hidden).squeeze(-1), policy.log_prob(action)
        states[t], actions[t] = observation, action
        seen, reward, terminated, truncated, _ = envs.step(action.numpy())
        over = np.logical_or(terminated, truncated)
        rewards[t], ends[t], observation = torch.tensor(reward), torch.tensor(over), torch.tensor(seen)
        returns += reward
        finished = [*finished, *returns[over]][-100:]
        returns[over] = 0
    run.envs(reward=rewards[-1], step=update * STEPS)  # Overwatch

    advantages, following = torch.zeros(STEPS + 1, ENVS), critic(body(observation)).squeeze(-1).detach()
    for t in reversed(range(STEPS)):
        goes_on = 1 - ends[t]
        error = rewards[t] + GAMMA * following * goes_on - values[t]
        advantages[t] = error + GAMMA * LAMBDA * goes_on * advantages[t + 1]
        following = values[t]
    advantage = advantages[:-1].flatten()
    target, old = advantage + values.flatten(), log_probs.flatten()
    explained = 1 - (target - values.flatten()).var() / target.var()

    for batch in (part for _ in range(EPOCHS) for part in torch.randperm(STEPS * ENVS).chunk(MINIBATCHES)):
        hidden = body(states.flatten(0, 1)[batch])
        policy = Categorical(logits=actor(hidden))
        ratio = (policy.log_prob(actions.flatten()[batch]) - old[batch]).exp()
        scaled = (advantage[batch] - advantage.mean()) / advantage.std()
        policy_loss = -torch.min(ratio * scaled, ratio.clamp(1 - CLIP, 1 + CLIP) * scaled).mean()
        value_loss = (critic(hidden).squeeze(-1) - target[batch]).pow(2).mean()
        entropy = policy.entropy().mean()
        optimiser.zero_grad()
        (policy_loss + 0.5 * value_loss - 0.01 * entropy).backward()
        grad_norm = nn.utils.clip_grad_norm_(parameters, 0.5)
        optimiser.step()
    report = {
        "return_": np.mean(finished), "entropy_nats": entropy, "learning_rate": RATE,
        "kl_divergence": (ratio - 1 - ratio.log()).mean(), "grad_norm": grad_norm,
        "clip_fraction": ((ratio - 1).abs() > CLIP).float().mean(), "explained_variance": explained,
        "policy_loss": policy_loss, "value_loss": value_loss,
    }  # fmt: skip
    run.update(update=update, **report)  # Overwatch
    print(f"update {update}: return {np.mean(finished):.1f}")
run.close()  # Overwatch
