"""The algorithms that act in worlds and learn: one row each.

GRPO is none of them: it answers prompts, and its batches are groups. Must not know what makes experience.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.algorithms.networks import has_memory
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.types import Decision, Observation

AlgorithmConfig: TypeAlias = PPOConfig | DQNConfig


class Acting(Protocol):
    """What every row makes, as far as acting goes."""

    @property
    def policy(self) -> nn.Module:
        """The network that acts."""
        ...

    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """Actions; drawn, or the likeliest."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name, those of `policy` under `policy.`."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was when `state` was taken."""
        ...

    def acting_keys(self) -> frozenset[str]:
        """The names in `state_dict` of every tensor that acting reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One algorithm."""

    config: type[AlgorithmConfig]
    make: Callable[..., Any]
    """From the spec of a world and a config, with `seed`, `device` and `ranks` by name."""
    optimiser_steps: Callable[[Any], int]
    """Those of one update, by a config."""
    tunable: frozenset[str]
    """Settings that a command may change while it trains; rows of `orchestrator.commands.TUNABLES`."""
    flags: tuple[str, ...]
    """Flags of `overwatch-rl train` that are settings of it, by the same names but for `NAMES`."""
    shown: Callable[[Any], dict[str, object]] = asdict
    """What a run declares of a config."""
    rows_at_least: str | None = None
    """The setting of which a batch needs as many env steps, or envs where `has_memory`."""
    has_memory: Callable[[Any], bool] = lambda _: False
    """Whether a policy of a config is recurrent: then it learns from whole envs, in the process that acts."""
    is_replayed: bool = False
    """Whether it learns from steps that are sampled again and again, rather than once from a rollout."""


def _shown_of_ppo(config: PPOConfig) -> dict[str, object]:
    names = (
        "epochs", "minibatches", "network", "max_grad_norm", "gamma", "anneal_updates",
        "normalise_observations", "gae_lambda", "clip", "entropy_coef",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}


NAMES: Final = {"lr": "learning_rate"}
"""Of settings whose flag is called otherwise."""
ALGORITHMS: Final[dict[str, Kind]] = {
    "ppo": Kind(
        config=PPOConfig,
        make=PPO,
        optimiser_steps=lambda config: config.epochs * config.minibatches,
        tunable=frozenset(("learning_rate", "entropy_coef", "clip", "value_coef", "max_grad_norm")),
        flags=(
            "lr",
            "epochs",
            "minibatches",
            "network",
            "target_kl",
            "gamma",
            "anneal_updates",
            "normalise_observations",
        ),
        shown=_shown_of_ppo,
        rows_at_least="minibatches",
        has_memory=lambda config: has_memory(config.network),
    ),
    "dqn": Kind(
        config=DQNConfig,
        make=DQN,
        optimiser_steps=lambda config: config.gradient_steps,
        tunable=frozenset(("learning_rate",)),
        flags=("lr", "gamma"),
        is_replayed=True,
    ),
}
"""By name, which is also that of its settings in the configuration of a run."""


def kind_of(name: str) -> Kind:
    """The row; raises `ValueError` when there is none."""
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm is {name!r}; use one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def kept(config: Mapping[str, Any]) -> tuple[str, AlgorithmConfig]:
    """Name and settings in the configuration of a run; raises `ValueError` where it has none."""
    for name, kind in ALGORITHMS.items():
        if name in config:
            return name, msgspec.convert(config[name], kind.config)
    raise ValueError(f"the configuration names no algorithm; known are {', '.join(ALGORITHMS)}")
