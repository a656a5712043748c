"""Double DQN on transitions that are sampled again and again, by priority.

Rules: tensors in, tensors out; no logger, no clock; nothing is read from the device. A gradient that is not
finite takes no step (PPO's gate). A step that terminated has no value after it; one whose episode was
truncated, or goes on elsewhere, has that of the observation that followed. Must not know worlds, tables or
telemetry.

Sources: Mnih et al. 2015, "Human-level control through deep reinforcement learning"; van Hasselt et al. 2016,
"Deep reinforcement learning with double Q-learning"; Schaul et al. 2016, "Prioritized experience replay",
for the importance weights and the errors that become priorities.

Shape letters as in `types`: N, B, S; A actions.
"""

import copy
import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.algorithms.common import Adam, Alone, Plan, Ranks, below, load_moments, moments_of
from overwatch_rl.algorithms.networks import action_values
from overwatch_rl.algorithms.ppo import averaged, gated_step
from overwatch_rl.types import Decision, Factored, Observation, WorldSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """Single steps as they were sampled."""

    observation: Tensor  # B S
    actions: Tensor  # B int64
    reward: Tensor  # B
    next_observation: Tensor  # B S, of any value where terminated
    terminated: Tensor  # B bool
    weights: Tensor  # B, of importance


@dataclass(frozen=True, slots=True, kw_only=True)
class DQNConfig:
    """How it acts and learns."""

    hidden: int = 64
    """Width of the two hidden layers."""
    learning_rate: float = 2.3e-3
    """Step size of Adam."""
    gamma: float = 0.99
    """Discount of one step."""
    batch: int = 64
    """Transitions of one gradient step."""
    gradient_steps: int = 128
    """Gradient steps after each rollout."""
    target_every: int = 128
    """Gradient steps between two copies of the weights to the target network."""
    max_grad_norm: float = 10.0
    """Gradients longer than this are shortened to it."""
    capacity: int = 100_000
    """Steps that are remembered."""
    first_at: int = 1_000
    """Steps remembered before the first gradient step."""
    epsilon: float = 0.04
    """Share of random actions in the end; all are at first."""
    epsilon_steps: int = 8_000
    """Env steps over which it falls there, linearly."""
    alpha: float = 0.6
    """How much priorities decide what is sampled: 0 not at all, 1 in proportion."""
    beta: float = 0.4
    """Exponent of the importance weights at first; 1 in the end."""
    beta_steps: int = 50_000
    """Env steps over which it rises there, linearly."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")
        for name in ("gamma", "epsilon", "alpha", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 to 1")
        for field in fields(self):
            if field.type is int and getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; use 1 or more")
        if self.first_at > self.capacity:
            raise ValueError(f"first_at is {self.first_at}; use at most the capacity, {self.capacity}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What one gradient step came to."""

    errors: Tensor  # B, target - value
    values: Tensor  # B, before the step
    loss: Tensor
    layers: Tensor  # P, gradient norm of each parameter
    norm: Tensor


