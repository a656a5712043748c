"""The sets of limits that a run may be judged by; a row states which of them it differs in."""

import difflib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

DEFAULT: Final = "ppo"

PRESETS: Final = MappingProxyType(
    {
        "ppo": "PPO with discrete actions; calibrated on healthy runs",
        "ppo-continuous": "PPO with continuous actions: entropy has no floor, log densities have no ceiling",
        "grpo": "language models without a critic: groups, answers cut, sampler against trainer",
        "esper": "the original system's absolute limits",
    }
)
"""Name to what it is for. KL's limits are the same in all of them."""

WORDS: Final[Mapping[str, Mapping[str, str]]] = {"grpo": {"kl": "kl_reference"}}
"""By preset, words that mean another row of the policy under it than elsewhere: word to short name."""


ALGORITHMS: Final = MappingProxyType(
    {
        "grpo": ("grpo", "dr-grpo", "drgrpo", "dapo", "gspo", "gmpo", "rloo", "remax", "reinforce++"),
        "ppo-continuous": (
            "ppo-continuous", "ppo-continuous-action", "sac", "td3", "ddpg", "tqc", "redq", "crossq",
        ),
    }
)  # fmt: skip
"""By preset, the algorithms that choose it where no preset is given; all others have the default."""


OFF_POLICY: Final = frozenset(
    {
        "sac",
        "td3",
        "ddpg",
        "tqc",
        "redq",
        "crossq",
        "dqn",
        "ddqn",
        "qrdqn",
        "rainbow",
        "c51",
        "iqn",
        "cql",
        "iql",
    }
)
"""Algorithms that learn from what was collected long ago, also by another policy."""
SUPERVISED: Final = frozenset({"sft", "dpo", "kto", "orpo", "cpo", "bco", "reward", "prm", "gkd"})
"""Algorithms whose loss is of fixed data, so that it is comparable from the first update to the last."""


def is_off_policy(algo: str | None) -> bool:
    """Whether an algorithm is known to learn from old experience."""
    return _word(algo) in OFF_POLICY


def is_supervised(algo: str | None) -> bool:
    """Whether an algorithm is known to learn from fixed data."""
    return _word(algo) in SUPERVISED


@lru_cache(maxsize=256)
def preset_for(algo: str | None) -> str:
    """The preset that suits an algorithm, by its usual names.

    >>> preset_for("GRPO"), preset_for("ppo_continuous_action"), preset_for("PPO"), preset_for(None)
    ('grpo', 'ppo-continuous', 'ppo', 'ppo')
    """
    word = _word(algo)
    return next((preset for preset, names in ALGORITHMS.items() if word in names), DEFAULT)


def _word(algo: str | None) -> str:
    return "" if algo is None else "-".join(algo.lower().replace("_", " ").replace("-", " ").split())


def parse_preset(name: str) -> str:
    """The preset of this name; raises `ValueError` that names the nearest one."""
    if name in PRESETS:
        return name
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(PRESETS)}"
    raise ValueError(f"no preset is called {name!r}; {hint}")
