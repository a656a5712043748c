"""The algorithms that act in worlds and learn: one row each.

GRPO is none of them: it answers prompts, and its batches are groups. Must not know what makes experience.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, get_type_hints

import msgspec

from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.algorithms.networks import has_memory
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.components import component, is_importable

AlgorithmConfig: TypeAlias = PPOConfig | DQNConfig


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
    option: str
    """That of `overwatch-rl train` which sets its settings, and the algorithm whose presets it takes."""
    flags: tuple[str, ...]
    """Flags of `overwatch-rl train` that are settings of it, by the same names but for `NAMES`."""
    rows_at_least: str | None = None
    """The setting of which a batch needs as many env steps, or envs where `has_memory`."""
    has_memory: Callable[[Any], bool] = lambda _: False
    """Whether a policy of a config is recurrent: then it learns from whole envs, in the process that acts."""
    is_replayed: bool = False
    """Whether it learns from steps that are sampled again and again, rather than once from a rollout."""


NAMES: Final = {"lr": "learning_rate"}
"""Of settings whose flag is called otherwise."""
ALGORITHMS: Final[dict[str, Kind]] = {
    "ppo": Kind(
        config=PPOConfig,
        make=PPO,
        optimiser_steps=lambda config: config.epochs * config.minibatches,
        tunable=frozenset(("learning_rate", "entropy_coef", "clip", "value_coef", "max_grad_norm")),
        option="ppo",
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
        rows_at_least="minibatches",
        has_memory=lambda config: has_memory(config.network),
    ),
    "dqn": Kind(
        config=DQNConfig,
        make=DQN,
        optimiser_steps=lambda config: config.gradient_steps,
        tunable=frozenset(("learning_rate",)),
        option="dqn",
        flags=("lr", "gamma"),
        is_replayed=True,
    ),
}
"""By name, which is also that of its settings in the configuration of a run."""


def kind_of(name: str) -> Kind:
    """The row, or the user's own by `package.module:name`: a `Kind`, or a class made and set as PPO is.

    Raises `ValueError` when there is none.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if not is_importable(name):
        raise ValueError(f"algorithm is {name!r}; use one of {', '.join(ALGORITHMS)}, or package.module:name")
    found = component(name)
    if isinstance(found, Kind):
        return found
    return replace(ALGORITHMS["ppo"], make=found, config=get_type_hints(found.__init__)["config"])


def kept(config: Mapping[str, Any]) -> tuple[str, AlgorithmConfig]:
    """Name and settings in the configuration of a run; raises `ValueError` where it has none."""
    for name in config:
        if name in ALGORITHMS or ":" in name:
            return name, msgspec.convert(config[name], kind_of(name).config)
    raise ValueError(f"the configuration names no algorithm; known are {', '.join(ALGORITHMS)}")