class DQN:
    """A network of action values, its slow copy, and the optimiser."""

    def __init__(
        self, spec: WorldSpec, config: DQNConfig, *, seed: int, device: str = "cpu",
        ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        """Raises `ValueError` for a world whose actions are not one choice, and for several ranks."""
        if not isinstance(spec.action, Factored) or spec.action.num_heads != 1:
            raise ValueError(f"dqn acts by one choice; {spec.task} needs another algorithm, as ppo")
        if (ranks or Alone()).size > 1:
            raise ValueError("dqn trains in one process; leave torchrun out")
        self.config, self.plan, self.device = config, Plan(), torch.device(device)
        self._actions = spec.action.num_ops
        generator = torch.Generator().manual_seed(seed)
        made = action_values(spec.observation, config.hidden, self._actions, generator)
        self.policy = made.to(self.device)
        self.target = copy.deepcopy(self.policy).requires_grad_(requires_grad=False)
        self._parameters = list(self.policy.parameters())
        self._optimizer = Adam(self._parameters, lr=config.learning_rate, fused=True)
        self.steps = self.gradient_steps = 0
        """Env steps acted in, and gradient steps taken."""

    def apply_plan(self, plan: Plan) -> None:
        """Raises `ValueError` for any but the plain plan."""
        if plan != Plan():
            raise ValueError(f"dqn computes by the plain plan only, not by {plan}")

    @property
    def learning_rate(self) -> float:
        """Step size of the next gradient step."""
        return float(self._optimizer.param_groups[0]["lr"])

    def set_learning_rate(self, rate: float) -> None:
        """The step size from now on."""
        self._optimizer.param_groups[0]["lr"] = rate

    @property
    def epsilon(self) -> float:
        """Share of random actions now."""
        return _between(1.0, self.config.epsilon, self.steps / self.config.epsilon_steps)

    @property
    def beta(self) -> float:
        """Exponent of importance weights now."""
        return _between(self.config.beta, 1.0, self.steps / self.config.beta_steps)

    @torch.no_grad()
    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """The best action, or, but for `greedy`, a random one with probability `epsilon`."""
        if observation.mask is not None:
            raise ValueError("dqn knows no masks of actions; use another algorithm, as ppo")
        values: Tensor = self.policy(observation.features)
        most, best = values.max(dim=1)
        taken, epsilon = best, 0.0
        if not greedy:
            epsilon = self.epsilon
            self.steps += len(values)
            chance = torch.rand(2, len(values), generator=generator, device=self.device)
            drawn = (chance[1] * self._actions).long().clamp_(max=self._actions - 1)
            taken = torch.where(chance[0] < epsilon, drawn, best)
        shares = epsilon / self._actions + (1.0 - epsilon) * (taken == best)
        return Decision(actions=taken[:, None], log_probs=shares.log()[:, None], values=most)

    def update(self, batch: Transitions) -> Learned:
        """One gradient step."""
        config = self.config
        with torch.no_grad():
            following = self.policy(batch.next_observation).argmax(dim=1, keepdim=True)
            after = self.target(batch.next_observation).gather(1, following).squeeze(1)
            targets = batch.reward + config.gamma * torch.where(batch.terminated, 0.0, after)
        values = self.policy(batch.observation).gather(1, batch.actions[:, None]).squeeze(1)
        losses = functional.smooth_l1_loss(values, targets, reduction="none")
        loss = (batch.weights * losses).mean()
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        stopped = torch.zeros((), dtype=torch.bool, device=self.device)
        alone = Alone()
        gradients = averaged(self._parameters, alone)
        layers, norm = gated_step(self._optimizer, gradients, alone, stopped, config.max_grad_norm)
        self.gradient_steps += 1
        if self.gradient_steps % config.target_every == 0:
            self.target.load_state_dict(self.policy.state_dict())
        seen = values.detach()
        return Learned(errors=targets - seen, values=seen, loss=loss.detach(), layers=layers, norm=norm)

    def state_dict(self) -> dict[str, Tensor]:
        """`policy.*`, `target.*`, `optimizer.*` (number of the parameter, then the moment) and the counts."""
        state = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        state |= {f"target.{name}": value for name, value in self.target.state_dict().items()}
        state["counts"] = torch.tensor([self.steps, self.gradient_steps])
        state["optimizer.lr"] = torch.tensor(self.learning_rate, dtype=torch.float64)
        return state | moments_of(self._optimizer, self._parameters)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was when `state` was taken; raises `ValueError` when it is of another shape."""
        try:
            for name, module in (("policy.", self.policy), ("target.", self.target)):
                module.load_state_dict(below(name, state))
        except RuntimeError as error:
            raise ValueError(f"these weights are of another network: {error}") from error
        load_moments(self._optimizer, self._parameters, state)
        self.set_learning_rate(float(state["optimizer.lr"]))
        self.steps, self.gradient_steps = state["counts"].tolist()

    def acting_keys(self) -> frozenset[str]:
        """The network, and how many steps it acted in: that decides how many actions are random."""
        return frozenset([*(f"policy.{name}" for name in self.policy.state_dict()), "counts"])


def _between(first: float, last: float, done: float) -> float:
    return first + min(1.0, done) * (last - first)
