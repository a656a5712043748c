"""PPO and DQN of Stable-Baselines3 in one of our worlds, by the same recipe.

The network has the same layers behind the same first operation; rewards, episodes and their ends are the
world's. What SB3 has not is left out: PopArt, and the value clip in its units; of DQN priorities and the
double estimate.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from overwatch_rl.algorithms.dqn import DQNConfig
from overwatch_rl.algorithms.networks import HIDDEN, Encoder
from overwatch_rl.algorithms.ppo import PPOConfig
from overwatch_rl.training import diagnostics
from overwatch_rl.training.collector import Episodes
from overwatch_rl.types import Factored, ObservationSpec, Step
from overwatch_rl.worlds.base import World


class Wrapped(VecEnv):
    """A world as SB3 sees it; keeps the world's own numbers of every rollout of `steps`."""

    def __init__(self, world: World, envs: int, *, seed: int, steps: int) -> None:
        self._world, self._seed, self._steps = world, seed, steps
        self._episodes = Episodes(envs, torch.device("cpu"))
        self._actions = torch.zeros(envs, 1, dtype=torch.int64)
        self._rows: list[dict[str, Tensor]] = []
        self.updates: list[dict[str, float]] = []
        """Numbers of each whole rollout, by the names that our trainer reports them under."""
        spec = world.spec.observation
        bounds = (0, len(spec.codes)) if spec.codes else (-np.inf, np.inf)
        dtype = torch.empty(0, dtype=spec.dtype).numpy().dtype
        seen = spaces.Box(*bounds, shape=spec.shape, dtype=dtype.type)
        assert isinstance(world.spec.action, Factored)
        super().__init__(envs, seen, spaces.Discrete(world.spec.action.num_ops))

    def reset(self) -> np.ndarray:
        """Begin anew."""
        return self._world.reset(self._seed).features.numpy().copy()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions of the next step."""
        self._actions = torch.from_numpy(actions).long().view(self.num_envs, 1)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One step; a truncated episode comes with its final observation."""
        step = self._world.step(self._actions)
        ended = step.terminated | step.truncated
        self._keep(step, ended)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for env in ended.nonzero().flatten().tolist():
            assert step.final is not None
            infos[env] = {
                "terminal_observation": step.final[env].numpy().copy(),
                "TimeLimit.truncated": bool(step.truncated[env]),
            }
        return step.observation.features.numpy().copy(), step.reward.numpy(), ended.numpy(), infos

    def _keep(self, step: Step, ended: Tensor) -> None:
        own = {"ended": ended, "truncated": step.truncated, "reward": step.reward}
        self._rows.append({**step.columns, **own})
        if len(self._rows) < self._steps:
            return
        rows = {name: torch.stack([row[name] for row in self._rows]) for name in self._rows[0]}
        self._rows = []
        rows |= self._episodes.add(rows["reward"], rows["ended"])
        found = diagnostics.of_episodes(rows["episode_return"], rows["ended"], rows["truncated"])
        if self._world.spec.summary is not None:
            found |= self._world.spec.summary(rows, rows["ended"])
        self.updates.append({name: float(value) for name, value in found.items()})

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: object = None) -> list[Any]:  # noqa: ARG002
        """Nothing of an env but that it cannot be drawn."""
        if attr_name != "render_mode":
            raise AttributeError(attr_name)
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: object, indices: object = None) -> None:
        """There are no envs with attributes."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: object, **kwargs: object) -> list[Any]:
        """There are no envs with methods."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: object = None) -> list[bool]:  # noqa: ARG002
        """None is."""
        return [False] * self.num_envs


class _Encoded(BaseFeaturesExtractor):
    """The first operation of our networks."""

    def __init__(self, space: gymnasium.Space[np.ndarray], spec: ObservationSpec) -> None:
        encode = Encoder(spec)
        super().__init__(space, encode.num_features)
        self.encode = encode

    def forward(self, seen: Tensor) -> Tensor:
        """B features."""
        return self.encode(seen).flatten(1)  # type: ignore[no-any-return]


def learner(env: Wrapped, world: World, recipe: PPOConfig, *, seed: int, steps: int) -> stable_baselines3.PPO:
    """What learns in it."""
    widths: Sequence[int] = (HIDDEN, HIDDEN)
    return stable_baselines3.PPO(
        "MlpPolicy",
        env,
        learning_rate=recipe.learning_rate,
        n_steps=steps,
        batch_size=env.num_envs * steps // recipe.minibatches,
        n_epochs=recipe.epochs,
        gamma=recipe.gamma,
        gae_lambda=recipe.gae_lambda,
        clip_range=recipe.clip,
        ent_coef=recipe.entropy_coef,
        vf_coef=recipe.value_coef,
        max_grad_norm=recipe.max_grad_norm,
        seed=seed,
        device="cpu",
        policy_kwargs={
            "features_extractor_class": _Encoded,
            "features_extractor_kwargs": {"spec": world.spec.observation},
            "net_arch": {"pi": list(widths), "vf": list(widths)},
        },
    )


def dqn_learner(
    env: Wrapped, world: World, recipe: DQNConfig, *, seed: int, steps: int, total: int
) -> stable_baselines3.DQN:
    """DQN that learns in it, over `total` steps; the target network is renewed before each update."""
    assert recipe.target_every == recipe.gradient_steps
    return stable_baselines3.DQN(
        "MlpPolicy",
        env,
        learning_rate=recipe.learning_rate,
        buffer_size=recipe.capacity,
        learning_starts=recipe.first_at,
        batch_size=recipe.batch,
        gamma=recipe.gamma,
        train_freq=steps,
        gradient_steps=recipe.gradient_steps,
        target_update_interval=steps * env.num_envs,
        exploration_fraction=recipe.epsilon_steps / total,
        exploration_final_eps=recipe.epsilon,
        max_grad_norm=recipe.max_grad_norm,
        seed=seed,
        device="cpu",
        policy_kwargs={
            "features_extractor_class": _Encoded,
            "features_extractor_kwargs": {"spec": world.spec.observation},
            "net_arch": [recipe.hidden, recipe.hidden],
        },
    )
